from __future__ import annotations

from pathlib import Path

import pytest

from collect_toys import rollout
from polygym.collect.store import EvaluationFiles, RolloutStore
from polygym.errors import UsageError
from polygym.rows import scan_lines


def test_a_step_is_a_file_and_opening_the_store_cuts_a_torn_tail(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path / "rollouts")
    store.append(1, [rollout("a", 0, 1.0, step=1), rollout("a", 1, None, step=1)])
    store.append(10, [rollout("b", "x", 0.5, step=10)])
    store.append(11, [])
    with open(store.folder / "step_000010.jsonl", "ab") as file:
        file.write(b'{"environment":"b","task_')
    reopened = RolloutStore(tmp_path / "rollouts")
    assert reopened.steps() == [1, 10]
    assert [(row["step"], row["task_id"], row["reward"], row["scored"]) for row in reopened.rows()] == [
        (1, 0, 1.0, True),
        (1, 1, None, False),
        (10, "x", 0.5, True),
    ]
    assert (store.folder / "step_000010.jsonl").read_bytes().endswith(b"}\n")


def test_cutting_back_forgets_later_steps_only(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path)
    for step in (1, 2, 3, 4):
        store.append(step, [rollout("a", 0, 1.0, step=step)])
    store.cut_back(2)
    assert store.steps() == [1, 2]
    store.append(3, [rollout("a", 5, 1.0, step=3)])
    assert [row["task_id"] for row in store.rows()] == [0, 0, 5]


@pytest.mark.parametrize("name", ["out", "out.jsonl"])
def test_an_evaluation_writes_each_rollout_as_it_ends_and_failures_apart(tmp_path: Path, name: str) -> None:
    with EvaluationFiles(tmp_path / "deep" / name) as files:
        files.write(rollout("a", 0, 1.0))
        files.write(rollout("a", 1, None))
        assert [row["task_id"] for row in scan_lines(tmp_path / "deep" / "out.jsonl")] == [0, 1]
        assert [row["task_id"] for row in scan_lines(tmp_path / "deep" / "out_failures.jsonl")] == [1]
        files.write_metrics({"n": float("nan")})
    assert (tmp_path / "deep" / "out_metrics.json").read_text() == '{\n  "n": null\n}\n'


def test_an_output_that_cannot_be_written_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="cannot write output"):
        EvaluationFiles(tmp_path / "file" / "out")


@pytest.mark.parametrize("output", [".", "/", "..", "folder/..", ""])
def test_an_output_without_a_name_is_the_users_mistake(output: str) -> None:
    with pytest.raises(UsageError, match=r"output .* has no name; .* such as results/nano"):
        EvaluationFiles(output)


def test_a_name_with_dots_keeps_them(tmp_path: Path) -> None:
    with EvaluationFiles(tmp_path / "gpt-4.1") as files:
        assert files.rollouts.name == "gpt-4.1.jsonl"
        assert files.failures.name == "gpt-4.1_failures.jsonl"
        assert files.metrics.name == "gpt-4.1_metrics.json"
