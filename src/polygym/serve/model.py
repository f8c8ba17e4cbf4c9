"""ModelServer: a policy behind the wire of OpenAI's chat completions and responses.

The one idea: any policy can be served, and a served policy answers as it does in process: the same request, seed
included, gives the same turn, with the token ids and log-probabilities that were sampled where they are asked for. A
conversation that brings the token fields of its last answer is continued from those ids, never encoded again.

Limits: one model; it keeps no conversations. Text is streamed while it is written where
the policy can tell it early, as a local model can; an endpoint's answer is streamed when it is complete.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request as HttpRequest
from starlette.responses import Response, StreamingResponse

from polygym.environments.wire_rows import MODELS
from polygym.errors import PolicyError, UsageError
from polygym.policies.base import Policy, Request, Sampling
from polygym.policies.openai import OpenAIPolicy
from polygym.policies.responses_wire import output_items, response_body
from polygym.rollout import Turn
from polygym.serve.app import HttpError, create_app, json_response, read_object
from polygym.serve.hang_up import until_hung_up
from polygym.serve.model_errors import ApiError, bad_request, context_overflow, failed_policy, unknown_model
from polygym.serve.model_requests import Asked, RequestReader
from polygym.serve.sse import MEDIA_TYPE, ChatStream, EventStream, ResponseStream, error_event

_log = logging.getLogger(__name__)

TokenTexts = Callable[[Sequence[int]], list[str]]
STREAM_HEADERS = {"Cache-Control": "no-cache"}


class ModelServer:
    """Serves `policy`.

    Args:
        name: what the server is called, and the model where the policy has no name of its own.
        return_token_ids: whether answers carry token ids and log-probabilities where a request does not say.
        sampling: what holds where a request does not say; default `Sampling()`.
        token: what a request must bring; without one, only this machine may ask.
        answers_to: names of models that a request may give beside those of the server and the policy; None: any, as
            rows for a stack may name the model that they were made with.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str,
        return_token_ids: bool = False,
        sampling: Sampling | None = None,
        token: str | None = None,
        answers_to: Collection[str] | None = None,
    ) -> None:
        self.policy = policy
        self.name = name
        self.token = token
        self.model = getattr(policy, "name", "") or name
        self._names = None if answers_to is None else {"", name, self.model, *answers_to}
        self.wants_task = bool(policy.wants_task)
        self.reader = RequestReader(
            sampling or Sampling(),
            token_ids=return_token_ids,
            wants_task=self.wants_task,
            forwards=isinstance(policy, OpenAIPolicy),
        )
        self._started = int(time.time())

    def app(self) -> FastAPI:
        """The application."""

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> AsyncIterator[None]:
            yield
            await self.policy.close()

        about = {"wants_task": self.wants_task, "model": self.model}
        app = create_app(self.name, MODELS, token=self.token, about=about, lifespan=lifespan)
        app.add_route("/v1/chat/completions", _route(self._chat), methods=["POST"])
        app.add_route("/v1/responses", _route(self._responses), methods=["POST"])
        app.add_route("/v1/models", self._list, methods=["GET"])
        app.add_route("/v1/models/{model:path}", self._retrieve, methods=["GET"])
        return app

    async def _list(self, request: HttpRequest) -> Response:
        return json_response({"object": "list", "data": [self._about()]})

    async def _retrieve(self, request: HttpRequest) -> Response:
        name = request.path_params["model"]
        if name not in (self._names or {self.name, self.model}):
            return unknown_model(name, self.model).response()
        return json_response(self._about())

    def _about(self) -> dict[str, Any]:
        return {"id": self.model, "object": "model", "created": self._started, "owned_by": "polygym"}

    def _check_model(self, body: Mapping[str, Any]) -> None:
        name = body.get("model")
        if name is not None and self._names is not None and name not in self._names:
            raise unknown_model(name, self.model)

    async def _chat(self, body: dict[str, Any]) -> Response:
        self._check_model(body)
        asked = self.reader.chat(body)
        head = {"id": f"chatcmpl-{secrets.token_hex(16)}", "created": int(time.time()), "model": self.model}

        def answer(turns: list[Turn]) -> dict[str, Any]:
            choices = [_choice(index, turn, asked, self._texts(asked)) for index, turn in enumerate(turns)]
            row = {**head, "object": "chat.completion", "choices": choices, "usage": _usage(turns)}
            return {**row, "prompt_token_ids": turns[0].prompt_token_ids} if asked.token_ids else row

        if asked.stream:
            return await self._streamed(asked, answer, ChatStream(head, asked.include_usage))
        return json_response(answer(await self._turns(asked)))

    async def _responses(self, body: dict[str, Any]) -> Response:
        self._check_model(body)
        asked = self.reader.responses(body)
        base = secrets.token_hex(16)
        fixed: dict[str, Any] = {
            "model": self.model,
            "params": body,
            "response_id": f"resp_{base}",
            "created_at": time.time(),
        }

        def answer(turns: list[Turn]) -> dict[str, Any]:
            position = len(asked.request.messages)
            row = response_body(turns, position=position, token_fields=asked.token_ids, **fixed)
            if asked.logprobs:
                for part in (item["content"][0] for item in row["output"] if item["type"] == "message"):
                    part["logprobs"] = _logprobs(turns[0], self._texts(asked))
            return row

        if asked.stream:
            begun = {**response_body([], **fixed), "status": "in_progress", "usage": None}
            return await self._streamed(asked, answer, ResponseStream(begun, f"msg_{base}_0"))
        return json_response(answer(await self._turns(asked)))

    async def _streamed(
        self, asked: Asked, answer: Callable[[list[Turn]], dict[str, Any]], stream: EventStream
    ) -> Response:
        """The answer as events. It begins with the first text, so that what fails before has a status of its own."""
        texts: asyncio.Queue[str | None] = asyncio.Queue()
        if asked.choices == 1:
            asked = replace(asked, request=replace(asked.request, on_text=texts.put_nowait))
        task = asyncio.ensure_future(self._turns(asked))
        task.add_done_callback(lambda _: texts.put_nowait(None))
        try:
            text = await texts.get()
        except asyncio.CancelledError:
            task.cancel()
            raise
        if text is None:
            return Response(stream.end(answer(task.result())), headers=STREAM_HEADERS, media_type=MEDIA_TYPE)

        async def events(text: str | None) -> AsyncIterator[bytes]:
            try:
                while text is not None:
                    if sent := stream.more(text):
                        yield sent
                    text = await texts.get()
                yield stream.end(answer(task.result()))
            except Exception as error:  # the status is sent; what is wrong follows
                yield error_event(_as_api_error(error).body())
            finally:
                task.cancel()

        return StreamingResponse(events(text), headers=STREAM_HEADERS, media_type=MEDIA_TYPE)

    async def _turns(self, asked: Asked) -> list[Turn]:
        """One turn for each choice.

        Raises:
            ApiError: when there is none.
        """
        tasks = [asyncio.ensure_future(self._complete(request)) for request in asked.requests()]
        try:
            turns = list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
        for turn in turns:
            if turn.finish_reason == "context":
                raise context_overflow(turn.usage.prompt_tokens)
            if asked.token_ids and None in (turn.prompt_token_ids, turn.token_ids, turn.logprobs):
                raise bad_request(
                    f"model {self.model!r} does not tell token ids and log-probabilities", "return_token_ids"
                )
            if asked.logprobs and turn.logprobs is None:
                raise bad_request(f"model {self.model!r} does not tell log-probabilities", "logprobs")
        return turns

    def _texts(self, asked: Asked) -> TokenTexts | None:
        """What tells the texts of tokens; None where ids were asked for, or the policy knows nothing else."""
        return None if asked.tokens_as_ids else getattr(self.policy, "token_texts", None)

    async def _complete(self, request: Request) -> Turn:
        try:
            return await self.policy.complete(request)
        except PolicyError as error:
            if error.asked:
                _log.warning("%s", error)
            raise failed_policy(error) from error


