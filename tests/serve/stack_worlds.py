"""Servers that misbehave, and finding what processes they leave. Imported by path from the servers' processes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from polygym.environments.single_turn import SingleTurnEnv
from polygym.rollout import Task
from polygym.serve.resources import ResourcesServer, VerifyRequest, tool


class Echo(ResourcesServer):
    """Says its process id; a request to `crash`, `hang` or `fill` makes it do so."""

    @tool
    async def pid(self, body: dict) -> dict:
        return {"pid": os.getpid()}

    @tool
    async def crash(self, body: dict) -> None:
        os._exit(7)

    @tool
    async def hang(self, body: dict) -> None:
        time.sleep(600)  # blocks the event loop, as bad code does

    @tool
    async def slow(self, body: dict) -> str:
        await asyncio.sleep(600)
        return "done"

    async def verify(self, body: VerifyRequest) -> float:
        return 1.0


class Crashing(Echo):
    """Comes up the first time only; then it crashes as soon as it is made."""

    def __init__(self, name: str, *, marks: str, **options: object) -> None:
        with open(marks, "a") as file:
            file.write(f"{time.time()}\n")
        if len(Path(marks).read_text().splitlines()) > 1:
            print("no luck", file=sys.stderr, flush=True)
            os._exit(7)
        super().__init__(name, **options)  # type: ignore[arg-type]


class Slow(Echo):
    """Comes up after five minutes."""

    def __init__(self, name: str, **options: object) -> None:
        time.sleep(300)


class Broken(Echo):
    """Never comes up."""

    def __init__(self, name: str, **options: object) -> None:
        raise RuntimeError("the disk is on fire")


class Repeat(SingleTurnEnv):
    """Pays the length of the word that is repeated; only the environment of the right length can demonstrate it."""

    def reward(self, completion: str, answer: str) -> float:
        return float(len(answer)) if completion == answer else 0.0

    def demonstrate(self, task: Task) -> str:
        return str(task.answer)[: self.length]

    length = 0


def load_repeat(length: int) -> Repeat:
    """An environment whose words have `length` letters."""
    words = [letter * length for letter in "abcdefgh"]
    environment = Repeat([{"question": f"Say {word}", "answer": word} for word in words], name="repeat")
    environment.length = length
    return environment


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def marked_processes(mark: str) -> dict[int, str]:
    """Processes whose environment holds a text, with their command lines (Linux)."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and mark in (folder / "environ").read_bytes().decode("utf-8", "replace"):
                found[int(folder.name)] = (folder / "cmdline").read_bytes().decode().replace("\0", " ")
        except OSError:
            continue
    found.pop(os.getpid(), None)
    return found
