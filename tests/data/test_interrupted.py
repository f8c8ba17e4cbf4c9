"""A full disk and a kill: nothing of the file that was there is lost; the disk is told with its path."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_toys import read, wire_row, write

POLYGYM = [sys.executable, "-m", "polygym", "data"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "polygym-test", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
@pytest.mark.parametrize("command", ["prepare", "blend", "split"])
def test_a_full_disk_leaves_the_old_file_and_is_told(name: str, command: str, small_disk: Path, tmp_path: Path) -> None:
    text = random.Random(0)
    rows = (wire_row(n, f"{text.getrandbits(8_000):x}", "mine") for n in range(2_000))
    source = write(tmp_path / name, rows)
    output = write(small_disk / name, [wire_row("old")])
    arguments = {
        "prepare": [str(source), "-o", str(output)],
        "blend": ["--add", str(source), "-o", str(output)],
        "split": [str(source), "-o", str(small_disk), "--held-out", "10"],
    }[command]
    done = subprocess.run([*POLYGYM, command, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert f"cannot write '{small_disk}/" in done.stderr
    assert "No space left on device" in done.stderr
    assert read(output) == [json.loads(json.dumps(wire_row("old")))]
    assert list(small_disk.iterdir()) == [output]


def test_a_blend_that_is_killed_leaves_the_old_file(tmp_path: Path) -> None:
    source = write(tmp_path / "rows.jsonl", (wire_row(n, agent="mine") for n in range(100_000)))
    output = write(tmp_path / "out" / "blend.jsonl", [wire_row("old")])
    process = subprocess.Popen([*POLYGYM, "blend", "--add", str(source), "-o", str(output)])
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size > 100_000 for path in output.parent.glob(".blend.jsonl.*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -9
    assert read(output) == [wire_row("old")]
    assert not (tmp_path / "out" / "blend.jsonl.manifest.json").exists()
