"""What `polygym data` takes for many rows: seconds on one core, and resident memory.

    python benchmarks/data.py                        # 1,000,000 rows of 1 KB: blend, blend --shuffle, prepare
    python benchmarks/data.py --rows 100000          # a quick look
    python benchmarks/data.py --output figures.json

Three files of unequal size are blended by `polygym data blend`, and the result goes through `polygym data prepare`,
each in a process of its own that is held on one core. `prepare` checks the shape of rows whose environments are not
known here; `prepare_environment` is a tenth of the rows, whose environment begins and judges every episode.

Prints JSON: medians of `--repeats` runs beside their limits. Exits with 1 when a limit is not kept. Wall time on a busy
machine measures the machine: CPU seconds stand beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROWS = 1_000_000
ROW_BYTES = 1_000
SHARES = {"alpha": 0.5, "beta": 0.3, "gamma": 0.2}
BLEND_SECONDS = 60.0
PREPARE_SECONDS = 120.0
MEGABYTES = 200  # 10**6 bytes
# What the kernel tells the parent of a child's memory begins with the parent's own: the command tells its peak itself.
POLYGYM = """
import atexit, re
from pathlib import Path

status = Path("/proc/self/status")
atexit.register(lambda: Path("peak").write_text(re.search(r"VmHWM:\\s*(\\d+)", status.read_text())[1]))
from polygym.__main__ import main

main()
"""
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Name of the city."}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}


def write_rows(path: Path, count: int, tools: bool) -> None:
    """Rows of about 1 KB: a system message, a question, a tool where asked for, and an answer."""
    with open(path, "w", encoding="utf-8") as file:
        for number in range(count):
            params: dict[str, Any] = {"input": [{"role": "system", "content": "Answer in one line."}]}
            params["input"].append({"role": "user", "content": f"What is {number} + {number}?"})
            if tools:
                params["tools"] = [TOOL]
            row = {"id": number, "responses_create_params": params, "answer": str(2 * number), "source": [1, 2.5, None]}
            missing = ROW_BYTES - len(json.dumps(row)) - 1
            params["input"][1]["content"] += " Grüße." * (missing // 9) + "." * (missing % 9)
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def measure(folder: Path, repeats: int, *arguments: str) -> dict[str, Any]:
    """Medians of `polygym data ARGUMENTS` on one core."""
    core = min(os.sched_getaffinity(0))
    walls, cpus, megabytes = [], [], []
    for _ in range(repeats):
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", POLYGYM, "data", *arguments],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"polygym data {' '.join(arguments)} ended with {process.returncode}")
        walls.append(time.perf_counter() - started)
        cpus.append(used.ru_utime + used.ru_stime)
        megabytes.append(int((folder / "peak").read_text()) * 1024 / 1e6)
    return {
        "seconds": round(statistics.median(walls), 2),
        "cpu_seconds": round(statistics.median(cpus), 2),
        "resident_megabytes": round(statistics.median(megabytes), 1),
    }


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where 2.5 KB a row have room; default the system's")
    parser.add_argument("--output", type=Path, help="write the figures here too")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        for source, share in SHARES.items():
            write_rows(folder / f"{source}.jsonl", round(options.rows * share), tools=True)
        write_rows(folder / "math.jsonl", options.rows // 10, tools=False)
        size = sum((folder / f"{source}.jsonl").stat().st_size for source in SHARES)
        adds = [part for source in SHARES for part in ("--add", f"{source}={source}.jsonl")]
        commands = {
            "blend": ["blend", *adds, "-o", "blend.jsonl"],
            "blend_shuffle": ["blend", *adds, "-o", "blend.jsonl", "--shuffle"],
            "prepare": ["prepare", "blend.jsonl", "-o", "prepared.jsonl"],
            "prepare_environment": ["prepare", "math.jsonl", "--environment", "math_rl", "-o", "prepared.jsonl"],
        }
        figures: dict[str, Any] = {
            "rows": options.rows,
            "bytes_a_row": round(size / options.rows),
            "load": os.getloadavg(),
        }
        for command, arguments in commands.items():
            figures[command] = measure(folder, options.repeats, *arguments)
    limits = {"blend": BLEND_SECONDS, "blend_shuffle": BLEND_SECONDS, "prepare": PREPARE_SECONDS}
    for command, seconds in limits.items():
        figures[command] |= {"limit_seconds": seconds, "limit_megabytes": MEGABYTES}
    figures["within_limits"] = all(
        figures[command]["seconds"] < seconds and figures[command]["resident_megabytes"] < MEGABYTES
        for command, seconds in limits.items()
    )
    text = json.dumps(figures, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    if not figures["within_limits"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
