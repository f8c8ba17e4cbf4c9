"""RemoteSession: one episode whose environment is a resources server's.

The one idea: where the distance shows (a server that cannot be reached, that has lost the session, that fails) the
episode ends with a cause of kind `server`, unscored; everything else is as in process. What can be refused without
asking, such as a tool that is none or arguments that do not fit, is refused here.

It speaks to any resources server of NeMo Gym's wire: `/seed_session`, one `POST /<tool>` a call, `/verify`. Those of
polygym tell more in `/seed_session`: whether they reply in words (`/env_response`), how many turns an episode has,
whether calls may run at the same time, another prompt.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from polygym.environments.http import Answer, Cookies, ServerError
from polygym.environments.session import OUT_OF_TIME, EnvironmentSession, EpisodeFailure
from polygym.environments.tool import check_call, cut_text
from polygym.environments.wire_rows import SEED, TIMEOUT
from polygym.errors import UsageError
from polygym.messages import Message, ToolCall, ToolSpec
from polygym.policies.responses_wire import response_body
from polygym.rewards.rubric import BadRewardError, Score
from polygym.rollout import Cause, Task, Turn
from polygym.rows import Row

if TYPE_CHECKING:
    from polygym.environments.remote import RemoteEnvironment

SESSION_COOKIE = "polygym_session"
CONTROL_ENDPOINTS = (
    "aggregate_metrics",
    "close_session",
    "env_response",
    "metrics",
    "sandbox_access",
    "seed_session",
    "verify",
)
"""Paths of servers that are no tools: a policy that calls one of these names calls an unknown tool."""
BAD_REWARD = "bad_reward"
"""The failure kind of a reward that is no number: the code of the environment has to be mended."""
GRADING_KINDS = ("reward", "grader")
"""Failures of the grading alone: the conversation went well and keeps its stop reason."""
CLOSE_SECONDS = 10.0
_NAME = re.compile(r"[\w-]+", re.ASCII)


class RemoteSession(EnvironmentSession):
    """One episode at a resources server. `verdict` is the whole reply to `/verify`, once there is one.

    Args:
        joined: the `Cookie` header of a session that somebody else has begun and will grade: it is neither seeded nor
            verified nor closed, and its score is empty.
    """

    __slots__ = (
        "_client",
        "_failed",
        "_joined",
        "_open",
        "_reason",
        "_told",
        "_tools",
        "cookies",
        "verdict",
    )

    environment: RemoteEnvironment

    def __init__(self, environment: RemoteEnvironment, task: Task, *, seed: int, joined: str | None = None) -> None:
        super().__init__(environment, task, seed=seed)
        self.cookies = Cookies() if joined is None else Cookies.of(joined)
        self._client = environment.client
        self._joined = joined is not None
        self.verdict: Row | None = None
        self._open = False
        self._failed: Cause | None = None
        self._reason: str | None = None
        self._told: Row = {}
        self._tools: dict[str, ToolSpec] = {}

    @property
    def max_turns(self) -> int:
        """The environment's limit, or the server's where that is lower."""
        own, told = self.environment.max_turns, self._told.get("max_turns")
        if not isinstance(told, int):
            return own
        return min(own, told) if self.environment.limits_turns else told

    async def set_up(self) -> None:
        """Open a session for the task's row."""
        with self._on_environments_time():
            await self._seed()

    async def reply(self) -> bool:
        """The results of the calls, or what the environment says in words."""
        deadline, began = self.state["deadline"], monotonic()
        with self._on_environments_time():
            if self._told.get("env_response"):
                replied = await self._reply_in_words()
            else:
                replied = await self._run_calls(self.messages[-1].tool_calls)
        if deadline is not None and began < deadline <= monotonic():
            self.state[OUT_OF_TIME] = True
        return replied

    async def stopped(self) -> str | None:
        """The stop hook of the server's environment that is true."""
        return self._reason

    async def grade(self, turns: Sequence[Turn]) -> Score:
        """What the server says of the finished response."""
        if self._joined:
            return Score(None)
        started = perf_counter()
        try:
            answer = await self._post("/verify", self.finished_row(turns))
        finally:
            self.grading_seconds += perf_counter() - started
        self.verdict = self._object(answer, "/verify")
        self._open = not self._is_ours  # a server of polygym has ended the session
        score = _score(self.verdict) if self._is_ours else _foreign_score(self.verdict, self.task.info)
        if score.cause is not None and score.cause.kind not in GRADING_KINDS:
            self._failed, score.cause = score.cause, None  # not the grading: the episode failed, as `clean_up` tells
        return score

    async def clean_up(self, timeout_seconds: float | None) -> Cause | None:
        """Close the session where it is still open; returns what went wrong in the server's own episode."""
        if self._open and self._is_ours:
            self._open = False
            seconds = CLOSE_SECONDS if timeout_seconds is None else min(CLOSE_SECONDS, timeout_seconds)
            try:
                await self._client.post("/close_session", {}, cookies=self.cookies, retries=0, seconds=seconds)
            except ServerError:
                return self._failed  # its sessions end by themselves
        return self._failed

    def finished_row(self, turns: Sequence[Turn]) -> Row:
        """The row with the response of the whole episode, as `/verify` is sent it."""
        begin = len(self.prompt)
        replies: list[list[Message]] = []
        for message in self.messages[begin:]:
            if message.role == "assistant":
                replies.append([])
            elif replies:
                replies[-1].append(message)
        response = response_body(
            turns,
            replies,
            model=self.environment.model,
            params=self.task.info["responses_create_params"],
            position=begin,
            token_fields=True,
        )
        return {**self.task.info, SEED: self.state["seed"], "response": response}

    # What is asked of the server.

    @property
    def _is_ours(self) -> bool:
        """Whether the server is one of polygym's, which tell how they are to be asked."""
        return "cuts_text" in self._told

    @contextmanager
    def _on_environments_time(self) -> Iterator[None]:
        started = perf_counter()
        try:
            yield
        finally:
            self.environment_seconds += perf_counter() - started

    async def _seed(self) -> None:
        self._tools = {tool.name: tool for tool in self.tools if _is_path(tool.name)}
        self.state["prompt"] = list(self.task.prompt)
        if not self._joined:
            row = {**self.task.info, SEED: self.state["seed"]}
            if (deadline := self.state["deadline"]) is not None:
                row[TIMEOUT] = max(deadline - monotonic(), 0.001)
            answer = await self._post("/seed_session", row, repeatable=True)
            self._told = self._object(answer, "/seed_session", empty_is_fine=True)
            self._open = True
            if self._told.get("prompt"):
                self.state["prompt"] = self._messages(self._told["prompt"], "/seed_session")
            self._reason = self._told.get("stop_reason")
        self._begin(self.state["prompt"])

    async def _run_calls(self, calls: Sequence[ToolCall]) -> bool:
        if self._told.get("parallel_tool_calls") and len(calls) > 1:
            results = await asyncio.gather(*map(self._call, calls), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            self.messages += [result for result in results if isinstance(result, Message)]
        else:
            for call in calls:
                self.messages.append(await self._call(call))
        return bool(calls)

    async def _reply_in_words(self) -> bool:
        answer = await self._post("/env_response", {"messages": [self.messages[-1].to_dict()]})
        told = self._object(answer, "/env_response")
        messages = self._messages(told.get("messages") or [], "/env_response")
        self.messages += messages
        reason = told.get("stop_reason")
        # `answered` and `max_turns` are for `play` to find, which may have another limit.
        if told.get("done") and reason and reason != "max_turns" and (messages or reason != "answered"):
            self._reason = str(reason)
        return bool(messages)

    async def _call(self, call: ToolCall) -> Message:
        """The result of one call; what can be refused here is never posted."""
        accepted, text = check_call(call, self._tools)
        if accepted is not None:
            answer = await self._post(f"/{call.name}", accepted, text=True)
            text = answer.text if self._is_ours else cut_text(answer.text)
        return Message("tool", text, tool_call_id=call.id or None)

    async def _post(self, path: str, fields: Any, *, repeatable: bool = False, text: bool = False) -> Answer:
        """An answer with status 2xx; where `text` is wanted, whatever the policy may read.

        Raises:
            EpisodeFailure: of kind `server` where the server is at fault, `refused` where it does not want the request,
                or of the kind that it names.
        """
        try:
            answer = await self._client.post(path, fields, cookies=self.cookies, repeatable=repeatable)
        except ServerError as error:
            raise EpisodeFailure("server", str(error)) from error
        status = answer.status
        if 200 <= status < 300 or (text and status not in (502, 503, 504) and not self._is_error(answer)):
            return answer
        kind, words = _error_of(answer)
        where = f"{self._client.url}{path}: status {status}"
        if status == 500 and kind is not None and kind != "internal":
            raise EpisodeFailure(kind, words)  # the environment's own failure, as it was recorded there
        if status >= 500 or status in (408, 410, 425, 429):
            raise EpisodeFailure("server", f"{where}: {words}")
        raise EpisodeFailure("refused", f"{where}: {words}")

    def _is_error(self, answer: Answer) -> bool:
        """Whether the answer to a call is the server's own error, and nothing for the policy to read."""
        return self._is_ours and answer.content_type == "application/json" and _error_of(answer)[0] is not None

    def _object(self, answer: Answer, path: str, *, empty_is_fine: bool = False) -> Row:
        value = answer.json()
        if isinstance(value, dict):
            return value
        if empty_is_fine and not value:
            return {}
        raise EpisodeFailure("server", f"{self._client.url}{path}: no JSON object: {answer.text:.80}")

    def _messages(self, rows: Any, path: str) -> list[Message]:
        try:
            return [Message.from_dict(row) for row in rows]
        except (UsageError, TypeError, KeyError, AttributeError) as error:
            raise EpisodeFailure("server", f"{self._client.url}{path}: no messages: {error}") from error


def _is_path(name: str) -> bool:
    """Whether a tool of this name is a path of its server, and none of the server's own."""
    return _NAME.fullmatch(name) is not None and name not in CONTROL_ENDPOINTS


def _error_of(answer: Answer) -> tuple[str | None, str]:
    """(class, words) of an error of a server of ours; any other has no class."""
    value = answer.json()
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict) and isinstance(error.get("class"), str):
        return error["class"], str(error.get("message", ""))
    return None, " ".join(answer.text[:300].split())


