"""`polygym eval run --input ROWS`: rows played through servers, which run already or are started for it.

The one idea: rows say who plays them, so they also say what has to be started: the environments of their agents, and
one model.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polygym.cli.values import refuse

if TYPE_CHECKING:
    from polygym.collect.inputs import InputRows
    from polygym.collect.per_environment import Counts
    from polygym.collect.progress import Progress
    from polygym.collect.results import Results
    from polygym.collect.resume import Resume
    from polygym.serve.config import StackConfig


@dataclass(frozen=True, slots=True)
class Servers:
    """What the command line says of the servers that play the rows."""

    no_serve: bool
    head_port: int | None
    configs: Sequence[Path]
    model_type: str | None
    model: str | None
    model_url: str | None
    model_api_key: str | None = field(repr=False)

    def options(self) -> dict[str, Any]:
        """What was given, by the options' names."""
        return {"--no-serve": self.no_serve, "--head-port": self.head_port, **self._of_start()}

    def check(self) -> None:
        """Refuse what says something of servers to be started when none are to be.

        Raises:
            UsageError: names the options.
        """
        if self.no_serve:
            refuse({**self._of_start(), "--model": self.model}, "with --no-serve")

    def _of_start(self) -> dict[str, Any]:
        return {
            "--config": self.configs,
            "--model-type": self.model_type,
            "--model-url": self.model_url,
            "--model-api-key": self.model_api_key,
        }

    def config(self, agents: Sequence[str]) -> StackConfig:
        """The stack that has these agents.

        Raises:
            UsageError: for what is wrong or missing.
        """
        from polygym.serve.catalog import environments_of
        from polygym.serve.config import PolicyValues, load_config

        model_type = self.model_type
        model = self.model
        if model_type is None and not self.configs:
            model_type = self._model_type()
            if model_type == "local_model":
                model = model or "nano"
        return load_config(
            self.configs,
            resources_servers=() if self.configs else environments_of(agents),
            model_type=model_type,
            policy=PolicyValues(self.model_url, self.model_api_key, None if model == "oracle" else model),
            head_port=0 if self.head_port is None else self.head_port,
        )

    def _model_type(self) -> str:
        """The kind of model server that --model and --model-url mean."""
        from polygym.policies.load import is_local

        if self.model == "oracle":
            return "oracle_model"
        here = self.model_url is None and (self.model is None or is_local(self.model))
        return "local_model" if here else "openai_model"


def evaluate_input(
    path: Path,
    servers: Servers,
    *,
    agent: str | None,
    limit: int | None,
    num_repeats: Counts,
    params: Mapping[str, Any],
    concurrency: Counts | None,
    seed: int,
    timeout: float | None,
    progress: Progress,
    output: Path | None,
    overwrite: bool,
    resume: Resume,
) -> Results:
    """Play the rows of a file, the first `limit` of them; the other arguments are those of `evaluate_rows`."""
    import asyncio

    from polygym.collect.evaluate import DEFAULT_TIMEOUT_SECONDS
    from polygym.collect.inputs import InputRows
    from polygym.collect.served import check_params, evaluate_rows
    from polygym.collect.store import EvaluationFiles
    from polygym.serve.masking import hide_arguments

    hide_arguments(servers.model_api_key)
    servers.check()
    check_params(params)
    if output is not None:  # refused before servers are started
        EvaluationFiles(output, overwrite=overwrite, resume=bool(resume), reads=path)
    rows = InputRows.read(path, agent=agent, limit=limit)

    async def work() -> Results:
        stack = _running(servers.head_port) if servers.no_serve else _started(servers, rows, progress.message)
        async with stack as (head_url, token):
            return await evaluate_rows(
                rows,
                head_url,
                token=token,
                rollouts_per_example=num_repeats,
                params=params,
                concurrency=concurrency,
                seed=seed,
                timeout=DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout,
                progress=progress,
                output=output,
                overwrite=overwrite,
                resume=resume,
                keep_rollouts=False,
            )

    return asyncio.run(work())


def metrics_tables(results: Results) -> str:
    """A table of each environment's reward functions, metrics and lengths: means over its rollouts."""
    from polygym.tables import number, plain_table

    tables = []
    for name, found in results.environments.items():
        means = {f"reward/{function}": value for function, value in found.rewards.items()} | found.metrics
        means |= {"turns": found.turns_mean, "completion tokens": found.completion_tokens_mean}
        tables.append(plain_table([name, "mean"], [(metric, number(value)) for metric, value in means.items()]))
    return "\n\n".join(tables)


@asynccontextmanager
async def _running(port: int | None) -> AsyncIterator[tuple[str, str | None]]:
    """Address and token of the stack that runs."""
    from polygym.serve.config import HEAD_PORT
    from polygym.serve.stacks import find_stack

    wanted = HEAD_PORT if port is None else port
    token = os.environ.get("POLYGYM_TOKEN")
    stack = find_stack(wanted)
    if stack is None:  # it may be another user's, or in a container
        yield f"http://127.0.0.1:{wanted}", token
    else:
        yield stack.url, stack.token or token


@asynccontextmanager
async def _started(
    servers: Servers, rows: InputRows, tell: Callable[[str], None]
) -> AsyncIterator[tuple[str, str | None]]:
    """Address and token of a stack that is up as long as the context."""
    from polygym.serve.catalog import AGENTS
    from polygym.serve.supervisor import Supervisor

    began = time.monotonic()
    config = servers.config(rows.agents)
    rows.check_agents(config.of_type(AGENTS))  # told before anything is started
    async with Supervisor(config) as stack:
        tell(f"{len(config.servers)} servers up in {time.monotonic() - began:.1f} s, logs in {stack.logs}")
        yield stack.url, config.token
