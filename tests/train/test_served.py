"""Training on environments that servers hold: the same rewards and the same trained tokens as in process.

At a distance an environment is played in two ways: here, with its resources server, or by an agent that asks the run's
policy.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from polygym.environments import Environment, load_environment
from polygym.environments.names import agent_name
from polygym.environments.oracle import demonstration
from polygym.environments.served import ask
from polygym.environments.wire_rows import row_of
from polygym.errors import PolicyError, UsageError
from polygym.messages import Message
from polygym.policies.base import Request
from polygym.policies.chunk import Generation
from polygym.policies.local import LocalPolicy
from polygym.rollout import Turn, Usage
from polygym.rows import dump_row
from polygym.serve.beside import serving
from polygym.serve.environment_server import EnvironmentServer
from polygym.train import loop
from polygym.train.config import load_config
from polygym.train.running_stack import RunningStack
from serve.serving import served

ARGUMENTS = {"num_examples": 40, "num_eval_examples": 8, "num_terms": 2, "synonyms_range": [1, 2]}
POLYGYM = [sys.executable, "-m", "polygym"]
SUMS = {"num_examples": 40}
STEPS = ("rollouts/step_000001.jsonl", "rollouts/step_000002.jsonl")
CONFIG = """
model = "nano"
output = "{output}"
max_steps = 2
batch_size = 16
rollouts_per_example = 4
learning_rate = 1e-3
max_seq_len = 1024
threads = 1
seed = 3
[sampling]
max_tokens = 48
[eval]
num_examples = 4
[[env]]
{environment}
"""


@pytest.fixture(scope="module")
def environment() -> Environment:
    return load_environment("example_multi_step", **ARGUMENTS)


@pytest.fixture(scope="module")
def url(environment: Environment) -> Iterator[str]:
    with served(EnvironmentServer(environment).app()) as address:
        yield address


@pytest.fixture(scope="module")
def keys(environment: Environment, url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The keys of an [[env]] at the server, with its rows in files."""
    folder = tmp_path_factory.mktemp("rows")
    for split, file in (("train", "train.jsonl"), ("held_out", "held_out.jsonl")):
        rows = [row_of(environment, task) for task in environment.tasks(split)]
        (folder / file).write_bytes(b"".join(map(dump_row, rows)))
    return f'name = "steps"\nurl = "{url}"\nrows = "{folder}/train.jsonl"\neval_rows = "{folder}/held_out.jsonl"'


def config(folder: Path, environment: str, *overrides: str) -> loop.RunConfig:
    folder.mkdir(exist_ok=True)
    path = folder / "run.toml"
    path.write_text(CONFIG.format(output=folder / "run", environment=environment), encoding="utf-8")
    return load_config(path, overrides)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if "seconds" not in key and not key.startswith("time/")}


@pytest.fixture
def guided(monkeypatch: pytest.MonkeyPatch, environment: Environment) -> None:
    """A policy that mostly says what is right, in its own tokens, and samples the rest; the seed decides."""
    shown = {}
    for split in ("train", "held_out"):
        for task in environment.tasks(split):
            answers = [message for message in demonstration(environment, task) or () if message.role == "assistant"]
            shown[task.prompt[1].content] = answers
    sample = LocalPolicy.complete

    async def complete(policy: LocalPolicy, request: Request) -> Turn:
        answers = shown.get(request.messages[1].content, [])
        said = sum(message.role == "assistant" for message in request.messages)
        if request.seed % 5 == 0 or said >= len(answers):
            return await sample(policy, request)
        prompt = policy.renderer.render(request.messages, request.tools, request.previous)
        ids, mask = policy.renderer.render_training([Message("user", "-"), answers[said]])
        ids = [token for token, written in zip(ids, mask, strict=True) if written]
        message = policy._read(Generation(prompt, request.sampling, 0, 1, 0, ids=list(ids)), request.tools)
        return Turn(message, "stop", Usage(len(prompt), len(ids)), prompt, ids, [-0.5] * len(ids), policy.version)

    monkeypatch.setattr(LocalPolicy, "complete", complete)


