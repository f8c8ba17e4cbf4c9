"""Agent servers as a collection sees them: found through the head, asked for one rollout a row.

The one idea: asking always ends in a reply or in a cause. Tries that may help are made here, and here alone: a row that
servers fail while others go well is tried three times, and a server that fails them all is waited for by all together
(`polygym.collect.patience`), because one that has crashed is started again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from polygym.collect.patience import Patience
from polygym.environments.http import Answer, HttpClient, ServerError
from polygym.environments.wire_rows import AGENTS, MODELS, TIMEOUT
from polygym.errors import PolicyError, UsageError
from polygym.policies.backoff import backoff_seconds
from polygym.rollout import Cause

HEAD_PORT = 11000
HEAD_SECONDS = 10.0
TRIES = 3
"""How often a rollout is begun that servers fail."""
BUSY_TRIES = 10
"""How often where the model's endpoint refuses because it has too much to do."""
LASTING = frozenset({"server", "endpoint"})
"""Causes that the next rollout would meet too."""
BUSY = "rate_limited"
MORE_SECONDS = 5.0
"""How much longer an agent is waited for that can be reached: it looks at dead servers only now and then."""
UNAVAILABLE = 503
MARGIN_FRACTION, LONGEST_MARGIN_SECONDS = 0.05, 2.0
"""How much less time an agent is given than there is, so that it can still say what took so long."""
ENDLESS_SECONDS = 365 * 24 * 3600.0  # of a request; rollouts are given up by their own deadline


@dataclass(slots=True)
class Reply:
    """What an agent made of a row: its reply, or why there is none.

    `retry` says that another try may help, `dead` that the agent is not waited for any more, and `tries` how many
    were made that count.
    """

    body: Mapping[str, Any] | None
    cause: Cause | None = None
    retry: bool = False
    dead: bool = False
    tries: int = 0


class Agent:
    """An agent server.

    Args:
        name: as rows name it.
        url: its address.
        token: the stack's, where it has one.
    """

    def __init__(self, name: str, url: str, *, token: str | None = None) -> None:
        self.name = name
        self.patience = Patience(name)
        self._client = HttpClient(url, token=token)

    async def run(self, row: Mapping[str, Any], timeout_seconds: float | None = None) -> Reply:
        """One rollout of the row, with as many tries as may help.

        The agent is told how long the rollout may take, all tries together; to end it then is the caller's business. A
        cancellation carries away what the last try found.
        """
        known: list[Cause] = []
        try:
            return await self._run(row, timeout_seconds, known)
        except asyncio.CancelledError as cancelled:
            if known:
                cancelled.add_note(known[-1].message)
            raise

    async def _run(self, row: Mapping[str, Any], timeout_seconds: float | None, known: list[Cause]) -> Reply:
        """As `run`; what each try found goes to `known`."""
        patience = self.patience
        tries, first_began = 0, time.monotonic()
        margin = min(LONGEST_MARGIN_SECONDS, MARGIN_FRACTION * (timeout_seconds or 0.0))
        while await patience.admit(tries):
            began = time.monotonic()
            if timeout_seconds is not None:
                left = first_began + timeout_seconds - began
                row = {**row, TIMEOUT: max(left - margin, left / 2)}
            try:
                reply, reached = await self._try(row)
            except BaseException:
                patience.broken_off()
                raise
            if reply.cause is not None:
                known.append(reply.cause)
            asked = reply.cause is None or reply.cause.asked
            tries += asked  # a rollout whose model was not asked has not been tried
            kind = reply.cause.kind if reply.cause is not None else ""
            if not reply.retry:
                patience.worked()
            elif reply.cause is not None and (kind in LASTING or not asked):
                patience.failed(began, reply.cause, MORE_SECONDS if reached else 0.0)
            else:
                patience.broken_off()
            # Where the agent plays other rows, it is this row that fails; else the agent is waited for.
            late = timeout_seconds is not None and time.monotonic() > first_began + timeout_seconds - 2 * margin
            alone = not patience.is_failing or patience.worked_at >= first_began
            if not reply.retry or late or (alone and tries >= (BUSY_TRIES if kind == BUSY else TRIES)):
                reply.tries = tries
                return reply
            if not patience.is_failing:
                await asyncio.sleep(backoff_seconds(tries))
        words = f"{self.name} has failed for {patience.failing_seconds:.0f} s: {patience.cause.message}"
        words += "" if tries else "; this rollout was not begun"
        return Reply(None, Cause(patience.cause.kind, words), retry=True, dead=True, tries=tries)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _try(self, row: Mapping[str, Any]) -> tuple[Reply, bool]:
        """One try, and whether the agent itself was reached."""
        try:
            answer = await self._client.post("/run", row, retries=0, seconds=ENDLESS_SECONDS)
        except ServerError as error:
            return Reply(None, Cause("server", str(error)), retry=True), False
        if answer.status == UNAVAILABLE:
            return Reply(None, Cause("server", f"{self.name} is not available (503)"), retry=True), False
        return self._read(answer), True

    def _read(self, answer: Answer) -> Reply:
        body = answer.json()
        if answer.status == 200 and isinstance(body, Mapping):
            cause = body.get("cause")
            kind = cause.get("class") if isinstance(cause, Mapping) else body.get("failure_kind")
            told = cause.get("message") if isinstance(cause, Mapping) else body.get("failure_reason")
            retry = body.get("retry") is True
            asked = not (isinstance(cause, Mapping) and cause.get("asked") is False)
            return Reply(body, Cause(str(kind or "server"), str(told or ""), asked) if retry else None, retry=retry)
        words = f"{self.name} answered {answer.status}: {error_text(body):.500}"
        if answer.status == 200 or answer.status >= 500:
            return Reply(None, Cause("server", words), retry=True)
        return Reply(None, Cause("refused", words))