# ------------------------------------------------------------------------------------------------------------- answers


def _choice(index: int, turn: Turn, asked: Asked, texts: TokenTexts | None) -> dict[str, Any]:
    """A turn as one choice of a chat completion."""
    message = turn.message
    calls = [
        {
            "id": item["call_id"],
            "type": "function",
            "function": {"name": item["name"], "arguments": item["arguments"]},
            **({"error": item["error"]} if "error" in item else {}),
        }
        for item in output_items(turn, position=len(asked.request.messages))
        if item["type"] == "function_call"
    ]
    row: dict[str, Any] = {"role": "assistant", "content": message.content or (None if calls else ""), "refusal": None}
    if message.reasoning:
        row["reasoning_content"] = message.reasoning
    if calls:
        row["tool_calls"] = calls
    finish_reason = "length" if turn.finish_reason == "length" else "tool_calls" if calls else "stop"
    choice = {"index": index, "message": row, "finish_reason": finish_reason, "logprobs": None}
    if asked.logprobs:
        choice["logprobs"] = {"content": _logprobs(turn, texts), "refusal": None}
    if asked.token_ids:
        choice["token_ids"] = turn.token_ids
        row["prompt_token_ids"] = turn.prompt_token_ids
        row["generation_token_ids"] = turn.token_ids
        row["generation_log_probs"] = turn.logprobs
    return choice


def _logprobs(turn: Turn, texts: TokenTexts | None) -> list[dict[str, Any]]:
    """Every token that was sampled, those of calls and reasoning too; a part of a character has no bytes here."""
    ids = turn.token_ids or ()
    told = texts(ids) if texts is not None else [f"token_id:{token}" for token in ids]
    return [
        {
            "token": text,
            "logprob": logprob,
            "bytes": None if texts is None or "\ufffd" in text else list(text.encode()),
            "top_logprobs": [],
        }
        for text, logprob in zip(told, turn.logprobs or (), strict=True)
    ]


def _usage(turns: Sequence[Turn]) -> dict[str, int]:
    read, written = turns[0].usage.prompt_tokens, sum(turn.usage.completion_tokens for turn in turns)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


# -------------------------------------------------------------------------------------------------------------- routes


def _route(answer: Callable[[dict[str, Any]], Coroutine[Any, Any, Response]]) -> Callable[..., Awaitable[Response]]:
    """A handler whose errors are OpenAI's, and whose work ends when its client has left."""

    async def handle(request: HttpRequest) -> Response:
        try:
            body = await read_object(request)
            async with until_hung_up(request):
                return await answer(body)
        except Exception as error:  # a policy is other people's code
            return _as_api_error(error).response()

    return handle


def _as_api_error(error: Exception) -> ApiError:
    """What a client is told of any error; the log gets the traceback of one that nobody expected."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, UsageError):
        return bad_request(str(error))
    if isinstance(error, HttpError):
        return ApiError(error.status, str(error), code=error.kind)
    _log.error("a request failed", exc_info=error)
    return ApiError(500, f"{type(error).__name__}: {error}", code="internal")
