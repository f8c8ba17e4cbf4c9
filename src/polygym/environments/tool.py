"""ToolEnv: the policy calls plain functions until it answers without a call.

The one idea: whatever goes wrong in a call (unknown tool, bad arguments, an exception, no return) goes back to the
policy as text with role "tool", one message for each call in the order of the calls, and the rollout goes on. What can
be refused without running anything is refused by `check_call`, here and where the tools are those of a server.

A plain function runs in a thread and should not touch what other episodes use; an `async def` runs in the event loop.

A call waits no longer than the rollout has time (`state["deadline"]`). One that used it up says so to the policy, sets
`state["out_of_time"]`, and the calls after it are not run: the rollout is judged as it stands.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from polygym.environments.base import State
from polygym.environments.multi_turn import DEFAULT_MAX_TURNS, MultiTurnEnv
from polygym.environments.session import OUT_OF_TIME
from polygym.environments.tools import STATE, Tool, tools_by_name
from polygym.environments.workers import Overrun, Workers
from polygym.errors import UsageError, nearest
from polygym.messages import Message, ToolCall, ToolSpec
from polygym.parsing.arguments import parse_arguments

TOOL_TIMEOUT_SECONDS = 30.0
TOOL_OUTPUT_CHARACTERS = 20_000

_workers = Workers()


class ToolEnv(MultiTurnEnv):
    """An environment whose replies are the results of tools.

    Args:
        tools: functions with type hints and a docstring; one that has a parameter `state` is given the episode's state.
        tool_timeout_seconds: a call that takes longer is given up and says so; None waits for ever, and runs plain
            functions in place.
        tool_output_characters: a longer result is cut there and says so.
        parallel_tool_calls: whether the calls of one turn may run at the same time, where they are independent. Their
            results keep the order of the calls.
        max_turns, and all others: as in `Environment`.

    The record's metrics get `tool_calls` and `tool_errors`.
    """

    def __init__(
        self,
        dataset: Any = None,
        *,
        tools: Sequence[Callable[..., Any]] = (),
        tool_timeout_seconds: float | None = TOOL_TIMEOUT_SECONDS,
        tool_output_characters: int = TOOL_OUTPUT_CHARACTERS,
        parallel_tool_calls: bool = False,
        max_turns: int = DEFAULT_MAX_TURNS,
        **arguments: Any,
    ) -> None:
        if tool_timeout_seconds is not None and not tool_timeout_seconds > 0:
            raise UsageError(f"tool_timeout_seconds={tool_timeout_seconds!r} must be above 0, or None to wait for ever")
        if tool_output_characters < 1:
            raise UsageError(f"tool_output_characters={tool_output_characters!r} must be at least 1")
        self._functions = tools_by_name(tools)
        if not self._functions:
            raise UsageError(f"{type(self).__name__} has no tools; give tools=[functions], or use SingleTurnEnv")
        self.tools = tuple(tool.spec for tool in self._functions.values())
        self.tool_timeout_seconds = tool_timeout_seconds
        self.tool_output_characters = tool_output_characters
        self.parallel_tool_calls = parallel_tool_calls
        self.tools_want_state = any(tool.wants_state for tool in self._functions.values())
        self._specs = {spec.name: spec for spec in self.tools}
        super().__init__(dataset, max_turns=max_turns, **arguments)

    async def env_response(self, messages: list[Message], state: State) -> Any:
        """Run the calls of the last message; nothing when there are none."""
        calls = messages[-1].tool_calls
        if self.parallel_tool_calls and len(calls) > 1:
            return await asyncio.gather(*(self.run_tool(call, state) for call in calls))
        return [await self.run_tool(call, state) for call in calls]

    async def run_tool(self, call: ToolCall, state: State) -> Message:
        """The result of one call as a message of role "tool", whatever happens in it."""
        text, failed = await self._outcome(call, state)
        metrics = state["metrics"]
        metrics["tool_calls"] = metrics.get("tool_calls", 0) + 1
        metrics["tool_errors"] = metrics.get("tool_errors", 0) + failed
        text = cut_text(text, self.tool_output_characters)
        return Message("tool", text, tool_call_id=call.id or None)

    async def _outcome(self, call: ToolCall, state: State) -> tuple[str, bool]:
        """(text, whether it is an error)."""
        accepted, refusal = check_call(call, self._specs)
        if accepted is None:
            return refusal, True
        tool = self._functions[call.name]
        arguments = {**accepted, STATE: state} if tool.wants_state else accepted
        limit, is_last = self._seconds(state)
        if state.get(OUT_OF_TIME):
            return f"Error: {call.name} was not run: the time of the rollout is used up", True
        # Tools are other people's code: what they raise is for the policy to read.
        try:
            return _as_text(await self._run(tool, arguments, limit)), False
        except Overrun:
            text = f"Error: {call.name} did not return within {round(limit or 0, 2):g} seconds and was given up"
            if not is_last:
                return text, True
            state[OUT_OF_TIME] = True
            return f"{text}; the time of the rollout is used up", True
        except BaseException as error:
            if not is_own(error):
                raise
            return f"Error: {call.name} raised {type(error).__name__}: {error}", True

    def _seconds(self, state: State) -> tuple[float | None, bool]:
        """How long a call may take, and whether that is the rest of the rollout's time.

        Where none is left, it was not a tool that used it up: nothing is cut for that.
        """
        limit, deadline = self.tool_timeout_seconds, state.get("deadline")
        left = 0.0 if deadline is None else deadline - time.monotonic()
        return (left, True) if left > 0 and (limit is None or left < limit) else (limit, False)

    async def _run(self, tool: Tool, arguments: dict[str, Any], limit: float | None) -> Any:
        if not tool.is_async and self.tool_timeout_seconds is not None and limit is not None:
            returned = await _workers.call(tool.function, arguments, limit)
        else:
            returned = tool.function(**arguments)
        if not hasattr(returned, "__await__"):
            return returned
        try:
            async with asyncio.timeout(limit) as deadline:
                return await returned
        except TimeoutError:
            # A TimeoutError of the tool's own is an exception like any other.
            if deadline.expired():
                raise Overrun from None
            raise


def check_call(call: ToolCall, tools: Mapping[str, ToolSpec]) -> tuple[dict[str, Any] | None, str]:
    """The arguments of a call that may run, else None and what the policy is told instead."""
    spec = tools.get(call.name)
    if call.error is not None and (spec is not None or call.error != "unknown_tool"):
        return None, f"Error: this call was not run: {call.error}"
    if spec is None:
        return None, f"Error: unknown tool {call.name!r}; {nearest(call.name, tools)}"
    parsed = parse_arguments(call.arguments, spec.parameters)
    if parsed.args is None:
        return None, f"Error: {call.name}: {parsed.message}"
    return parsed.args, ""


def is_own(error: BaseException) -> bool:
    """Whether a tool has raised this itself: a `CancelledError` may also be the end of the rollout.

    Ctrl-C cancels the task that collects or serves; a `KeyboardInterrupt` in a task that goes on is the tool's.
    """
    if isinstance(error, Exception | SystemExit):
        return True
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError | KeyboardInterrupt) and not (task and task.cancelling())


def cut_text(text: str, limit: int = TOOL_OUTPUT_CHARACTERS) -> str:
    """The output of a tool as a policy reads it: no longer than `limit`, and nothing that no file can hold.

    >>> cut_text("four", 3)
    'fou\\n[cut: the first 3 of 4 characters]'
    """
    if not text.isascii():
        # Half a surrogate pair can be held as text but not written to a file or sent.
        text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else f"{text[:limit]}\n[cut: the first {limit} of {len(text)} characters]"


def _as_text(value: Any) -> str:
    """Text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
