"""Splitting: each task whole on one side, which follows from the seed and the content alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from data_toys import read, wire_row, write
from polygym.data.split import Sides, split
from polygym.data.stats import stats
from polygym.environments.dataset import split_tasks
from polygym.environments.wire_rows import task_of
from polygym.errors import UsageError

ROWS = [wire_row(n, f"q{n % 20}", "a_simple_agent", answer=n % 20) for n in range(50)] + [
    wire_row(n, f"q{n}", "b_simple_agent") for n in range(5)
]


def sides(folder: Path, rows: list[dict[str, object]], held_out: float, seed: int = 0) -> tuple[Path, Path]:
    train, kept = folder / "train.jsonl", folder / "held_out.jsonl.gz"
    split(write(folder / "rows.jsonl", rows), train, kept, held_out, seed)
    return train, kept


def test_equal_rows_stay_together_and_every_row_is_on_one_side(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", ROWS)
    train, kept = tmp_path / "train.jsonl", tmp_path / "held_out.jsonl"
    done = split(path, train, kept, 0.25, 1)
    assert (done["a"].train_tasks, done["a"].held_out_tasks, done["b"].held_out_tasks) == (15, 5, 1)
    assert done["a"].train_rows + done["a"].held_out_rows == 50
    assert done["b"] == Sides(4, 4, 1, 1)
    both = read(train) + read(kept)
    assert len(both) == 55
    assert all(row in both for row in ROWS)
    assert [found.held_out for found in stats(train, kept).values()] == [0, 0]


@pytest.mark.parametrize(("held_out", "expected"), [(0.01, 1), (0.3, 2), (0.5, 2), (0.99, 4), (3, 3)])
def test_of_two_tasks_or_more_each_side_has_one(held_out: float, expected: int, tmp_path: Path) -> None:
    assert len(read(sides(tmp_path, ROWS[50:], held_out)[1])) == expected


def test_order_and_more_rows_change_nothing_but_the_seed_does(tmp_path: Path) -> None:
    first = {row["answer"] for row in read(sides(tmp_path, ROWS[:50], 4)[1])}
    mixed = random.Random(0).sample([*ROWS, *ROWS], 110)
    assert {row["answer"] for row in read(sides(tmp_path, mixed, 4)[1]) if "answer" in row} == first
    assert {row["answer"] for row in read(sides(tmp_path, ROWS[:50], 4, seed=2)[1])} != first
    assert len(first) == 4


def test_the_held_out_tasks_are_those_that_an_environment_of_them_holds_out(tmp_path: Path) -> None:
    kept = sides(tmp_path, ROWS[:50], 0.3, seed=7)[1]
    tasks = split_tasks([task_of(row, "a") for row in ROWS[:50]], 0.3, 7)[1]
    assert [row["id"] for row in read(kept)] == [task.id for task in tasks]


def test_what_cannot_be_split_is_refused_and_one_task_stays_in_training(tmp_path: Path) -> None:
    for held_out in (0, -1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="must be a fraction below 1, or an integer"):
            sides(tmp_path, ROWS, held_out)
    with pytest.raises(UsageError, match="environment 'b' has 5 tasks; --held-out 5 leaves none"):
        sides(tmp_path, ROWS, 5)
    with pytest.raises(UsageError, match="is read too"):
        split(tmp_path / "rows.jsonl", tmp_path / "rows.jsonl", tmp_path / "x.jsonl", 0.5)
    with pytest.raises(UsageError, match="both sides would go to"):
        split(tmp_path / "rows.jsonl", tmp_path / "x.jsonl", tmp_path / "x.jsonl", 0.5)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
    train, kept = sides(tmp_path, [*ROWS[:50], ROWS[50]], 0.2)
    assert [found.rows for found in stats(train).values()][1] == 1
    assert len(stats(kept)) == 1
