"""Rows played through agents: a real head and real agents on loopback, some of which misbehave."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from agent_toys import FAST, OTHER, RESPONSE, SAID, Stack, row, running
from polygym.collect import agents as agents_module
from polygym.collect import patience
from polygym.collect.results import Results
from polygym.collect.served import evaluate_rows
from polygym.errors import UsageError
from polygym.rewards.rubric import BadRewardError
from polygym.rows import Row


def collected(rows: list[Row], **arguments: Any) -> tuple[Results, Stack]:
    async def work() -> tuple[Results, Stack]:
        async with running() as stack:
            return await evaluate_rows(rows, stack.url, **arguments), stack

    return asyncio.run(work())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents_module, "backoff_seconds", lambda tries: 0.01)
    monkeypatch.setattr(patience, "backoff_seconds", lambda tries: 0.01)
    monkeypatch.setattr(patience, "LOOK_AGAIN_SECONDS", 0.01)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_every_row_is_played_by_its_agent_and_summed_up_by_environment(tmp_path: Path) -> None:
    rows = [row(n, agent=(FAST, OTHER)[n % 2], answer=n, hint="h") for n in range(4)]
    found, stack = collected(rows, rollouts_per_example=3, output=tmp_path / "out.jsonl")
    assert {name: (e.n, e.rollouts, e.mean_reward) for name, e in found.environments.items()} == {
        "fast": (2, 6, 0.5),
        "other": (2, 6, 0.5),
    }
    assert (found.model, found.shares) == ("toy", {"fast": 0.5, "other": 0.5})
    assert found.environments["fast"].rewards == {"exact": 0.5}
    assert found.environments["fast"].metrics == {"length": 2.0}
    assert found.environments["fast"].completion_tokens_mean == 4
    written = lines(tmp_path / "out.jsonl")
    assert len(written) == len(stack.asked) == 12
    first = next(line for line in written if (line["task_id"], line["rollout_index"]) == (3, 2))
    assert first["messages"] == SAID
    assert (first["schema"], first["environment"], first["answer"], first["reward"]) == (1, "other", 3, 0.5)
    assert (first["hint"], first["_ng_task_index"], first["_ng_rollout_index"]) == ("h", 3, 2)
    assert (first["turns"], first["usage"]) == (1, {"prompt_tokens": 3, "completion_tokens": 4})
    assert first["response"]["output"] == RESPONSE["output"]
    assert first["seconds"] == {"policy": 0.1, "total": 0.2}
    assert len({line["seed"] for line in written}) == 12
    assert (tmp_path / "out_failures.jsonl").read_bytes() == b""
    assert json.loads((tmp_path / "out_metrics.json").read_bytes())["environments"]["fast"]["mean_reward"] == 0.5


def test_seeds_are_those_of_an_evaluation_in_process() -> None:
    from polygym.seeds import derive_seed

    _, stack = collected([row(5)], seed=3, rollouts_per_example=2)
    assert {(r["_ng_rollout_index"], r["_ng_seed"]) for r in stack.asked} == {
        (0, derive_seed(3, "fast", 5, 0)),
        (1, derive_seed(3, "fast", 5, 1)),
    }


@pytest.mark.usefixtures("impatient")
def test_a_rollout_whose_model_was_not_asked_has_not_been_tried() -> None:
    found, stack = collected([row(1, "unasked"), *(row(n) for n in range(2, 9))], concurrency=4)
    assert [rollout.reward for rollout in found.rollouts] == [0.5] * 8
    assert max(stack.tries.values()) == 6


def test_an_agent_is_told_a_little_less_than_the_time_there_is(tmp_path: Path) -> None:
    _, stack = collected([row(1), row(2)], timeout=100, output=tmp_path / "out")
    assert all(97 < r["_ng_timeout"] <= 98 for r in stack.asked)
    assert all("_ng_timeout" not in line for line in lines(tmp_path / "out.jsonl"))


def test_the_time_of_a_second_try_is_what_the_first_has_left() -> None:
    _, stack = collected([row(1, "comes_back"), row(2)], timeout=10)
    first, *others = [r["_ng_timeout"] for r in stack.asked if r["id"] == 1]
    assert 9 < first <= 9.5
    assert all(later < first for later in others)


@pytest.mark.usefixtures("impatient")
def test_a_rollout_that_runs_out_of_time_tells_what_its_last_try_found() -> None:
    found, _ = collected([row(1, "hangs_later"), row(2)], timeout=1.5)
    assert found.environments["fast"].causes == {"timeout": 1}
    assert found.environments["fast"].messages["timeout"].endswith("; before: the resources server is gone")


def test_equal_rows_are_more_rollouts_of_one_task() -> None:
    found, stack = collected([row(None), row(None, hint="x"), row(None)])
    assert [(r["_ng_task_index"], r["_ng_rollout_index"]) for r in stack.asked] == [(0, 0), (1, 0), (0, 1)]
    assert found.environments["fast"].n == 2
    assert found.environments["fast"].rollouts == 3


def test_an_agent_that_is_not_ours_needs_to_tell_no_more_than_response_and_reward() -> None:
    found, _ = collected([row(1, "foreign"), row(2, "foreign", agent="named_freely")])
    rollout = found.rollouts[0]
    assert [message.role for message in rollout.messages] == ["user", "assistant", "tool", "assistant"]
    assert (rollout.reward, len(rollout.turns), rollout.usage.completion_tokens) == (1.0, 2, 5)
    assert rollout.metrics == {"accuracy": 1.0, "set_overlap": 0.25}
    assert list(found.environments) == ["fast", "named_freely"]


def test_what_servers_fail_is_tried_three_times_and_never_paid_0(tmp_path: Path, impatient: None) -> None:
    modes = ["whole", "comes_back", "stays_down", "unscored", "breaks", "refuses", "garbage", "word"]
    found, stack = collected([row(n, mode) for n, mode in enumerate(modes)], output=tmp_path / "out")
    told = {modes[r.task_id]: (r.reward, r.cause.kind if r.cause else None) for r in found.rollouts}  # type: ignore[index]
    tries = {mode: stack.tries[f"{n}/0"] for n, mode in enumerate(modes)}
    assert told == {
        "whole": (0.5, None),
        "comes_back": (0.5, None),
        "stays_down": (None, "server"),
        "unscored": (None, "reward"),
        "breaks": (None, "server"),
        "refuses": (None, "refused"),
        "garbage": (None, "server"),
        "word": (None, "server"),
    }
    assert tries == {
        "whole": 1, "comes_back": 3, "stays_down": 3, "unscored": 1, "breaks": 3, "refuses": 1, "garbage": 3, "word": 1,
    }  # fmt: skip
    assert found.environments["fast"].mean_reward == 0.5
    failures = lines(tmp_path / "out_failures.jsonl")
    assert {modes[line["task_id"]] for line in failures} == set(modes) - {"whole", "comes_back"}
    assert next(line for line in failures if line["task_id"] == 4)["last_error"].endswith("500: a bug")
    assert {line["attempts"] for line in failures} == {1}


def test_an_agent_that_hangs_is_given_up_and_holds_up_no_other() -> None:
    found, _ = collected([row(1, "hangs"), *(row(n) for n in range(2, 9))], timeout=0.5, concurrency=2)
    hung = found.rollouts[0]
    assert hung.cause is not None
    assert (hung.reward, hung.cause.kind) == (None, "timeout")
    assert [rollout.reward for rollout in found.rollouts[1:]] == [0.5] * 7


def test_agents_that_have_gone_are_waited_for_once_together(monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:
    monkeypatch.setattr(patience, "RETURN_SECONDS", 0.2)

    async def work() -> Results:
        async with running() as stack:
            rows = [row(n) for n in range(40)]
            found = asyncio.create_task(evaluate_rows(rows, stack.url, concurrency=1))
            while len(stack.asked) < 3:
                await asyncio.sleep(0.001)
        return await found

    started = time.monotonic()
    found = asyncio.run(work())
    assert found.environments["fast"].unscored > 30
    assert {r.cause.kind for r in found.rollouts if r.cause} == {"server"}
    assert time.monotonic() - started < 5


def test_what_was_collected_is_kept_when_it_is_stopped(tmp_path: Path) -> None:
    async def work() -> None:
        async with running() as stack:
            rows = [*(row(n) for n in range(5)), row(9, "hangs")]
            task = asyncio.create_task(evaluate_rows(rows, stack.url, output=tmp_path / "out"))
            while not (tmp_path / "out.jsonl").exists() or len(lines(tmp_path / "out.jsonl")) < 5:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(work())
    metrics = json.loads((tmp_path / "out_metrics.json").read_bytes())
    assert (metrics["complete"], metrics["environments"]["fast"]["rollouts"]) == (False, 5)


def test_a_reward_that_is_no_number_stops_the_collection_as_in_process(tmp_path: Path) -> None:
    rows = [row(1), row(2, "no_number"), *(row(n) for n in range(3, 30))]
    with pytest.raises(BadRewardError, match="'exact' returned 'good'"):
        collected(rows, output=tmp_path / "out", concurrency=1)
    assert [line["task_id"] for line in lines(tmp_path / "out.jsonl")] == [1, 2]
    assert json.loads((tmp_path / "out_metrics.json").read_bytes())["complete"] is False


def test_parameters_of_the_request_are_replaced() -> None:
    _, stack = collected([row(1)], params={"temperature": 0.0, "max_output_tokens": 9})
    assert stack.asked[0]["responses_create_params"] == {"input": "Look.", "temperature": 0.0, "max_output_tokens": 9}


@pytest.mark.parametrize(
    ("rows", "arguments", "said"),
    [
        (
            [row(1), row(2, agent="fasst_simple_agent")],
            {},
            "row 2: agent 'fasst_simple_agent' is unknown; did you mean",
        ),
        ([row(1), row(2, agent=None), row(3, agent=None)], {}, r"2 row\(s\) name no agent .*\(rows 2, 3\)"),
        ([row(1), row(1, "foreign")], {}, "rows 1 and 2 of agent 'fast_simple_agent' have the id 1 and are different"),
        ([row(1), {"question": "x"}], {}, "row 2: the row has no responses_create_params"),
        ([row(1)], {"rollouts_per_example": 0}, "num_repeats"),
        ([row(1)], {"concurrency": 0}, "concurrency"),
        ([row(1)], {"seed": -1}, "seed"),
    ],
)
def test_mistakes_are_told_before_anything_is_played(rows: list[Row], arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        collected(rows, **arguments)


def test_rows_without_an_agent_go_to_the_default_one() -> None:
    found, _ = collected([row(1, agent=None), row(2, agent_ref={})], agent=OTHER)
    assert found.environments["other"].rollouts == 2


def test_a_head_that_is_not_there_is_told_with_the_fix() -> None:
    with pytest.raises(UsageError, match=r"no head server answers at http://127\.0\.0\.1:9: start servers with"):
        asyncio.run(evaluate_rows([row(1)], "http://127.0.0.1:9"))
