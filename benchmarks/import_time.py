"""What polygym costs before it does anything: its import, its command line, its size on disk.

    python benchmarks/import_time.py                # import and --help of the installed polygym
    python benchmarks/import_time.py --install      # the size of a core install too, in a new virtual environment

Prints JSON: medians over new processes, each beside its limit, and what is loaded although it should not be. Exits
with 1 when a limit is not kept. Wall time on a busy machine measures the machine: CPU seconds stand beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
IMPORT_SECONDS = 0.3
HELP_SECONDS = 0.5
INSTALL_MEGABYTES = 150
HEAVY = ("torch", "transformers", "fastapi", "datasets", "aiohttp", "math_verify")
INSTALLERS = ("pip", "setuptools", "wheel")

# Times the import alone: the start of Python itself is no part of it.
IMPORT = """
import json, sys, time
wall, cpu = time.perf_counter(), time.process_time()
import polygym
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, sorted(sys.modules)]))
"""
HELP = "import sys; from polygym.cli.main import main; sys.argv = ['polygym', '--help']; main()"


def measure_import(repeats: int) -> dict[str, Any]:
    """Median seconds of `import polygym`, and which heavy modules came with it."""
    runs = []
    for _ in range(repeats):
        result = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        runs.append(json.loads(result.stdout))
    loaded = set(runs[-1][2])
    return {
        "seconds": round(statistics.median(run[0] for run in runs), 4),
        "cpu_seconds": round(statistics.median(run[1] for run in runs), 4),
        "limit_seconds": IMPORT_SECONDS,
        "modules": len(loaded),
        "heavy_modules": [name for name in HEAVY if name in loaded],
    }


def measure_help(repeats: int) -> dict[str, Any]:
    """Median seconds of the whole process `polygym --help`, the start of Python included."""
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), os.times()
        subprocess.run([sys.executable, "-c", HELP], stdout=subprocess.DEVNULL, check=True)
        walls.append(time.perf_counter() - wall)
        after = os.times()
        cpus.append(after.children_user + after.children_system - cpu.children_user - cpu.children_system)
    return {
        "seconds": round(statistics.median(walls), 4),
        "cpu_seconds": round(statistics.median(cpus), 4),
        "limit_seconds": HELP_SECONDS,
    }


def measure_install(source: Path) -> dict[str, Any]:
    """Megabytes (10**6 bytes) of a core install in a new virtual environment, installers left out.

    `megabytes` is what the packages bring, which the limit is for; `bytecode_megabytes` is the cache that pip writes
    beside it (and uv does not).
    """
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(source)], check=True, stdout=sys.stderr)
        where = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            capture_output=True,
            text=True,
            check=True,
        )
        site_packages = Path(where.stdout.strip())
        sizes, bytecode = weigh(entry for entry in site_packages.iterdir() if not entry.name.startswith(INSTALLERS))
    largest = sorted(sizes, key=lambda name: -sizes[name])[:8]
    return {
        "megabytes": round(sum(sizes.values()) / 1e6, 1),
        "bytecode_megabytes": round(bytecode / 1e6, 1),
        "limit_megabytes": INSTALL_MEGABYTES,
        "largest": {name: round(sizes[name] / 1e6, 1) for name in largest},
    }


def weigh(entries: Iterable[Path]) -> tuple[dict[str, int], int]:
    """Bytes of each file or folder without its bytecode caches, and the bytes of all those caches."""
    sizes: dict[str, int] = {}
    bytecode = 0
    for entry in entries:
        sizes[entry.name] = 0
        for path in (entry, *entry.rglob("*")):
            if path.is_file():
                size = path.stat().st_size
                bytecode += size if path.suffix == ".pyc" else 0
                sizes[entry.name] += 0 if path.suffix == ".pyc" else size
    return sizes, bytecode


def kept(figures: dict[str, Any]) -> bool:
    """Whether every limit is kept."""
    install = figures.get("core_install")
    return (
        not figures["import_polygym"]["heavy_modules"]
        and all(
            figures[name]["seconds"] <= figures[name]["limit_seconds"] for name in ("import_polygym", "polygym_help")
        )
        and (install is None or install["megabytes"] <= install["limit_megabytes"])
    )


def main() -> int:
    """Measure, print, and say by the exit code whether the limits are kept."""
    parser = argparse.ArgumentParser(description="Import time, start time and size of polygym, as JSON.")
    parser.add_argument("--repeats", type=int, default=9, help="processes a median is taken over")
    parser.add_argument("--install", action="store_true", help="install the core in a new environment and weigh it")
    parser.add_argument("--source", type=Path, default=REPOSITORY, help="what to install: a checkout or a wheel")
    parser.add_argument("--output", type=Path, help="write the JSON there too")
    options = parser.parse_args()
    figures: dict[str, Any] = {
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "repeats": options.repeats,
        "import_polygym": measure_import(options.repeats),
        "polygym_help": measure_help(options.repeats),
    }
    if options.install:
        figures["core_install"] = measure_install(options.source)
    figures["within_limits"] = kept(figures)
    text = json.dumps(figures, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", "utf-8")
    return 0 if figures["within_limits"] else 1


if __name__ == "__main__":
    sys.exit(main())