def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The token sequences that are trained on, with masks and log-probabilities, as runs come to them."""
    found: list[Any] = []
    make = loop.make_batch

    def noting(*arguments: Any) -> Any:
        batch = make(*arguments)
        found.append([(s.ids_T, s.mask_T, s.logprobs_T) for s in (item.tokens for item in batch.samples)])
        return batch

    monkeypatch.setattr(loop, "make_batch", noting)
    return found


def test_example_multi_step_trains_at_a_server_as_in_process(
    keys: str, guided: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = recorded(monkeypatch)
    arguments = ", ".join(f"{key} = {json.dumps(value)}" for key, value in ARGUMENTS.items())
    here = f'name = "steps"\nid = "example_multi_step"\nargs = {{ {arguments} }}'
    summaries = [loop.run(config(tmp_path / name, entry)) for name, entry in (("here", here), ("there", keys))]
    assert [summary.steps for summary in summaries] == [2, 2]
    assert samples[:2] == samples[2:]
    assert [len(found) for found in samples[:2]] == [16, 16]
    for name in (
        "metrics.jsonl",
        "rollouts/step_000001.jsonl",
        "rollouts/step_000002.jsonl",
        "eval/step_2_rollouts.jsonl",
    ):
        rows = [list(map(without_times, lines(tmp_path / side / "run" / name))) for side in ("here", "there")]
        assert rows[0] == rows[1], name
    rollouts = lines(tmp_path / "there" / "run" / "rollouts" / "step_000001.jsonl")
    assert {rollout["reward"] for rollout in rollouts} == {0.0, 1.0}
    assert max(rollout["turns"] for rollout in rollouts) >= 3


def test_a_run_at_a_server_goes_on_where_it_stopped(keys: str, guided: None, tmp_path: Path) -> None:
    loop.run(config(tmp_path / "whole", keys, "eval.num_examples=0"))
    loop.run(config(tmp_path / "cut", keys, "eval.num_examples=0", "max_steps=1"))
    loop.run(config(tmp_path / "cut", keys, "eval.num_examples=0"), resume=True)
    for name in ("metrics.jsonl", STEPS[1]):
        rows = [list(map(without_times, lines(tmp_path / side / "run" / name))) for side in ("whole", "cut")]
        assert rows[0] == rows[1], name


def test_commands_take_a_served_environment_by_its_address(keys: str, url: str, tmp_path: Path) -> None:
    config(tmp_path, keys, "eval.num_examples=0")
    address, rows = url, keys.split('"')[5]

    def command(*arguments: str) -> str:
        done = subprocess.run(
            [*POLYGYM, *arguments], cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    planned = json.loads(command("plan", "run.toml", "--json"))
    assert [environment["name"] for environment in planned["environments"]] == ["steps"]
    trained = json.loads(command("rl", "run", "run.toml", "--json"))
    assert (trained["steps"], trained["failures"]["steps"]["unscored"]) == (2, 0)
    results = json.loads(
        command("eval", "run", address, "--set", f"rows={rows}", "-n", "2", "-r", "1", "--max-tokens", "8", "--json")
    )
    found = results["environments"]["example_multi_step"]
    assert (found["n"], found["rollouts"], found["unscored"]) == (2, 2, 0)


# ------------------------------------------------------------------------------------------------------ a running stack


@dataclass(frozen=True)
class Place:
    """A running stack, and files of rows beside it. Its model is whatever answers at `policy_port`."""

    folder: Path
    head_port: int
    policy_port: int

    def rows(self, file: str, **keys: Any) -> str:
        """The keys of an [[env]] of a file of rows."""
        told = {"rows": str(self.folder / file), "head_port": self.head_port, **keys}
        return "\n".join(f"{key} = {json.dumps(value)}" for key, value in told.items())


def free_port() -> int:
    """A port that no server takes that is given any: those come from a higher range."""
    while True:
        port = random.randrange(15_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


@pytest.fixture(scope="module")
def place(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("stack")
    place = Place(folder, free_port(), free_port())
    sums = load_environment("math_rl", **SUMS)
    steps = [row_of(environment, task, agent=agent_name("example_multi_step")) for task in environment.tasks()]
    others = [row_of(sums, task, agent=agent_name("math_rl")) for task in sums.tasks()[:20]]
    dealt = [row for pair in zip(steps[::2], steps[1::2], others, strict=True) for row in pair]
    (folder / "steps.jsonl").write_bytes(b"".join(map(dump_row, steps)))
    (folder / "blend.jsonl").write_bytes(b"".join(map(dump_row, [*dealt, *dealt[:3]])))
    environ = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "OMP_NUM_THREADS": "1"}
    served_names = [word for name in ("example_multi_step", "math_rl") for word in ("--resources-server", name)]
    model = ["--model-type", "vllm_model", "--model-url", f"http://127.0.0.1:{place.policy_port}/v1", "--model", "mine"]
    start = ["env", "start", "--detach", "--head-port", str(place.head_port), *served_names, *model]
    subprocess.run([*POLYGYM, *start], cwd=folder, env=environ, check=True, timeout=120)
    yield place
    subprocess.run([*POLYGYM, "env", "stop", "--all"], cwd=folder, env=environ, check=True, timeout=60)


def test_a_blend_trains_an_environment_for_each_agent_by_the_shares_of_its_rows(place: Place, tmp_path: Path) -> None:
    entry = place.rows("blend.jsonl", name="blend")
    loop.run(config(tmp_path / "alone", entry, "batch_size=24"))
    row = lines(tmp_path / "alone" / "run" / "metrics.jsonl")[-1]
    assert (row["example_multi_step/groups"], row["math_rl/groups"]) == (4.0, 2.0)
    assert (row["example_multi_step/unscored"], row["math_rl/unscored"]) == (0.0, 0.0)
    beside = f'{entry}\n[[env]]\nid = "word_game"\nname = "word"'
    summary = loop.run(config(tmp_path / "beside", beside, "max_steps=1", "batch_size=24", "eval.num_examples=0"))
    assert set(summary.failures) == {"blend/example_multi_step", "blend/math_rl", "word"}


def test_an_agent_that_plays_itself_trains_the_same_tokens_as_the_run_would(
    place: Place, guided: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = recorded(monkeypatch)
    port = f"policy_port={place.policy_port}"
    for play in ("here", "agent"):
        server = agent_name("example_multi_step") if play == "agent" else "example_multi_step"
        entry = place.rows("steps.jsonl", server=server, name="steps", **({"play": play} if play == "agent" else {}))
        loop.run(config(tmp_path / play, entry, port), model_server=serving)
    assert [[sample[:2] for sample in found] for found in samples[:2]] == [
        [sample[:2] for sample in found] for found in samples[2:]
    ]
    assert all(found for found in samples)
    for here, there in zip(samples[0], samples[2], strict=True):
        assert there[2] == pytest.approx(here[2], abs=1e-4)  # waves of other rows add up in another order
    for name in STEPS:
        here, there = (lines(tmp_path / play / "run" / name) for play in ("here", "agent"))
        for key in ("task_id", "reward", "rewards", "metrics", "turns", "truncated", "stop_reason", "usage", "seed"):
            assert [row[key] for row in here] == [row[key] for row in there], key
        assert {row["reward"] for row in here} == {0.0, 1.0}


def test_an_agent_whose_model_is_not_this_run_teaches_nothing(place: Place, tmp_path: Path) -> None:
    entry = place.rows("steps.jsonl", server=agent_name("example_multi_step"), name="steps", play="agent")
    elsewhere = config(tmp_path, entry, "eval.num_examples=0", f"policy_port={free_port()}", "timeout=2")
    with pytest.raises(PolicyError, match=r"step 1: no group could be scored: steps: the rollout took longer than 2 s"):
        loop.run(elsewhere, model_server=serving)
    with pytest.raises(UsageError, match=r"agents of steps play themselves and have to find the policy"):
        loop.run(config(tmp_path / "alone", entry))


def test_a_resources_server_that_is_killed_in_a_step_costs_no_reward(
    place: Place, guided: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = LocalPolicy.complete, []
    stack = RunningStack(place.head_port)

    async def complete(policy: LocalPolicy, request: Request) -> Turn:
        asked.append(request)
        if len(asked) == 10:
            instances = ask(stack.url, "/server_instances")
            os.kill(next(row["pid"] for row in instances if row["name"] == "example_multi_step"), signal.SIGKILL)
        return await answer(policy, request)

    monkeypatch.setattr(LocalPolicy, "complete", complete)
    loop.run(config(tmp_path, place.rows("steps.jsonl", name="mix"), "eval.num_examples=0"))
    rollouts = [row for step in STEPS for row in lines(tmp_path / "run" / step)]
    lost = [row for row in rollouts if row["reward"] is None]
    assert 0 < len(lost) <= 16
    assert [row["example_multi_step/groups"] for row in lines(tmp_path / "run" / "metrics.jsonl")] == [4.0, 4.0]
    assert {row["cause"]["class"] for row in lost} == {"server"}
    assert all(row["scored"] for row in lines(tmp_path / "run" / STEPS[1]))
    assert {row["reward"] for row in rollouts} == {0.0, 1.0, None}


@pytest.mark.parametrize(
    ("file", "keys", "message"),
    [
        ("steps.jsonl", {"server": "math"}, r"has no environment or agent 'math'; did you mean 'math_rl'\?"),
        ("steps.jsonl", {"head_port": 9}, r"no head server answers at http://127.0.0.1:9: start servers with"),
        ("blend.jsonl", {"server": "math_rl"}, r"holds rows of 2 agents .* but all would go to one server"),
        ("steps.jsonl", {"server": "math_rl", "play": "agent"}, r"'math_rl' is no agent, and cannot play"),
        (
            "unknown.jsonl",
            {},
            r"unknown.jsonl: row 2: agent 'math_simple_agent' is unknown; did you mean 'math_rl_simple",
        ),
        (
            "steps.jsonl",
            {"server": "example_multi_step_simple_agent", "play": "agent", "max_turns": 3},
            r"leave out max_",
        ),
    ],
)
def test_a_stack_that_cannot_be_trained_on_is_told_before_anything_is_loaded(
    place: Place, tmp_path: Path, file: str, keys: dict[str, Any], message: str
) -> None:
    row = json.dumps({"responses_create_params": {"input": "1 + 1?"}, "agent_ref": {"name": "math_rl_simple_agent"}})
    (place.folder / "unknown.jsonl").write_text(f"{row}\n{row.replace('math_rl', 'math')}\n")
    with pytest.raises(UsageError, match=message):
        loop.run(config(tmp_path, place.rows(file, **({"name": "steps"} | keys))))
    assert not (tmp_path / "run").exists()
