"""The `polygym` command.

The one idea: commands raise, and one place here turns what they raise into a line on standard error and an exit code:
0 done, 1 the infrastructure failed, 2 the user has to change something, 130 interrupted. A traceback is a bug of ours.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

import polygym.cli.data
import polygym.cli.env
import polygym.cli.eval
import polygym.cli.eval_reports
import polygym.cli.model
import polygym.cli.plan
import polygym.cli.rl
import polygym.cli.sft
from polygym.errors import PolygymError, UsageError

INFRASTRUCTURE, USAGE, INTERRUPTED = 1, 2, 130
# libraries that only some commands need, and the extra that brings them
EXTRAS = {
    "torch": "train",
    "transformers": "train",
    "tokenizers": "train",
    "safetensors": "train",
    "peft": "train",
    "gguf": "train",
    "tensorboard": "train",
    "fastapi": "serve",
    "omegaconf": "serve",
    "prometheus_client": "serve",
    "starlette": "serve",
    "uvicorn": "serve",
    "yaml": "serve",
    "datasets": "data",
    "pyarrow": "data",
    "matplotlib": "view",
}

app = typer.Typer(
    name="polygym",
    help="Train one language model on many reinforcement-learning environments at once.",
    epilog="Example: polygym rl run multi_env",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(polygym.cli.env.app, name="env")
app.add_typer(polygym.cli.data.app, name="data")
app.command("plan", epilog="Example: polygym plan multi_env --eval results/nano_metrics.json")(polygym.cli.plan.plan)
polygym.cli.eval_reports.add_to(polygym.cli.eval.app)
app.add_typer(polygym.cli.eval.app, name="eval")
app.add_typer(polygym.cli.sft.app, name="sft")
app.add_typer(polygym.cli.rl.app, name="rl")
app.add_typer(polygym.cli.model.app, name="model")


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"polygym {version('polygym')}")
        raise typer.Exit()


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Train one language model on many reinforcement-learning environments at once."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    try:
        # a scheduler's stop loses nothing too
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        os.environ.setdefault("TQDM_DISABLE", "1")  # other libraries' progress bars would draw over ours
        sys.path.append(os.getcwd())  # `module:function` also finds what lies here
        code = app(args=arguments, prog_name="polygym", standalone_mode=False)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # the reader (`| head`) has left; keep the interpreter from complaining when it flushes
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = INFRASTRUCTURE
    except Exception as error:
        code = INTERRUPTED if _interrupted(error) else _report(error)
    if code == INTERRUPTED:
        typer.echo("interrupted", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C began it: a library that is interrupted while it loads may raise an error of its own instead."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _report(error: Exception) -> int:
    """Print what went wrong and return the exit code; raise it again where nobody but us can act on it."""
    from polygym.text import printable

    code, message = USAGE, str(error)
    if isinstance(error, typer.TyperException):
        code, message = error.exit_code, error.format_message()
        context = getattr(error, "ctx", None)
        if context is not None and message:
            message = f"{message.rstrip('.')}; see: {context.command_path} --help"
    elif isinstance(error, ModuleNotFoundError):
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise error
        message = f"this needs the package {package!r}; install it with: pip install 'polygym[{EXTRAS[package]}]'"
    elif isinstance(error, OSError):
        if error.errno is None:
            raise error
        if error.filename is None:  # a write that failed: the disk is full, say
            code, message = INFRASTRUCTURE, str(error.strerror)
        else:
            message = f"{error.filename}: {error.strerror}"
    elif not isinstance(error, PolygymError):
        raise error
    elif not isinstance(error, UsageError):
        code = INFRASTRUCTURE
    for line in printable(message).splitlines():
        typer.echo(f"error: {line}", err=True)
    return code