def _score(verdict: Mapping[str, Any]) -> Score:
    """The score in a reply to `/verify` of a server of ours."""
    kind, reason = verdict.get("failure_kind"), verdict.get("failure_reason")
    if kind == BAD_REWARD:
        raise BadRewardError(str(reason))
    score = Score(verdict.get("reward"), verdict.get("rewards") or {}, verdict.get("metrics") or {})
    if score.reward is None:
        score.cause = Cause(str(kind), str(reason))
    return score


def _foreign_score(verdict: Mapping[str, Any], row: Mapping[str, Any]) -> Score:
    """The score in a reply of any other: its own numbers, beside what the row had, are metrics."""
    numbers = {
        name: float(value)
        for name, value in verdict.items()
        if isinstance(value, (int, float)) and name not in row and name not in ("mask_sample", SEED)
    }
    reward = numbers.pop("reward", None)
    rewards = {} if reward is None else {"reward": reward}
    if reward is not None and math.isfinite(reward) and not verdict.get("mask_sample"):
        return Score(reward, dict(rewards), dict(numbers))
    said = verdict.get("failure_reason") or f"the server gave the reward {verdict.get('reward')!r}"
    return Score(None, dict(rewards), dict(numbers), Cause(str(verdict.get("failure_kind") or "server"), str(said)))
