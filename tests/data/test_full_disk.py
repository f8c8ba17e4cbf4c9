"""A disk that is full: told with its path, nothing of the file that was there is lost, nothing is left behind."""

from __future__ import annotations

import json
import random
import subprocess
import sys
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
