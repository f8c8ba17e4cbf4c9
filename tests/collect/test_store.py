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
    with pytest.raises(UsageError, match="cannot write output"), EvaluationFiles(tmp_path / "file" / "out"):
        pass


@pytest.mark.parametrize("there", ["out.jsonl", "out_failures.jsonl", "out_metrics.json"])
def test_an_evaluation_that_is_there_is_replaced_only_when_that_is_asked(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("{}\n")
    with pytest.raises(UsageError, match=rf"holds an evaluation already \(.*{there}\); give another one .*--overwrite"):
        EvaluationFiles(tmp_path / "out")
    assert (tmp_path / there).read_text() == "{}\n"
    with EvaluationFiles(tmp_path / "out", overwrite=True) as files:
        files.write(rollout("a", 0, 1.0))
        assert len(scan_lines(files.rollouts)) == 1
        assert files.failures.read_text() == ""
        assert not files.metrics.exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_two_evaluations_write_no_files_of_one_name(tmp_path: Path, overwrite: bool) -> None:
    late = EvaluationFiles(tmp_path / "out", overwrite=overwrite)
    with EvaluationFiles(tmp_path / "out") as files:
        files.write(rollout("a", 0, 1.0))
        with (
            pytest.raises(
                UsageError, match=r"is being written by another evaluation; give another one \(-o\), or wait"
            ),
            late,
        ):
            pass
        assert len(scan_lines(files.rollouts)) == 1


def test_an_evaluation_that_another_one_overtook_leaves_it_alone(tmp_path: Path) -> None:
    late = EvaluationFiles(tmp_path / "out")
    with EvaluationFiles(tmp_path / "out") as files:
        files.write(rollout("a", 0, 1.0))
    with pytest.raises(UsageError, match="holds an evaluation already"), late:
        pass
    assert len(scan_lines(files.rollouts)) == 1


def test_an_evaluation_that_failed_before_its_first_rollout_leaves_its_name_free(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing yet"), EvaluationFiles(tmp_path / "out") as files:
        files.write_metrics({"n": 0})
        raise ValueError("nothing yet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("output", [".", "/", "..", "folder/..", ""])
def test_an_output_without_a_name_is_the_users_mistake(output: str) -> None:
    with pytest.raises(UsageError, match=r"output .* has no name; .* such as results/nano"):
        EvaluationFiles(output)


def test_a_name_with_dots_keeps_them(tmp_path: Path) -> None:
    with EvaluationFiles(tmp_path / "gpt-4.1") as files:
        assert files.rollouts.name == "gpt-4.1.jsonl"
        assert files.failures.name == "gpt-4.1_failures.jsonl"
        assert files.metrics.name == "gpt-4.1_metrics.json"


@pytest.mark.parametrize("name", ["out.jsonl", "out_failures.jsonl", "out_metrics.json"])
@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("how", ["overwrite", "resume"])
def test_an_output_that_is_the_input_is_refused(tmp_path: Path, name: str, link: bool, how: str) -> None:
    reads = tmp_path / ("rows.jsonl" if link else name)
    reads.write_text('{"id": 1}\n')
    if link:
        (tmp_path / name).symlink_to(reads)
    with pytest.raises(UsageError, match=rf"{name}', which is the input; give another one \(-o\)"):
        EvaluationFiles(tmp_path / "out", reads=reads, overwrite=how == "overwrite", resume=how == "resume")
    assert reads.read_text() == '{"id": 1}\n'


def test_a_failure_before_the_first_rollout_removes_no_file_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}\n")
    (tmp_path / "out.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="nothing yet"), EvaluationFiles(tmp_path / "out", overwrite=True) as files:
        files.write_metrics({"n": 0})
        raise ValueError("nothing yet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "out.jsonl"]
