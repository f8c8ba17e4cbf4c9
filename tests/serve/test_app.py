"""What every server has: liveness, metrics, errors, and who may ask."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import aiohttp
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from polygym.errors import UsageError
from polygym.serve.app import HttpError, create_app, encode_json, json_response, read_object
from serve.serving import served


def small(**options: Any) -> FastAPI:
    app = create_app("small", "resources_servers", about={"wants_task": True}, **options)

    async def echo(request: Request) -> Response:
        return json_response({"got": await read_object(request)})

    async def fail(request: Request) -> Response:
        kind = (await read_object(request))["kind"]
        raise {"user": UsageError("no such thing"), "http": HttpError(410, "gone", "left", {"Retry-After": "3"})}.get(
            kind, RuntimeError("secret-free words")
        )

    app.add_route("/echo", echo, methods=["POST"])
    app.add_route("/fail", fail, methods=["POST"])
    return app


def ask(app: FastAPI, *requests: tuple[str, str, dict[str, Any]]) -> list[tuple[int, Any, Any]]:
    """(status, headers, JSON or text) of each request."""

    async def main(url: str) -> list[tuple[int, Any, Any]]:
        answers = []
        async with aiohttp.ClientSession() as session:
            for method, path, options in requests:
                async with session.request(method, url + path, **options) as response:
                    is_json = response.content_type == "application/json"
                    answers.append(
                        (response.status, response.headers, await (response.json() if is_json else response.text()))
                    )
        return answers

    with served(app) as url:
        return asyncio.run(main(url))


def test_a_server_says_that_it_lives_and_counts_what_it_did() -> None:
    alive, _, _, missing, _, metrics = ask(
        small(),
        ("GET", "/", {}),
        ("POST", "/echo", {"json": {"a": 1}}),
        ("POST", "/echo", {"data": b"{"}),
        ("POST", "/nowhere/at/all", {}),
        ("GET", "/echo", {}),
        ("GET", "/metrics", {}),
    )
    assert alive[2] == {
        "polygym": True, "name": "small", "kind": "resources_servers", "status": "ok", "wants_task": True,
    }  # fmt: skip
    assert (missing[0], missing[2]["error"]["class"]) == (404, "not_found")
    lines = metrics[2].splitlines()
    assert 'polygym_requests_total{path="/echo",status="200"} 1.0' in lines
    assert 'polygym_requests_total{path="/echo",status="400"} 1.0' in lines
    assert 'polygym_requests_total{path="/echo",status="405"} 1.0' in lines
    assert 'polygym_requests_total{path="other",status="404"} 1.0' in lines
    assert 'polygym_request_seconds_count{path="/echo"} 3.0' in lines


def test_errors_are_a_class_and_a_message_without_a_traceback() -> None:
    user, http, bug, no_json, no_object = ask(
        small(),
        ("POST", "/fail", {"json": {"kind": "user"}}),
        ("POST", "/fail", {"json": {"kind": "http"}}),
        ("POST", "/fail", {"json": {"kind": "bug"}}),
        ("POST", "/echo", {"data": b'{"a": '}),
        ("POST", "/echo", {"json": [1]}),
    )
    assert (user[0], user[2]) == (422, {"error": {"class": "invalid_request", "message": "no such thing"}})
    assert (http[0], http[1]["Retry-After"], http[2]["error"]["class"]) == (410, "3", "gone")
    assert (bug[0], bug[2]) == (500, {"error": {"class": "internal", "message": "RuntimeError: secret-free words"}})
    assert (no_json[0], no_json[2]["error"]["class"]) == (400, "invalid_json")
    assert (no_object[0], no_object[2]["error"]["class"]) == (422, "invalid_body")


def test_a_server_with_a_token_answers_who_brings_it_and_others_only_that_it_lives() -> None:
    good = {"Authorization": "Bearer s3cret", "Host": "machine.example"}
    results = ask(
        small(token="s3cret"),
        ("GET", "/", {}),
        ("POST", "/echo", {"json": {}}),
        ("POST", "/echo", {"json": {}, "headers": {"Authorization": "Bearer other"}}),
        ("GET", "/metrics", {}),
        ("POST", "/echo", {"json": {}, "headers": good}),
    )
    assert [status for status, _, _ in results] == [200, 401, 401, 401, 200]
    assert "s3cret" not in str(results[1][2])


def test_a_server_without_a_token_answers_this_machine_only() -> None:
    def status(**headers: str) -> tuple[str, str, dict[str, Any]]:
        return ("POST", "/echo", {"json": {}, "headers": headers})

    results = ask(
        small(),
        status(Host="localhost:1234"),
        status(Host="[::1]:80"),
        status(Host="evil.example"),
        status(Host="127.0.0.1.evil.example"),
        status(Origin="http://evil.example"),
        status(Origin="null"),
        status(Origin="http://localhost:3000"),
    )
    assert [status for status, _, _ in results] == [200, 200, 403, 403, 403, 403, 200]


def test_a_body_over_the_limit_is_refused_with_and_without_its_length() -> None:
    async def pieces() -> Any:
        for _ in range(100):
            yield b" " * 100

    told, untold, fits = ask(
        small(max_body_bytes=5000),
        ("POST", "/echo", {"data": b" " * 5001}),
        ("POST", "/echo", {"data": pieces()}),
        ("POST", "/echo", {"data": b'{"a": 1}' + b" " * 4900}),
    )
    assert (told[0], untold[0], fits[0]) == (413, 413, 200)


def test_numbers_and_texts_that_json_can_hardly_hold_come_through() -> None:
    big = 10**30
    text = ask(small(), ("POST", "/echo", {"data": f'{{"big": {big}, "float": 1.5}}'.encode()}))[0][2]
    assert text == {"got": {"big": big, "float": 1.5}}
    assert (
        encode_json({"a": float("nan"), "b": big, "c": "\ud800"})
        == (f'{{"a":null,"b":{big},"c":"{chr(0xFFFD) * 3}"}}').encode()
    )


def test_a_request_that_is_no_http_is_refused_and_the_server_goes_on() -> None:
    with served(small()) as url:
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as raw:
            raw.sendall(b"\x00\x01 nonsense\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400")

        async def alive() -> int:
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                return response.status

        assert asyncio.run(alive()) == 200
