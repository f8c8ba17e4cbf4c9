from __future__ import annotations

import json
import random
import tracemalloc

import pytest

from polygym.collect.results import Results
from polygym.collect.summary_builder import SummaryBuilder
from polygym.messages import Message
from polygym.rollout import Cause, Rollout, Turn, Usage
from polygym.rows import dump_row


def played(task: int | str, index: int, reward: float | None, text: str = "", *, kind: str = "endpoint") -> Rollout:
    cause = Cause(kind, f"{kind} {task}") if reward is None else None
    found = Rollout("a", task, "g", index, index, answer="3", reward=reward, cause=cause, stop_reason="answered")
    found.turns = [Turn(Message("assistant", text), usage=Usage(10, 2 + index))]
    found.messages = [Message("user", "?"), found.turns[0].message]
    found.rewards, found.metrics = {"exact": reward}, {"length": 0.1 * (index + 1)}
    found.seconds = {"total": 0.5 + index}
    return found


def some() -> list[Rollout]:
    return [
        played(2, 0, 1.0, "3"),
        played(2, 1, 0.0, "4"),
        played(2, 2, 1.0, "3.0"),
        played(2, 3, None),
        played("x", 0, 0.3, "3"),
        played(10, 0, 0.7),
        played(10, 1, None, kind="timeout"),
        played(11, 0, None),
    ]


def summed(rollouts: list[Rollout]) -> dict[str, object]:
    builder = SummaryBuilder("a")
    for rollout in rollouts:
        builder.add(rollout)
    return builder.summary().to_dict()


def test_the_numbers_are_those_of_the_rollouts() -> None:
    found = summed(some())
    assert (found["n"], found["rollouts"], found["unscored"]) == (4, 8, 3)
    assert found["mean_reward"] == pytest.approx(0.6)
    assert found["reward_spread"] == {
        "mean": 0.6,
        "std": pytest.approx(0.4415880433),
        "min": 0.0,
        "median": 0.7,
        "max": 1.0,
    }
    assert found["tasks"] == [[2, [1.0, 0.0, 1.0, None]], [10, [0.7, None]], [11, [None]], ["x", [0.3]]]
    assert found["pass_at_k"] == {"1": pytest.approx((2 / 3 + 0.3 + 0.7) / 3), "2": 1.0}
    # task 2 alone has two scored: 3 and 3.0 are one answer, right; each of two pairs ties with 4
    assert found["majority_at_k"] == {"1": pytest.approx((2 / 3 + 0.3 + 0.7) / 3), "2": pytest.approx(2 / 3)}
    assert found["causes"] == {"endpoint": 2, "timeout": 1}
    assert found["messages"] == {"endpoint": "endpoint 11", "timeout": "timeout 10"}
    assert found["prompt_tokens"] == {"mean": 10.0, "std": 0.0, "min": 10, "median": 10.0, "max": 10}
    assert found["completion_tokens_mean"] == pytest.approx(2 + 7 / 8)
    assert (found["seconds_mean"], found["seconds_p99"]) == (pytest.approx(0.5 + 7 / 8), 3.5)


def test_the_order_of_rollouts_changes_nothing_to_the_last_bit() -> None:
    expected = json.dumps(summed(some()))
    for seed in range(5):
        shuffled = some()
        random.Random(seed).shuffle(shuffled)
        assert json.dumps(summed(shuffled)) == expected


def test_a_row_counts_as_the_rollout_that_it_was_written_from() -> None:
    builder = SummaryBuilder("a")
    for rollout in some():
        builder.add_row(json.loads(dump_row(rollout.to_row())))
    assert builder.summary().to_dict() == summed(some())
    assert len(builder) == 8


def test_an_answer_that_a_server_has_extracted_is_the_one_that_votes() -> None:
    builder = SummaryBuilder("a")
    for index, (reward, stated) in enumerate([(1.0, "blue"), (1.0, "blue"), (0.0, "red")]):
        builder.add_row({**played(1, index, reward).to_row(), "answer": "blue", "extracted_answer": stated})
    expected = {1: pytest.approx(2 / 3), 2: pytest.approx(2 / 3)}
    assert builder.summary().majority_at_k == expected
    streamed = SummaryBuilder("a")
    for index, (reward, stated) in enumerate([(1.0, "blue"), (1.0, "blue"), (0.0, "red")]):
        streamed.add(played(1, index, reward), stated)
    assert streamed.summary().majority_at_k == expected


