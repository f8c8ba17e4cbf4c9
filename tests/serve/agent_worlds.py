"""Servers for the tests of the agent, each started as a process of its own: `python -m serve.agent_worlds NAME FD`.

The scripted model says what the user's message tells it to, so that a row is a whole story:
`script([call("add", a=1, b=2)], ["3"])` is a row's input whose model calls a tool and then says "3".
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from polygym.environments import State, ToolEnv
from polygym.rewards.rubric import Rubric

MEGABYTE = 1 << 20


# ------------------------------------------------------------------------------------------------- what a model writes


def call(name: str, /, **arguments: Any) -> dict[str, str]:
    """A call of a tool."""
    return {"call": name, "arguments": json.dumps(arguments)}


def bad_call(name: str, arguments: str) -> dict[str, str]:
    """A call whose arguments are written as they stand."""
    return {"call": name, "arguments": arguments}


def think(text: str) -> dict[str, str]:
    """Reasoning."""
    return {"think": text}


def script(*turns: list[Any]) -> str:
    """The user's message that makes the scripted model say `turns`; the last is repeated for ever."""
    return json.dumps({"turns": turns})


# ----------------------------------------------------------------------------------------- a model server in NeMo style

_KNOWN_FIELDS = {"input", "tools", "max_output_tokens", "temperature", "top_p", "parallel_tool_calls", "model"}


def scripted_model() -> Starlette:
    """A model server that knows `POST /v1/responses` alone, and refuses fields it does not know with status 422."""

    async def responses(request: Request) -> Response:
        body = await request.json()
        if unknown := set(body) - _KNOWN_FIELDS:
            return JSONResponse({"detail": [{"type": "extra_forbidden", "loc": ["body", *unknown]}]}, 422)
        items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        output = _turn(items)
        return JSONResponse(
            {
                "id": "resp_1",
                "object": "response",
                "created_at": 0.0,
                "model": "scripted",
                "output": output,
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": body.get("tools", []),
                "incomplete_details": None,
                "usage": {
                    "input_tokens": 10,
                    "output_tokens": 5,
                    "total_tokens": 15,
                    "input_tokens_details": {"cached_tokens": 0},
                    "output_tokens_details": {"reasoning_tokens": 0},
                },
            }
        )

    return Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])


def _turn(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = next(item["content"] for item in items if item.get("role") == "user")
    turns = json.loads(text if isinstance(text, str) else text[0]["text"])["turns"]
    said = sum(item.get("type") in ("function_call", "reasoning") or item.get("role") == "assistant" for item in items)
    number = 0
    while number < len(turns) - 1 and said >= len(turns[number]) > 0:
        said -= len(turns[number])
        number += 1
    return [_item(item, f"{number}_{place}") for place, item in enumerate(turns[number])]


def _item(item: Any, ending: str) -> dict[str, Any]:
    if isinstance(item, str):
        content = [{"type": "output_text", "text": item, "annotations": []}]
        return {
            "id": f"msg_{ending}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
    if "think" in item:
        return {"id": f"rs_{ending}", "type": "reasoning", "summary": [{"type": "summary_text", "text": item["think"]}]}
    return {
        "id": f"fc_{ending}",
        "type": "function_call",
        "call_id": f"call_{ending}",
        "name": item["call"],
        "arguments": item["arguments"],
        "status": "completed",
    }


def empty_model() -> Starlette:
    """A model endpoint whose answers are empty, without a token written."""

    async def responses(request: Request) -> Response:
        return JSONResponse({"id": "resp_1", "object": "response", "output": [], "usage": None})

    return Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])


def limited_model() -> Starlette:
    """A model endpoint that is always overloaded and asks to come back in an hour."""

    async def responses(request: Request) -> Response:
        return JSONResponse({"error": {"message": "too many requests"}}, 429, {"Retry-After": "3600"})

    return Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])


def briefly_limited_model() -> Starlette:
    """The scripted model, which refuses each first try of a minute with status 429 and asks for a short wait."""
    model = scripted_model()
    refused: list[None] = []

    async def responses(request: Request) -> Response:
        if not refused:
            refused.append(None)
            return JSONResponse({"error": {"message": "too many requests"}}, 429, {"Retry-After": "0.2"})
        answer: Response = await model.routes[0].endpoint(request)  # type: ignore[attr-defined]
        return answer

    return Starlette(routes=[Route("/v1/responses", responses, methods=["POST"])])


