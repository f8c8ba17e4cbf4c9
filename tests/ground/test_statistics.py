from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import case_rows
from polygym import statistics
from polygym.errors import UsageError


@case_rows.parametrize("grouping")
def test_case_grouping(case: dict[str, Any]) -> None:
    groups = statistics.group_rows(case["input"]["rows"], key=lambda row: (row[0], row[1]), value=lambda row: row[3])
    assert {f"{environment}|{task}": rewards for (environment, task), rewards in groups.items()} == case["expected"]


@case_rows.parametrize("env_metrics")
def test_case_env_metrics(case: dict[str, Any]) -> None:
    numbers = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    environments = case["input"]["envs"]
    rows = [(name, numbers.get(reward, reward)) for name, reward in case["input"]["rows"]]
    if "error" in case["expected"]:
        with pytest.raises(UsageError, match="is unknown"):
            statistics.environment_metrics(environments, rows)
        return
    metrics = statistics.environment_metrics(environments, rows)
    end = "/mean_reward"  # the name of an environment may hold a slash itself
    named = {f"reward/{name.removesuffix(end)}": value for name, value in metrics.items() if name.endswith(end)}
    for name in environments:
        named[f"count/{name}"] = metrics[f"{name}/rollouts"] - metrics[f"{name}/unscored"]
    assert named == pytest.approx(case["expected"])
    assert named.keys() == case["expected"].keys()


def test_an_environment_without_a_sample_has_a_count_of_zero_and_no_mean() -> None:
    metrics = statistics.environment_metrics(["a", "b"], [("a", 0.5), ("a", None)], weights={"a": 0.5, "b": 0.5})
    assert metrics == {
        "a/rollouts": 2,
        "a/unscored": 1,
        "a/mean_reward": 0.5,
        "b/rollouts": 0,
        "b/unscored": 0,
        "all/mean_reward": 0.5,
    }


def test_the_combined_mean_is_weighted_by_share_and_the_overall_one_by_rollout() -> None:
    rows = [("a", 1.0), ("b", 0.0), ("b", 0.0), ("b", 0.5), ("off", 9.0)]
    metrics = statistics.environment_metrics(["a", "b", "off"], rows, weights={"a": 3, "b": 1, "off": 0})
    assert metrics["combined/mean_reward"] == pytest.approx(0.75 + 0.25 / 6)
    assert metrics["all/mean_reward"] == pytest.approx(10.5 / 5)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("right", [0, 1, 2, 4])
def test_pass_at_k_of_right_and_wrong_is_the_unbiased_formula(right: int, k: int) -> None:
    rewards = [1.0] * right + [0.0] * (4 - right)
    assert statistics.pass_at_k(rewards, k) == pytest.approx(1 - math.comb(4 - right, k) / math.comb(4, k))


def test_pass_at_k_of_graded_rewards_is_the_expected_best() -> None:
    assert statistics.pass_at_k([0.9, 0.3, 0.6], 2) == pytest.approx((0.9 + 0.9 + 0.6) / 3)
    assert statistics.pass_at_k([0.9, None, math.nan], 1) == 0.9
    assert statistics.pass_at_k([0.9, None, math.nan], 2) is None
    assert statistics.mean_pass_at_k({1: [1.0, 0.0], 2: [0.0, None]}, 2) == 1.0
    assert statistics.powers_of_two(4) == [1, 2, 4]
    assert statistics.powers_of_two(7) == [1, 2, 4]
    with pytest.raises(UsageError):
        statistics.pass_at_k([1.0], 0)


def test_intervals_resample_tasks_not_rollouts() -> None:
    random = np.random.default_rng(3)
    skill = random.random(200)
    clustered = {task: [float(skill[task])] * 8 for task in range(200)}  # the rollouts of a task are all the same
    low, high = statistics.interval(clustered) or (0, 0)
    standard_error = skill.std(ddof=1) / math.sqrt(200)
    assert (high - low) / (2 * 1.96 * standard_error) == pytest.approx(1, abs=0.06)
    assert statistics.interval(clustered) == (low, high)
    assert statistics.interval(clustered, seed=1) != (low, high)


