from __future__ import annotations

from pathlib import Path

import pytest

from polygym.collect.profile import Profile
from polygym.collect.rollout_rows import RolloutRows
from polygym.errors import UsageError
from stored_rollouts import stored, write

ROWS = [
    *(stored("b", 1, index, reward) for index, reward in enumerate([1.0, 1.0, None])),
    *(stored("a", 2, index, reward) for index, reward in enumerate([0.0, 1.0, 0.5, 1.0])),
    *(stored("a", 1, index, 0.5) for index in range(2)),
    stored("a", 3, 0, None),
]


def test_a_line_tells_how_often_a_task_was_solved(tmp_path: Path) -> None:
    with RolloutRows(write(tmp_path / "x.jsonl", ROWS)) as rows:
        found = Profile(rows)
        lines = list(found.tasks())
        table = str(found)
    told = [(line["environment"], line["task_id"], line["solved"], line["solved_fraction"]) for line in lines]
    assert told == [
        ("a", 1, "never", 0.0),
        ("a", 2, "sometimes", 0.5),
        ("a", 3, "unscored", None),
        ("b", 1, "always", 1.0),
    ]
    assert lines[1] == {
        "environment": "a",
        "task_id": 2,
        "rollouts": 4,
        "unscored": 0,
        "solved": "sometimes",
        "solved_fraction": 0.5,
        "mean_reward": 0.625,
        "pass_at_k": {"1": 0.625, "2": pytest.approx((3 * 1 + 2 * 1 + 1 * 0.5) / 6), "4": 1.0},
        "rewards": [0.0, 1.0, 0.5, 1.0],
    }
    assert (lines[3]["unscored"], lines[3]["rewards"]) == (1, [1.0, 1.0, None])
    assert table == (
        "environment  tasks  always  sometimes  never  unscored  mean of tasks\n"
        "-----------  -----  ------  ---------  -----  --------  -------------\n"
        "a                3       0          1      1         1          0.562\n"
        "b                1       1          0      0         0          1.000"
    )


def test_the_reward_that_solves_a_task_can_be_given(tmp_path: Path) -> None:
    with RolloutRows(write(tmp_path / "x.jsonl", ROWS)) as rows:
        assert [line["solved"] for line in Profile(rows, solved=0.5).tasks()] == [
            "always",
            "sometimes",
            "unscored",
            "always",
        ]
        with pytest.raises(UsageError, match="must be a number"):
            Profile(rows, solved=float("nan"))


def test_a_task_that_came_from_a_row_brings_it_along(tmp_path: Path) -> None:
    row = {"id": 1, "responses_create_params": {"input": "?"}, "agent_ref": {"name": "a_simple_agent"}}
    with RolloutRows(write(tmp_path / "x.jsonl", [stored("a", 1, 0, 1.0, _ng_seed=3, response={}, **row)])) as rows:
        assert [line["row"] for line in Profile(rows).tasks()] == [row]
