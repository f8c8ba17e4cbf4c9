"""EnvironmentServer: any environment as a resources server.

The one idea: a session of the server is an `EnvironmentSession`, the same object that `play` uses in process. An agent
calls the tools one by one where that is all the environment replies; where it replies in words, or has stop hooks,
`/seed_session` says `env_response: true`, and the agent posts what the policy said to `/env_response`.

Limit: where tools are called one by one, the server learns what the policy said with `/verify` only; a tool that reads
`state["messages"]` or `state["turn"]` sees the beginning of the episode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from polygym.environments.base import Environment
from polygym.environments.remote_session import BAD_REWARD
from polygym.environments.session import EnvironmentSession, EpisodeFailure
from polygym.environments.tool import ToolEnv, check_call
from polygym.environments.wire_rows import seed_of, task_of, timeout_of, without_preamble
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.policies.responses_wire import read_output
from polygym.policies.wire import decoded_call
from polygym.policies.wire_input import read_messages
from polygym.rewards.rubric import BadRewardError
from polygym.rollout import Cause, Turn
from polygym.serve.app import HttpError
from polygym.serve.resources import ResourcesServer, ToolReply, Verdict
from polygym.serve.sessions import Session

CLEANUP_SECONDS = 60.0
CALL = "function_call"  # type of an item of a response


class EnvironmentServer(ResourcesServer):
    """Serves one environment.

    Args:
        environment: a leaf; the environments of a group are served one by one.
        name: default the environment's.
        options: those of `ResourcesServer`.
    """

    seed_first = True

    def __init__(self, environment: Environment, *, name: str | None = None, **options: Any) -> None:
        leaves = environment.leaves()
        if leaves.get(environment.name) is not environment:
            raise UsageError(
                f"environment {environment.name!r} is a group; serve its environments one by one: {', '.join(leaves)}"
            )
        self.environment = environment
        self._specs = {spec.name: spec for spec in environment.tools}
        self._by_call = (
            isinstance(environment, ToolEnv)
            and type(environment).env_response is ToolEnv.env_response
            and not environment.stops
        )
        self._says_nothing = type(environment).env_response is Environment.env_response and not environment.stops
        sets_up = type(environment).setup_state is not Environment.setup_state
        self._keeps_state = isinstance(environment, ToolEnv) and (
            environment.tools_want_state or (sets_up and not self._by_call)
        )
        parallel = environment.parallel_tool_calls
        super().__init__(name or environment.name, parallel_tool_calls=parallel, **options)

    def find_tools(self) -> dict[str, Any]:
        """The tools that are called one by one."""
        return dict(self._specs) if self._by_call else {}

    async def open(self, row: dict[str, Any]) -> tuple[Session, Mapping[str, Any]]:
        """Set up an episode of the row's task."""
        session = self._sessions.open(None)  # where there is no place, nothing is set up
        try:
            session.data, told = await self._set_up(row)
        except BaseException:
            self._sessions.close(session.id)
            raise
        return session, told

    async def run_tool(self, name: str, arguments: Any, session: Session) -> ToolReply:
        """The text that the policy would read in process; status 422 where nothing was run."""
        environment, episode = self.environment, session.data
        assert isinstance(environment, ToolEnv)
        call = decoded_call(name, arguments.decode("utf-8", "replace"), "")
        errors = episode.state["metrics"].get("tool_errors", 0)
        message = await environment.run_tool(call, episode.state)
        refused = episode.state["metrics"].get("tool_errors", 0) > errors and check_call(call, self._specs)[0] is None
        return ToolReply(message.content, 422 if refused else 200)

    async def reply(self, body: dict[str, Any], session: Session) -> dict[str, Any]:
        """What the environment says to the policy's new messages, and whether the episode is over."""
        episode: EnvironmentSession = session.data
        for message in _read_messages(body.get("messages")):
            if message.role == "assistant":
                episode.answered(message)
            else:
                episode.messages.append(message)
        known = len(episode.messages)
        try:
            replied = await episode.reply()
            reason = await episode.stopped()
        except EpisodeFailure as failure:
            raise HttpError(500, failure.cause.kind, failure.cause.message) from failure
        if reason is None:
            reason = "answered" if not replied else "max_turns" if _turns(episode) >= episode.max_turns else None
        return {
            "messages": [message.to_dict() for message in episode.messages[known:]],
            "done": reason is not None,
            "stop_reason": reason,
        }

    async def judge(self, row: dict[str, Any], session: Session) -> Verdict:
        """The rubric's score of the response, after the cleanup hooks."""
        episode: EnvironmentSession = session.data
        turns = self._hear(row, episode)
        try:
            score = await episode.grade(turns)
            verdict = Verdict(score.reward, score.rewards, score.metrics, score.cause)
        except EpisodeFailure as failure:
            verdict = Verdict(None, metrics=dict(episode.metrics), cause=failure.cause)
        except BadRewardError as error:
            verdict = Verdict(None, metrics=dict(episode.metrics), cause=Cause(BAD_REWARD, str(error)))
        cause = await self._close(session)
        if cause is not None:
            verdict.reward, verdict.cause = None, verdict.cause or cause
        return verdict

    def without_session(self, row: dict[str, Any]) -> Cause | None:
        """What calls have changed is in their session: without it, an environment that keeps state sees nothing."""
        response = row.get("response")
        output = response.get("output") if isinstance(response, Mapping) else None
        if not self._keeps_state or not isinstance(output, list):
            return None
        called = [item.get("name") for item in output if isinstance(item, Mapping) and item.get("type") == CALL]
        if not any(isinstance(name, str) and name in self._specs for name in called):
            return None
        return Cause(
            "no_session", "the response has calls of this server's tools, and came without their session's cookie"
        )

    async def _close(self, session: Session) -> Cause | None:
        episode: EnvironmentSession | None = session.data  # None while it is being set up
        return await episode.clean_up(CLEANUP_SECONDS) if episode is not None else None

    async def _set_up(self, row: dict[str, Any]) -> tuple[EnvironmentSession, dict[str, Any]]:
        """An episode, and what the agent is told of it."""
        environment = self.environment
        task = task_of(row, environment.name)
        prompt = list(task.prompt)
        task = replace(task, prompt=tuple(without_preamble(prompt, environment.preamble)))
        episode = EnvironmentSession(environment, task, seed=seed_of(row, task), prompt=list(prompt))
        if (seconds := timeout_of(row)) is not None:
            episode.state["deadline"] = monotonic() + seconds
        try:
            await episode.set_up()
            reason = await episode.stopped()
        except EpisodeFailure as failure:
            await episode.clean_up(CLEANUP_SECONDS)
            raise HttpError(500, failure.cause.kind, failure.cause.message) from failure
        told: dict[str, Any] = {
            "env_response": not self._by_call and not self._says_nothing,
            "max_turns": episode.max_turns,
        }
        if episode.messages != prompt:
            told["prompt"] = [message.to_dict() for message in episode.messages]
        if reason is not None:
            told["stop_reason"] = reason
        return episode, told

    def _hear(self, row: dict[str, Any], episode: EnvironmentSession) -> list[Turn]:
        """The policy's turns, with the episode's conversation as the response has it.

        A conversation that went through `/env_response` is known here already, to the letter.
        """
        response = row.get("response")
        output = response.get("output") if isinstance(response, Mapping) else None
        if not isinstance(output, Sequence) or isinstance(output, str):
            raise HttpError(422, "invalid_request", "/verify needs the row and its `response`, an object with `output`")
        said = read_output(output)
        if _turns(episode) < sum(message.role == "assistant" for message in said):
            episode.messages[:] = [*episode.prompt, *said]
            episode.state["turn"] = sum(message.role == "assistant" for message in said)
            self._count_refused(said, episode)
        heard = episode.messages[len(episode.prompt) :]
        return [Turn(message) for message in heard if message.role == "assistant"]

    def _count_refused(self, said: list[Message], episode: EnvironmentSession) -> None:
        """Calls that were answered and never came here were refused by the agent: they count as they do in process."""
        metrics = episode.state["metrics"]
        refused = sum(message.role == "tool" for message in said) - metrics.get("tool_calls", 0)
        if self._by_call and refused > 0:
            metrics["tool_calls"] = metrics.get("tool_calls", 0) + refused
            metrics["tool_errors"] = metrics.get("tool_errors", 0) + refused


def _turns(episode: EnvironmentSession) -> int:
    return int(episode.state["turn"])


def _read_messages(rows: Any) -> list[Message]:
    """Messages in the form of rollout files, or with calls as OpenAI's chat wire writes them."""
    if not isinstance(rows, list) or not rows:
        raise HttpError(422, "invalid_request", "messages must be a list of what the policy said since the last reply")
    messages: list[Message] = []
    for index, row in enumerate(rows):
        calls = row.get("tool_calls") if isinstance(row, Mapping) else None
        if isinstance(calls, list) and all(isinstance(call, Mapping) and "name" in call for call in calls):
            messages.append(Message.from_dict(row))
        else:
            messages += read_messages([row], f"messages[{index}]")[0]
    return messages
