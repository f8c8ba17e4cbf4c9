"""`polygym model`: the models that come with the package or one command away."""

from __future__ import annotations

from typing import Annotated

import typer

from polygym.cli.values import print_json

app = typer.Typer(help="Models: list them, fetch one.", rich_markup_mode=None)

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