def test_an_interval_needs_two_tasks_and_leaves_the_unscored_out() -> None:
    assert statistics.estimate({}) == statistics.Estimate(None, None, 0, 0)
    assert statistics.estimate({1: [0.0, 1.0], 2: [None]}) == statistics.Estimate(0.5, None, 1, 2)
    assert statistics.estimate({1: [1.0], 2: [1.0, None]}) == statistics.Estimate(1.0, (1.0, 1.0), 2, 2)


def test_pairing_removes_the_difference_between_tasks() -> None:
    random = np.random.default_rng(5)
    hard = random.random(300)
    before = {task: [float(hard[task])] for task in range(300)}
    after = {task: [float(hard[task] + 0.1 + 0.01 * random.standard_normal())] for task in range(300)}
    paired = statistics.paired_difference(before, after)
    assert paired.value == pytest.approx(0.1, abs=0.002)
    assert paired.interval is not None
    low, high = paired.interval
    assert low < 0.1 < high
    assert high - low < 0.004
    assert paired.tasks == paired.rollouts == 300


def test_only_tasks_scored_on_both_sides_are_compared() -> None:
    before = {1: [0.0], 2: [0.0], 3: [1.0], 4: [None]}
    after = {1: [1.0], 2: [0.0], 4: [1.0], 5: [1.0]}
    assert statistics.paired_difference(before, after).value == 0.5
    assert statistics.paired_difference(before, {}) == statistics.Estimate(None, None, 0, 0)


def test_a_large_bootstrap_is_drawn_in_chunks_to_the_same_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    rewards = {task: [task % 2] for task in range(50)}
    whole = statistics.bootstrap_means(rewards)
    monkeypatch.setattr(statistics, "_CHUNK", 500)
    chunked = statistics.bootstrap_means(rewards)
    assert whole is not None
    assert chunked is not None
    assert whole.shape == (2000,)
    assert chunked.tolist() == whole.tolist()


def test_a_spread_is_that_of_the_finite_numbers() -> None:
    assert statistics.spread([None, math.nan, math.inf]) is None
    assert statistics.spread([3.0]) == statistics.Spread(mean=3.0, std=None, min=3.0, median=3.0, max=3.0)
    found = statistics.spread([4.0, None, 1.0, 1.0, 2.0])
    assert found == statistics.Spread(mean=2.0, std=pytest.approx(2**0.5), min=1.0, median=1.5, max=4.0)


def test_a_percentile_is_a_value_that_was_there() -> None:
    assert statistics.percentile([], 99) is None
    assert statistics.percentile([5.0], 99) == 5.0
    assert statistics.percentile(range(100), 99) == 98
    assert statistics.percentile(range(101), 99) == 99


def test_an_exact_mean_is_the_same_in_any_order() -> None:
    numbers = [1e16, 0.1, -1e16, 0.2, math.nan, None, 1e-9] * 7
    means = set()
    for seed in range(5):
        found = statistics.ExactMean()
        for place in np.random.default_rng(seed).permutation(len(numbers)):
            found.add(numbers[place])
        means.add(found.value)
    assert means == {math.fsum(number for number in numbers if number is not None and math.isfinite(number)) / 35}
    assert statistics.ExactMean().value is None


def test_an_interval_of_tasks_that_are_alike_is_that_of_drawing_them_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rewards = {task: [float(task % 3 == 0), float(task % 5 == 0)] for task in range(300)}
    quick = statistics.bootstrap_means(rewards, resamples=20_000)
    monkeypatch.setattr(statistics, "_ALIKE", math.inf)
    slow = statistics.bootstrap_means(rewards, resamples=20_000)
    assert quick is not None and slow is not None
    assert quick.mean() == pytest.approx(slow.mean(), abs=0.0005)
    assert quick.std() == pytest.approx(slow.std(), rel=0.02)
    assert statistics.percentile_interval(quick) == pytest.approx(statistics.percentile_interval(slow), abs=0.003)


def test_the_interval_of_a_hundred_thousand_tasks_takes_little_time() -> None:
    import time

    rewards = {task: [float(task % 3 == 0)] for task in range(100_000)}
    started = time.process_time()
    found = statistics.interval(rewards)
    assert time.process_time() - started < 2
    assert found is not None
    assert found == pytest.approx((1 / 3 - 0.0029, 1 / 3 + 0.0029), abs=0.0003)
