"""A head and agents on loopback that answer each row as its key `mode` says, and misbehave when told to."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from aiohttp import web

from polygym.rows import Row

FAST = "fast_simple_agent"
OTHER = "other_simple_agent"
RESPONSE = {
    "output": [
        {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call_output", "call_id": "c1", "output": "a tree"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A tree."}]},
    ],
    "usage": {"input_tokens": 7, "output_tokens": 5},
}
SAID = [{"role": "user", "content": "Look."}, {"role": "assistant", "content": "A tree."}]
WHOLE = {
    "messages": SAID,
    "reward": 0.5,
    "rewards": {"exact": 0.5},
    "metrics": {"length": 2.0},
    "cause": None,
    "stop_reason": "answered",
    "truncated": False,
    "turns": 1,
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    "seconds": {"policy": 0.1, "total": 0.2},
    "response": RESPONSE,
}
DOWN = {"class": "server", "message": "the resources server is gone"}

UNASKED = {"class": "timeout", "message": "not tried, as the requests before it found: timeout", "asked": False}


class Stack:
    """What was asked of it is in `asked`; agents in `down` have lost their resources server."""

    def __init__(self) -> None:
        self.asked: list[Row] = []
        self.tries: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.down: set[str] = set()
        self.url = ""

    async def run(self, request: web.Request) -> web.StreamResponse:
        row = await request.json()
        agent = request.match_info["agent"]
        self.asked.append(row)
        mode = row.get("mode", "whole")
        key = f"{row.get('id')}/{row['_ng_rollout_index']}"
        self.tries[key] += 1
        if agent in self.seconds:
            await asyncio.sleep(self.seconds[agent])
        if agent in self.down:
            return web.json_response({**row, **WHOLE, "reward": None, "cause": DOWN, "retry": True})
        if mode == "whole":
            return web.json_response({**row, **WHOLE})
        if mode == "seeded":
            return web.json_response({**row, **WHOLE, "reward": row["_ng_seed"] % 8 / 8})
        if mode == "foreign":
            return web.json_response(
                {**row, "response": RESPONSE, "reward": 1.0, "accuracy": True, "set_overlap": 0.25}
            )
        if mode == "comes_back" and self.tries[key] == 3:
            return web.json_response({**row, **WHOLE})
        if mode in ("comes_back", "stays_down") or (mode == "hangs_later" and self.tries[key] == 1):
            return web.json_response({**row, **WHOLE, "reward": None, "cause": DOWN, "retry": True})
        if mode == "unasked" and self.tries[key] < 6:
            return web.json_response({**row, **WHOLE, "reward": None, "cause": UNASKED, "retry": True})
        if mode == "unasked":
            return web.json_response({**row, **WHOLE})
        if mode == "unscored":
            cause = {"class": "reward", "message": "exact raised KeyError"}
            return web.json_response({**row, **WHOLE, "reward": None, "cause": cause})
        if mode == "no_number":
            cause = {"class": "bad_reward", "message": "reward function 'exact' returned 'good' (str)"}
            return web.json_response({**row, **WHOLE, "reward": None, "cause": cause})
        if mode == "breaks":
            return web.json_response({"error": {"class": "internal", "message": "a bug"}}, status=500)
        if mode == "refuses":
            return web.json_response({"error": {"class": "row", "message": "no such key"}}, status=422)
        if mode == "garbage":
            return web.Response(text="<html>")
        if mode == "word":
            return web.json_response({**row, **WHOLE, "reward": "good"})
        assert mode in ("hangs", "hangs_later")
        await asyncio.sleep(60)
        raise AssertionError

    async def instances(self, request: web.Request) -> web.Response:
        found = [
            {"name": name, "server_type": "responses_api_agents", "url": f"{self.url}/{name}", "status": "ready"}
            for name in (FAST, OTHER, "named_freely")
        ]
        others = {"x": "resources_servers", "policy_model": "responses_api_models"}
        found += [{"name": name, "server_type": kind, "url": self.url} for name, kind in others.items()]
        return web.json_response(found)

    async def alive(self, request: web.Request) -> web.Response:
        return web.json_response({"polygym": True, "model": "toy"})


@asynccontextmanager
async def running() -> AsyncIterator[Stack]:
    """The stack in this event loop."""
    stack = Stack()
    app = web.Application()
    app.add_routes([web.post("/{agent}/run", stack.run), web.get("/server_instances", stack.instances)])
    app.add_routes([web.get("/", stack.alive)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    stack.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield stack
    finally:
        await runner.cleanup()


@contextmanager
def running_beside() -> Iterator[Stack]:
    """The stack on a thread of its own, for collectors in other processes."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = running()
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def row(id: int | str | None, mode: str = "whole", agent: str | None = FAST, **more: Any) -> Row:
    """A row for an agent."""
    named = {} if agent is None else {"agent_ref": {"type": "responses_api_agents", "name": agent}}
    own = {} if id is None else {"id": id}
    return {**own, "mode": mode, "responses_create_params": {"input": "Look."}, **named, **more}