class Agents:
    """The agents of a running stack by name, and the names of its models. An async context manager.

    Args:
        head_url: address of its head.
        token: of the stack, where it has one.

    Raises:
        UsageError: on entering, when no head answers there, or it tells of no agents.
    """

    def __init__(self, head_url: str, *, token: str | None = None) -> None:
        self.head_url = head_url
        self.token = token
        self._open = AsyncExitStack()
        self.by_name: dict[str, Agent] = {}
        self.models: list[str] = []

    async def __aenter__(self) -> Self:
        try:
            answer = await self._get(self.head_url, "/server_instances")
        except ServerError as error:
            raise UsageError(
                f"no head server answers at {self.head_url}: start servers with `polygym env start`, or give its port "
                "with --head-port"
            ) from error
        if answer.status in (401, 403):
            raise UsageError(f"the head at {self.head_url} wants the token of its stack; set POLYGYM_TOKEN")
        found = answer.json()
        if answer.status != 200 or not isinstance(found, list):
            raise PolicyError(f"{self.head_url}/server_instances answered {answer.status}: {error_text(found):.200}")
        for instance in found:
            if not isinstance(instance, Mapping) or not instance.get("url"):
                continue
            name, url = str(instance.get("name")), str(instance["url"])
            if instance.get("server_type") == AGENTS:
                self.by_name[name] = agent = Agent(name, url, token=self.token)
                self._open.push_async_callback(agent.close)
            elif instance.get("server_type") == MODELS:
                self.models.append(await self._model(name, url))
        if not self.by_name:
            raise UsageError(f"the stack at {self.head_url} has no agent servers; start one with --resources-server ID")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def _model(self, name: str, url: str) -> str:
        """The model behind a model server, which ours tell; else the server's name."""
        try:
            told = (await self._get(url, "/")).json()
        except ServerError:
            return name
        return str(told.get("model") or name) if isinstance(told, Mapping) else name

    async def _get(self, url: str, path: str) -> Answer:
        client = HttpClient(url, token=self.token)
        try:
            return await client.get(path, retries=0, seconds=HEAD_SECONDS)
        finally:
            await client.close()


def error_text(body: Any) -> str:
    """The message of an error body, or the body."""
    error = body.get("error", body.get("detail", body)) if isinstance(body, Mapping) else body
    return str(error.get("message", error) if isinstance(error, Mapping) else error)
