"""ModelServer: a policy behind the wire of OpenAI's chat completions and responses.

The one idea: any policy can be served, and a served policy answers as it does in process: the same request, seed
included, gives the same turn, with the token ids and log-probabilities that were sampled where they are asked for. A
conversation that brings the token fields of its last answer is continued from those ids, never encoded again.

Limits: one model, whatever name a request gives; it keeps no conversations. An answer is streamed when it is complete.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
from fastapi import FastAPI
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from polygym.errors import PolicyError, UsageError
from polygym.policies.base import Policy, Request, Sampling
from polygym.policies.openai import OpenAIPolicy
from polygym.policies.responses_wire import output_items, response_body
from polygym.rollout import Turn
from polygym.serve.app import HttpError, create_app, encode_json, read_object
from polygym.serve.hang_up import until_hung_up
from polygym.serve.model_errors import ApiError, bad_request, context_overflow, failed_policy
from polygym.serve.model_requests import Asked, RequestReader
from polygym.serve.sse import MEDIA_TYPE, chat_chunks, response_events

KIND = "responses_api_models"
LOG = logging.getLogger("polygym.serve")


class ModelServer:
    """Serves `policy`.

    Args:
        name: what the server is called, and the model where the policy has no name of its own.
        return_token_ids: whether answers carry token ids and log-probabilities where a request does not say.
        sampling: what holds where a request does not say; default `Sampling()`.
        token: what a request must bring; without one, only this machine may ask.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str,
        return_token_ids: bool = False,
        sampling: Sampling | None = None,
        token: str | None = None,
    ) -> None:
        self.policy = policy
        self.name = name
        self.token = token
        self.model = getattr(policy, "name", "") or name
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
        app = create_app(self.name, KIND, token=self.token, about=about, lifespan=lifespan)
        app.add_route("/v1/chat/completions", _route(self._chat), methods=["POST"])
        app.add_route("/v1/responses", _route(self._responses), methods=["POST"])
        app.add_route("/v1/models", self._models, methods=["GET"])
        return app

    async def _models(self, request: HttpRequest) -> Response:
        model = {"id": self.model, "object": "model", "created": self._started, "owned_by": "polygym"}
        return Response(orjson.dumps({"object": "list", "data": [model]}), media_type="application/json")

    async def _chat(self, body: dict[str, Any]) -> Response:
        asked = self.reader.chat(body)
        turns = await self._turns(asked)
        answer = {
            "id": f"chatcmpl-{secrets.token_hex(16)}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [_choice(index, turn, asked) for index, turn in enumerate(turns)],
            "usage": _usage(turns),
        }
        if asked.token_ids:
            answer["prompt_token_ids"] = turns[0].prompt_token_ids
        return _answer(answer, asked.stream, lambda: chat_chunks(answer, asked.include_usage))

    async def _responses(self, body: dict[str, Any]) -> Response:
        asked = self.reader.responses(body)
        turns = await self._turns(asked)
        position = len(asked.request.messages)
        answer = response_body(turns, model=self.model, params=body, position=position, token_fields=asked.token_ids)
        return _answer(answer, asked.stream, lambda: response_events(answer))

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

    async def _complete(self, request: Request) -> Turn:
        try:
            return await self.policy.complete(request)
        except PolicyError as error:
            raise failed_policy(error) from error


# ------------------------------------------------------------------------------------------------------------- answers


def _choice(index: int, turn: Turn, asked: Asked) -> dict[str, Any]:
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
        choice["logprobs"] = {"content": _logprobs(turn), "refusal": None}
    if asked.token_ids:
        choice["token_ids"] = turn.token_ids
        row["prompt_token_ids"] = turn.prompt_token_ids
        row["generation_token_ids"] = turn.token_ids
        row["generation_log_probs"] = turn.logprobs
    return choice


def _logprobs(turn: Turn) -> list[dict[str, Any]]:
    pairs = zip(turn.token_ids or (), turn.logprobs or (), strict=True)
    return [
        {"token": f"token_id:{token}", "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in pairs
    ]


def _usage(turns: Sequence[Turn]) -> dict[str, int]:
    read, written = turns[0].usage.prompt_tokens, sum(turn.usage.completion_tokens for turn in turns)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _answer(body: dict[str, Any], stream: bool, events: Callable[[], bytes]) -> Response:
    if stream:
        return Response(events(), headers={"Cache-Control": "no-cache"}, media_type=MEDIA_TYPE)
    return Response(encode_json(body), media_type="application/json")


# -------------------------------------------------------------------------------------------------------------- routes


def _route(answer: Callable[[dict[str, Any]], Coroutine[Any, Any, Response]]) -> Callable[..., Awaitable[Response]]:
    """A handler whose errors are OpenAI's, and whose work ends when its client has left."""

    async def handle(request: HttpRequest) -> Response:
        try:
            body = await read_object(request)
            async with until_hung_up(request):
                return await answer(body)
        except ApiError as error:
            return error.response()
        except UsageError as error:
            return bad_request(str(error)).response()
        except HttpError as error:
            return ApiError(error.status, str(error), code=error.kind).response()
        except Exception as error:  # a policy is other people's code
            LOG.exception("%s failed", request.url.path)
            return ApiError(500, f"{type(error).__name__}: {error}", code="internal").response()

    return handle