def test_no_rollouts_have_no_numbers() -> None:
    found = SummaryBuilder("a").summary()
    assert (found.n, found.rollouts, found.mean_reward, found.reward_spread, found.seconds_p99) == (
        0,
        0,
        None,
        None,
        None,
    )
    assert (found.truncated_fraction, found.turns_mean, found.seconds_mean, found.majority_at_k) == (
        None,
        None,
        None,
        {},
    )
    assert found.numbers() == {"rollouts": 0, "unscored": 0}


def test_numbers_that_make_no_sense_count_as_none_and_break_nothing() -> None:
    builder = SummaryBuilder("a")
    strange = played(1, 0, 1.0)
    strange.turns[0].usage = Usage(10**30, -5)
    builder.add(strange)
    row = played(2, 0, 0.0).to_row() | {"usage": {"prompt_tokens": "9"}, "seconds": {"total": 10**400}}
    builder.add_row(row | {"metrics": {"length": "long", "width": 10**400}, "messages": [3, {"role": "assistant"}]})
    found = builder.summary()
    assert (found.prompt_tokens.max, found.completion_tokens.max) == (2**62, 0)
    assert (found.seconds.max, found.metrics) == (0.5, {"length": 0.1, "width": None})


def test_texts_are_not_kept() -> None:
    builder = SummaryBuilder("a")
    tracemalloc.start()
    for task in range(2000):
        builder.add(played(task, 0, 1.0, "so \\boxed{3} " + "x" * 5000))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / 2000 < 1000  # bytes a rollout, of which its task's id takes the most; the text has 5,000


def test_a_macro_mean_stands_beside_the_mean_by_shares() -> None:
    builders = {name: SummaryBuilder(name) for name in ("a", "b", "off")}
    for name, rewards in {"a": [1.0, 1.0], "b": [0.0, 0.5], "off": [0.2]}.items():
        for task, reward in enumerate(rewards):
            builders[name].add(played(task, 0, reward))
    found = Results.of_builders(builders, model="m", settings={}, shares={"a": 0.8, "b": 0.2, "off": 0.0})
    assert (found.mean_reward, found.macro_mean_reward) == (pytest.approx(0.85), pytest.approx(0.625))
    assert found.metrics()["combined/macro_mean_reward"] == pytest.approx(0.625)
    combined = found.to_dict()["combined"]
    assert combined["means"]["completion_tokens_mean"] == 2.0
    assert combined["means"]["pass@1"] == pytest.approx(0.85)
    assert combined["macro"]["means"]["reward_std"] == pytest.approx(0.5**0.5 / 4)
    low, high = combined["macro"]["interval"]
    assert (low, high) == (0.5, 0.75)


def test_what_one_environment_lacks_has_no_combined_mean() -> None:
    builders = {name: SummaryBuilder(name) for name in ("a", "b")}
    builders["a"].add(played(0, 0, 1.0))
    found = Results.of_builders(builders, model="m", settings={}, shares={"a": 0.5, "b": 0.5})
    assert found.macro_mean_reward is None
    assert found.means({"a": 0.5, "b": 0.5}) == {}


def test_the_second_table_shows_how_rewards_lie_within_a_hundred_columns() -> None:
    builders = {"a": SummaryBuilder("a")}
    for rollout in some():
        builders["a"].add(rollout)
    table = Results.of_builders(builders, model="m", settings={}, shares={"a": 1.0}).spread_table()
    assert table == (
        "environment    std    min  median    max  majority@2  tokens in  out  seconds    p99\n"
        "-----------  -----  -----  ------  -----  ----------  ---------  ---  -------  -----\n"
        "a            0.442  0.000   0.700  1.000       0.667       10.0  2.9    1.375  3.500"
    )
    assert max(map(len, table.splitlines())) <= 100
