from __future__ import annotations

import json
from pathlib import Path

import pytest

from polygym.collect.aggregate import aggregate
from polygym.collect.compare import left_out, paired_difference, read_evaluation
from polygym.errors import UsageError
from stored_rollouts import stored, write


def test_a_file_of_rollouts_compares_as_its_metrics_do(tmp_path: Path) -> None:
    before = [stored("a", task, index, float(task == 1)) for task in range(3) for index in range(2)]
    after = [stored("a", task, index, float(task > 0)) for task in range(4) for index in range(2)]
    for name, rows in {"before": before, "after": [*after, stored("b", 1, 0, 1.0)]}.items():
        aggregate([write(tmp_path / f"{name}_part.jsonl", rows)], tmp_path / name)
    forms = [
        paired_difference(read_evaluation(tmp_path / old), read_evaluation(tmp_path / new))
        for old in ("before.jsonl", "before_metrics.json")
        for new in ("after.jsonl", "after_metrics.json")
    ]
    assert forms[0] == forms[1] == forms[2] == forms[3]
    of_a = forms[0].environments["a"]
    assert (of_a.tasks, of_a.rollouts, of_a.before, of_a.after) == (3, 6, pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert of_a.difference == pytest.approx(1 / 3)
    assert left_out(read_evaluation(tmp_path / "before.jsonl"), read_evaluation(tmp_path / "after.jsonl")) == [
        "b: only in the second, left out",
        "a: 1 tasks are scored on one side only, left out",
    ]


def test_without_metrics_every_environment_counts_alike(tmp_path: Path) -> None:
    rows = [stored("a", 1, 0, 1.0), *(stored("b", task, 0, 0.0) for task in range(3))]
    assert read_evaluation(write(tmp_path / "x.jsonl", rows))["combined"]["shares"] == {"a": 0.5, "b": 0.5}


def test_metrics_without_the_rewards_of_tasks_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x_metrics.json").write_text(json.dumps({"environments": {"a": {"mean_reward": 1.0}}}))
    with pytest.raises(UsageError, match=r"each task of environment 'a'.*give its OUT\.jsonl"):
        read_evaluation(tmp_path / "x_metrics.json")
