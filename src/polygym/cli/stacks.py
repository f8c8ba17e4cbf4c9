"""Running a stack of servers from the command line: in the foreground, or in the background.

The one idea: a stack runs until it is told to stop, by Ctrl-C, SIGTERM or `polygym env stop`; all three end it in the
same way. Whoever presses Ctrl-C interrupts a command (exit code 130); the others stop a service (0).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from polygym.serve.config import HEAD_PORT, StackConfig
from polygym.serve.detach import detached
from polygym.serve.supervisor import LOG, Supervisor
from polygym.view.servers import ServersDisplay, servers_table


def keep_up(config: StackConfig, logs: Path | None, single_process: bool) -> None:
    """Run a stack here, with a live table.

    Raises:
        KeyboardInterrupt: when Ctrl-C has ended it.
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

        signals = asyncio.run(_until_stopped(supervisor, ready))
    if signal.SIGINT in signals:
        raise KeyboardInterrupt
    typer.echo("stopped", err=True)


def keep_up_detached(config: StackConfig, logs: Path | None, single_process: bool) -> None:
    """Run a stack in a process of its own, and say when all is ready."""

    async def work(tell: Callable[[dict[str, Any]], None]) -> None:
        supervisor = Supervisor(config, logs, single_process=single_process)
        await _until_stopped(
            supervisor,
            lambda: tell(
                {
                    "servers": supervisor.instances(),
                    "head": supervisor.url,
                    "port": supervisor.port,
                    "logs": str(supervisor.logs),
                    "log": str(supervisor.logs / LOG),
                }
            ),
        )

    told = detached(work)
    typer.echo(servers_table(told["servers"]))
    which = "" if told["port"] == HEAD_PORT else f" --head-port {told['port']}"
    typer.echo(f"head {told['head']}, logs in {told['logs']}; stop with: polygym env stop{which}")


async def _until_stopped(supervisor: Supervisor, ready: Callable[[], None]) -> list[int]:
    """Run a stack; the signals that have come meanwhile."""
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None
    signals: list[int] = []

    def interrupt(number: int) -> None:
        signals.append(number)
        if len(signals) > 1:
            supervisor.kill()  # whoever asks twice gets no grace
        elif supervisor.is_up:
            supervisor.stop_asked.set()
        else:
            running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupt, number)
    try:
        async with supervisor:
            ready()
            await supervisor.stop_asked.wait()
    except asyncio.CancelledError:
        if not signals:
            raise
        running.uncancel()
    return signals
