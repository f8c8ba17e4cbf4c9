"""Running a stack of servers from the command line: in the foreground, or in the background.

The one idea: a stack runs until it is told to stop, by Ctrl-C, SIGTERM or `polygym env stop`; all three end it in the
same way.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from polygym.serve.config import StackConfig
from polygym.serve.detach import detached
from polygym.serve.supervisor import Supervisor
from polygym.view.servers import ServersDisplay, servers_table


def keep_up(config: StackConfig, logs: Path | None, single_process: bool) -> None:
    """Run a stack here, with a live table.

    Raises:
        KeyboardInterrupt: when Ctrl-C or SIGTERM has ended it.
    """
    began = time.monotonic()
    with ServersDisplay() as display:

        def show(instances: list[dict[str, Any]]) -> None:
            display.update([supervisor.head(), *instances])

        supervisor = Supervisor(config, logs, single_process=single_process, on_change=show)

        def ready() -> None:
            display.message(
                f"all ready in {time.monotonic() - began:.1f} s; logs in {supervisor.logs}; Ctrl-C stops everything"
            )

        interrupted = asyncio.run(_until_stopped(supervisor, ready))
    if interrupted:
        raise KeyboardInterrupt


def keep_up_detached(config: StackConfig, logs: Path | None, single_process: bool) -> None:
    """Run a stack in a process of its own, and say when all is ready."""

    async def work(tell: Callable[[dict[str, Any]], None]) -> None:
        supervisor = Supervisor(config, logs, single_process=single_process)
        await _until_stopped(
            supervisor,
            lambda: tell({"servers": supervisor.instances(), "head": supervisor.url, "logs": str(supervisor.logs)}),
        )

    told = detached(work)
    typer.echo(servers_table(told["servers"]))
    typer.echo(f"head {told['head']}, logs in {told['logs']}; stop with: polygym env stop")


async def _until_stopped(supervisor: Supervisor, ready: Callable[[], None]) -> bool:
    """Run a stack; whether a signal has ended it."""
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None
    signals = 0

    def interrupt() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            supervisor.kill()  # whoever asks twice gets no grace
        elif supervisor.is_up:
            supervisor.stop_asked.set()
        else:
            running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt)
    try:
        async with supervisor:
            ready()
            await supervisor.stop_asked.wait()
    except asyncio.CancelledError:
        if not signals:
            raise
        running.uncancel()
    return signals > 0
