"""A grader process: `python -m polygym.rewards.grader_process` reads answers from stdin and writes verdicts to stdout.

The one idea: the operating system ends a computation that takes too long. A timer on the CPU time of this process sends
SIGPROF, which nothing here catches, so it works inside any loop, and a busy machine cannot make it come earlier.

A request is a line `[gold, prediction, cpu_seconds]`, its answer a line `true` or `false`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys

MEMORY_BYTES = 2 * 2**30


def main() -> None:
    """Serve until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the business of the process that asks
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    with contextlib.suppress(ValueError, OSError):  # not every system lets it be set
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever a library prints must not look like an answer
    judge(r"\tan^2(y)+1", r"\sec^2(y)")  # loads and warms the libraries, outside any budget
    answers.write(b"ready\n")
    for line in sys.stdin.buffer:
        gold, prediction, cpu_seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        verdict = judge(gold, prediction)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(b"true\n" if verdict else b"false\n")


def judge(gold: str, prediction: str) -> bool:
    """Whether the answers are equal; an answer that breaks the libraries, the stack or the memory limit is wrong."""
    from polygym.rewards.answers import same_answer
    from polygym.rewards.symbolic import same_expression

    try:
        return same_answer(gold, prediction, same_expression)
    except Exception:  # sympy and the parser raise anything at all on strange input, MemoryError included
        return False


if __name__ == "__main__":
    main()