# ------------------------------------------------------------------------------------- a resources server in NeMo style


def neutral_resources() -> Starlette:
    """A counter a session, kept by a cookie; nothing but the published wire: no key and no endpoint of ours.

    A call with arguments that do not fit is answered with status 422 and validation errors, one that fails with 500.
    """
    counters: dict[str, int] = {}

    async def seed_session(request: Request) -> Response:
        session = os.urandom(8).hex()
        counters[session] = (await request.json()).get("start", 0)
        reply = JSONResponse({})
        reply.set_cookie("session", session)
        return reply

    async def increment(request: Request) -> Response:
        arguments = await request.json()
        if not isinstance(arguments.get("by"), int):
            return JSONResponse({"detail": [{"type": "int_type", "loc": ["body", "by"], "msg": "no integer"}]}, 422)
        counters[request.cookies["session"]] += arguments["by"]
        return JSONResponse({"count": counters[request.cookies["session"]]})

    async def explode(request: Request) -> Response:
        return PlainTextResponse("Internal Server Error", 500)

    async def flood(request: Request) -> Response:
        return JSONResponse("x" * (10 * MEGABYTE))

    async def verify(request: Request) -> Response:
        body = await request.json()
        count = counters[request.cookies["session"]]
        said = [item for item in body["response"]["output"] if item["type"] == "message"]
        return JSONResponse({**body, "reward": float(count == body["expected"]), "count": count, "said": len(said)})

    async def aggregate_metrics(request: Request) -> Response:
        rows = (await request.json())["verify_responses"]
        return JSONResponse({"group_level_metrics": [], "agent_metrics": {"rows": len(rows)}, "key_metrics": {}})

    endpoints = [seed_session, increment, explode, flood, verify, aggregate_metrics]
    return Starlette(routes=[Route(f"/{endpoint.__name__}", endpoint, methods=["POST"]) for endpoint in endpoints])


# ------------------------------------------------------------------------------------------------- environments of ours


def add(a: int, b: int, state: State) -> int:
    """Add two numbers.

    Args:
        a: one
        b: another
    """
    state["sums"] = state.get("sums", 0) + 1
    return a + b


def fail() -> str:
    """Fails always."""
    raise ValueError("the tool is out of order")


def flood() -> str:
    """Returns 10 MB."""
    return "x" * (10 * MEGABYTE)


async def nap(seconds: float) -> str:
    """Sleep.

    Args:
        seconds: how long
    """
    await asyncio.sleep(seconds)
    return "rested"


def die() -> str:
    """Takes its whole server down, as a kernel does that runs out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def right_sum(completion: str, answer: str) -> bool:
    """The last line is the answer."""
    return completion.splitlines()[-1:] == [answer]


def sums_made(state: State) -> float:
    """How often the session's `add` was called."""
    return float(state.get("sums", 0))


class Tools(ToolEnv):
    """The tools above; the reward is 1 for the answer on the last line."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(
            [{"question": "1 + 1?", "answer": "2"}, {"question": "1 + 2?", "answer": "3"}],
            tools=[add, fail, flood, nap, die],
            rubric=Rubric([right_sum, sums_made], [1.0, 0.0]),
            name="tools",
            **arguments,
        )


def tools() -> Any:
    """The tools as a resources server."""
    from polygym.serve.environment_server import EnvironmentServer

    return EnvironmentServer(Tools()).app()


def parallel_tools() -> Any:
    """The tools as a resources server that lets calls of one turn run at the same time."""
    from polygym.serve.environment_server import EnvironmentServer

    return EnvironmentServer(Tools(parallel_tool_calls=True)).app()


def agent(resources_url: str, model_url: str, settings: str = "{}") -> Any:
    """An agent between two servers."""
    from polygym.serve.agent import AgentServer

    return AgentServer("agent", resources_url, model_url, environment="tools", **json.loads(settings)).app()


def main() -> None:
    """Serve the app of that name on the listening socket that was handed over."""
    name, handle, *arguments = sys.argv[1:]
    app = globals()[name](*arguments)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1))
    server.run(sockets=[socket.socket(fileno=int(handle))])


if __name__ == "__main__":
    main()
