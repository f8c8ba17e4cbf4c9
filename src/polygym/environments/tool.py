"""ToolEnv: the policy calls plain functions until it answers without a call.

The one idea: whatever goes wrong in a call (unknown tool, bad arguments, an exception, no return) goes back to the
policy as text with role "tool", one message for each call in the order of the calls, and the rollout goes on.

A plain function runs in a thread and should not touch what other episodes use; an `async def` runs in the event loop.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from polygym.environments.base import State
from polygym.environments.multi_turn import DEFAULT_MAX_TURNS, MultiTurnEnv
from polygym.environments.tools import STATE, Tool, tools_by_name
from polygym.environments.workers import Overrun, Workers
from polygym.errors import UsageError, nearest
from polygym.messages import Message, ToolCall
from polygym.parsing.arguments import parse_arguments

TOOL_TIMEOUT_SECONDS = 30.0
TOOL_OUTPUT_CHARACTERS = 20_000

_workers = Workers()


class ToolEnv(MultiTurnEnv):
    """An environment whose replies are the results of tools.

    Args:
        tools: functions with type hints and a docstring; one that has a parameter `state` is given the episode's state.
        tool_timeout_seconds: a call that takes longer is given up and says so; None waits for ever.
        tool_output_characters: a longer result is cut there and says so.
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
        super().__init__(dataset, max_turns=max_turns, **arguments)

    async def env_response(self, messages: list[Message], state: State) -> Any:
        """Run the calls of the last message, in order; nothing when there are none."""
        return [await self.run_tool(call, state) for call in messages[-1].tool_calls]

    async def run_tool(self, call: ToolCall, state: State) -> Message:
        """The result of one call as a message of role "tool", whatever happens in it."""
        text, failed = await self._outcome(call, state)
        metrics = state["metrics"]
        metrics["tool_calls"] = metrics.get("tool_calls", 0) + 1
        metrics["tool_errors"] = metrics.get("tool_errors", 0) + failed
        limit = self.tool_output_characters
        if not text.isascii():
            # Half a surrogate pair can be held as text but not written to a file or sent.
            text = text.encode("utf-8", "replace").decode("utf-8")
        if len(text) > limit:
            text = f"{text[:limit]}\n[cut: the first {limit} of {len(text)} characters]"
        return Message("tool", text, tool_call_id=call.id or None)

    async def _outcome(self, call: ToolCall, state: State) -> tuple[str, bool]:
        """(text, whether it is an error)."""
        tool = self._functions.get(call.name)
        if call.error is not None and (tool is not None or call.error != "unknown_tool"):
            return f"Error: this call was not run: {call.error}", True
        if tool is None:
            return f"Error: unknown tool {call.name!r}; {nearest(call.name, self._functions)}", True
        parsed = parse_arguments(call.arguments, tool.spec.parameters)
        if parsed.args is None:
            return f"Error: {call.name}: {parsed.message}", True
        arguments = {**parsed.args, STATE: state} if tool.wants_state else parsed.args
        # Tools are other people's code: what they raise is for the policy to read.
        try:
            return _as_text(await self._run(tool, arguments)), False
        except Overrun:
            return (
                f"Error: {call.name} did not return within {self.tool_timeout_seconds:g} seconds and was given up",
                True,
            )
        except (Exception, SystemExit) as error:
            return f"Error: {call.name} raised {type(error).__name__}: {error}", True

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        limit = self.tool_timeout_seconds
        if not tool.is_async and limit is not None:
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


def _as_text(value: Any) -> str:
    """Text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
