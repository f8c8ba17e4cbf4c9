"""A policy behind a model server (`POST {url}/v1/responses`), ours or one of NeMo Gym.

The one idea: what only our servers understand is sent to our servers only. `GET {url}/` tells: a server that says
`"polygym": true` is sent seeds and stop texts, one that also says `"wants_task": true` the task; others get nothing but
the published fields. What such a server relays of its own endpoint keeps its class. Token ids that came with the last
turn go back with it, so that a server can go on from exactly what was sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from polygym.policies.asking import EMPTY_SAMPLE, Asker, check_whole
from polygym.policies.base import Request
from polygym.policies.endpoint import Endpoint, encode, http_address
from polygym.policies.outcomes import Action, Outcome, turn_of
from polygym.policies.responses_wire import classify_response, input_items, tool_items
from polygym.rollout import Task, Turn

PATH = "/v1/responses"

_OURS = ("seed", "stop", "task")
"""Fields that only our own servers understand."""
_RELAYED: dict[str, tuple[Action, str]] = {
    "refused": ("fail", "refused"),
    "oracle": ("fail", "refused"),
    "endpoint": ("retry", "server_error"),
    "timeout": ("retry", "timeout"),
    "rate_limited": ("retry", "rate_limited"),
    "empty_response": ("retry", "empty_response"),
    EMPTY_SAMPLE: ("fail", EMPTY_SAMPLE),
}
"""What an error of our servers means whose code is the kind of a `PolicyError`: action and reason."""
_cookies: ContextVar[dict[str, str] | None] = ContextVar("cookies of the episode under way", default=None)


class ResponsesPolicy:
    """A model at a model server.

    Args:
        url: address of the server.
        model: name to send; default none, for servers that have one model.
        token: sent as bearer token.
        concurrency: requests under way at the same time; more wait here, and their deadline has not begun.
        retries: further tries after a failure that may pass by itself.
        deadline_seconds: longest time from the first try to an answer or an error, waits included.
        timeout_seconds: longest time of one try.

    A request's `extra` fields are sent as they are. Cookies that a server sets during an episode are sent back to it
    until the episode's end.

    Raises:
        UsageError: when an argument is out of range.
    """

    version = 0
    wants_task = True  # for servers that want it; it is sent to no other

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        token: str | None = None,
        concurrency: int = 1024,
        retries: int = 6,
        deadline_seconds: float = 600.0,
        timeout_seconds: float = 600.0,
    ) -> None:
        check_whole("concurrency", concurrency, 1)
        address = http_address(url, "give the token as token=...").removesuffix(PATH).removesuffix("/v1")
        self.name = model or address
        self.model = model
        self.endpoint = Endpoint(address, concurrency, path=PATH, key=lambda: token, classify=classify_response)
        self.asker = Asker(
            f"model server {self.name if self.name == address else f'{self.name} at {address}'}",
            self.endpoint,
            retries=retries,
            deadline_seconds=deadline_seconds,
            timeout_seconds=timeout_seconds,
            limit_key="max_output_tokens",
            hint=self._hint,
        )
        self._facts: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"ResponsesPolicy({self.endpoint.address!r})"

    @contextmanager
    def episode(self) -> Iterator[None]:
        """Held while an episode is under way: its cookies are its own."""
        before = _cookies.set({})
        try:
            yield
        finally:
            _cookies.reset(before)

    async def complete(self, request: Request) -> Turn:
        """Ask the server once, with as many tries as it takes within the limits.

        Raises:
            PolicyError: of kind `endpoint`, `timeout`, `rate_limited`, `empty_response` or `refused`.
        """
        outcome, answer = await self.asker.ask(self._send, self._fields(request))
        return turn_of(outcome, answer, request.tools, len(request.messages))

    async def close(self) -> None:
        """Close this event loop's connections. Those of other loops close with their loops."""
        await self.endpoint.close()

    def _fields(self, request: Request) -> dict[str, Any]:
        sampling = request.sampling
        fields: dict[str, Any] = {
            **request.extra,
            "input": input_items(request.messages, request.previous),
            "max_output_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed,
            "stop": list(sampling.stop),
            "task": request.task,
        }
        fields.pop("stream", None)  # the answer is read as a whole
        if self.model is not None:
            fields["model"] = self.model
        if request.tools:
            fields["tools"] = tool_items(request.tools)
        return fields

    async def _send(self, fields: dict[str, Any], seconds: float) -> tuple[Outcome, Any]:
        """One try."""
        if self._facts is None:
            outcome, facts = await self.endpoint.get("/", seconds)
            if outcome.action == "retry":
                return outcome, None
            self._facts = facts if outcome.action == "continue" and isinstance(facts, Mapping) else {}
            if self._facts.get("polygym") is True and "name" in self._facts:
                self.asker.who = f"model server {self._facts['name']} at {self.endpoint.address}"
        ours = self._facts.get("polygym") is True
        sent = {name: value for name, value in fields.items() if name not in _OURS}
        if ours:
            sent["seed"] = fields["seed"]
            if fields["stop"]:
                sent["stop"] = fields["stop"]
            if fields["task"] is not None and self._facts.get("wants_task") is True:
                sent["task"] = _task_field(fields["task"])
        elif fields["stop"]:
            return Outcome(
                "fail", "bad_request", "the Responses API has no stop texts, and the server is not ours"
            ), None
        outcome, answer = await self.endpoint.post(encode(sent), seconds, _cookies.get())
        if ours and outcome.reason == "empty_response" and outcome.sample is not None:
            # Our servers send no answer that the policy did not give.
            outcome = replace(outcome, action="continue")
        return _relayed(outcome, answer) if ours else outcome, answer

    def _hint(self, outcome: Outcome) -> str:
        if outcome.reason == "auth_error":
            return f"; the server wants a token, and {'another' if self.endpoint.has_key else 'none'} was given"
        if outcome.reason == "not_found":
            return f"; check that a model server is at this address, one that has POST {PATH}"
        return ""


def _relayed(outcome: Outcome, answer: Any) -> Outcome:
    """An outcome that is an error of our server, as what its policy has found; any other as it is."""
    error = answer.get("error") if outcome.status is not None and isinstance(answer, Mapping) else None
    code = error.get("code") if isinstance(error, Mapping) else None
    if not isinstance(error, Mapping) or not isinstance(code, str) or code not in _RELAYED:
        return outcome
    action, reason = _RELAYED[code]
    return replace(outcome, action=action, reason=reason, detail=str(error.get("message")), relayed=True)


def _task_field(task: Task) -> dict[str, Any]:
    """The task as its row, which is the info of a task that came as one."""
    if "responses_create_params" in task.info:
        row = task.info
    else:
        params = {"input": input_items(task.prompt)}
        row = {"id": task.id, "answer": task.answer, **task.info, "responses_create_params": params}
    return {"environment": task.environment, "row": row}
