"""`polygym model`: the models that come with the package or one command away, and serving one."""

from __future__ import annotations

from typing import Annotated

import typer

from polygym.cli.values import print_json
from polygym.errors import UsageError

app = typer.Typer(help="Models: list them, fetch one, serve one.", rich_markup_mode=None)

LOOPBACK = "127.0.0.1"
MODELS = {
    "nano": "shipped: a Llama of about a million parameters, warm-started on the recipes; runs anywhere",
    "smollm2-135m": "SmolLM2-135M-Instruct; 93 MB to fetch once: polygym model fetch smollm2-135m",
    "oracle": "no model: plays each task's demonstration, where the environment has one",
}


@app.command("list", epilog="Example: polygym model list")
def list_models(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Models with a short name. A folder, a Hugging Face id, a URL or an endpoint's model works too."""
    if as_json:
        print_json([{"name": name, "description": text} for name, text in MODELS.items()])
        return
    width = max(map(len, MODELS))
    for name, text in MODELS.items():
        typer.echo(f"{name:{width}}  {text}")


@app.command("fetch", epilog="Example: polygym model fetch smollm2-135m")
def fetch(
    name: Annotated[str, typer.Argument(help="A model that can be fetched: smollm2-135m.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Download a model once and keep it for later runs."""
    from polygym.policies.fetch import fetch_model

    path = fetch_model(name)
    if as_json:
        print_json({"name": name, "path": str(path)})
    else:
        typer.echo(f"{name} is at {path}")


@app.command("serve", epilog="Example: polygym model serve nano --port 8000")
def serve(
    model: Annotated[str, typer.Argument(help="A short name, a folder, a Hugging Face id, or the URL of an endpoint.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own needs a token.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="POLYGYM_TOKEN", show_envvar=True, help="What requests must bring; others can read a command line."
        ),
    ] = None,
    token_ids: Annotated[
        bool, typer.Option("--token-ids", help="Return token ids and log-probabilities without being asked.")
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option("-t", "--max-tokens", help="Tokens of an answer where a request does not say.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device of a local model, such as cpu or cuda.")] = None,
    dtype: Annotated[str | None, typer.Option(help="Type of its weights: float32, bfloat16 or float16.")] = None,
) -> None:
    """Serve a model over the OpenAI wire: chat completions, responses, streaming, tools, token ids on request."""
    from polygym.policies.base import Sampling
    from polygym.serve.catalog import POLICY_MODEL
    from polygym.serve.masking import hide_arguments
    from polygym.serve.model import ModelServer
    from polygym.serve.model_kinds import serve_policy
    from polygym.serve.run import run_app
    from polygym.serve.sockets import bind, is_loopback, url_of

    hide_arguments(token)
    if not token and not is_loopback(host):
        raise UsageError(
            f"--host {host} lets other machines in, so requests must bring a token: set POLYGYM_TOKEN, or give --token"
        )
    sampling = Sampling() if max_tokens is None else Sampling(max_tokens=max_tokens)
    with bind(host, port, "polygym model serve") as listening:
        policy = serve_policy(model, device=device, dtype=dtype)
        server = ModelServer(
            policy,
            name=model,
            return_token_ids=token_ids,
            sampling=sampling,
            token=token or None,
            answers_to=[POLICY_MODEL],
        )
        run_app(server.app(), listening, lambda: _announce(model, f"{url_of(listening)}/v1", bool(token)))


def _announce(model: str, url: str, needs_token: bool) -> None:
    bearer = ' -H "Authorization: Bearer $POLYGYM_TOKEN"' if needs_token else ""
    lines = [f"{model} answers at {url} (chat/completions, responses, models); Ctrl-C stops it"]
    if model != "oracle":
        body = '{"messages": [{"role": "user", "content": "What is 2 + 3?"}]}'
        lines += [
            "",
            f"  curl {url}/chat/completions{bearer} -H 'Content-Type: application/json' \\",
            f"    -d '{body}'",
        ]
    typer.echo("\n".join(lines))
