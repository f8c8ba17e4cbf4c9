from __future__ import annotations

import fcntl
import json
import resource
import signal
from itertools import permutations
from pathlib import Path

import pytest

from polygym.collect.aggregate import aggregate
from polygym.errors import PolygymError, UsageError
from polygym.rows import scan_lines
from stored_rollouts import stored, write


def shards(folder: Path) -> list[Path]:
    """Three files that share rollouts."""
    return [
        write(folder / "s0.jsonl", [stored("a", 1, 0, 1.0), stored("b", 1, 0, 0.0), stored("a", 2, 0, None)]),
        write(folder / "s1.jsonl", [stored("a", 2, 0, 0.5), stored("a", 1, 0, 1.0, seconds={"total": 9.0})]),
        write(folder / "s2.jsonl", [stored("b", 2, 0, 1.0), stored("a", 3, 0, None)], tail=b'{"torn'),
    ]


def test_the_order_of_the_files_changes_nothing(tmp_path: Path) -> None:
    seen = set()
    for place, paths in enumerate(permutations(shards(tmp_path))):
        out = tmp_path / f"out{place}"
        merged = aggregate(paths, out)
        seen.add(
            tuple(out.with_name(out.name + end).read_bytes() for end in (".jsonl", "_failures.jsonl", "_metrics.json"))
        )
        assert merged.lines() == [
            f"{tmp_path}/s2.jsonl ends in a torn line, which was left out",
            "2 rows are of rollouts that stand there more than once; one of each was taken",
        ]
    assert len(seen) == 1


def test_a_scored_row_is_taken_before_one_that_is_not(tmp_path: Path) -> None:
    found = aggregate(shards(tmp_path), tmp_path / "out").results
    rows = scan_lines(tmp_path / "out.jsonl")
    told = [(row["environment"], row["task_id"], row["reward"]) for row in rows]
    assert told == [("a", 1, 1.0), ("a", 2, 0.5), ("a", 3, None), ("b", 1, 0.0), ("b", 2, 1.0)]
    (failure,) = scan_lines(tmp_path / "out_failures.jsonl")
    assert (failure["task_id"], failure["class"], failure["last_error"]) == (3, "endpoint", "down")
    assert (found.mean_reward, found.shares) == (pytest.approx(0.6 * 0.75 + 0.4 * 0.5), {"a": 0.6, "b": 0.4})
    assert json.loads((tmp_path / "out_metrics.json").read_bytes()) == json.loads(json.dumps(found.to_dict()))


def test_rows_of_one_rollout_that_differ_are_told_and_the_same_one_is_taken(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", [stored("a", 1, 0, 1.0, "yes"), stored("a", 2, 0, 0.0), stored("a", 2, 0, 0.5)])
    two = write(tmp_path / "two.jsonl", [stored("a", 1, 0, 0.0, "no")])
    taken = []
    for place, paths in enumerate(([one, two], [two, one])):
        merged = aggregate(paths, tmp_path / f"out{place}")
        taken.append(scan_lines(tmp_path / f"out{place}.jsonl"))
        assert merged.conflicts == [
            "rollout 0 of task 2 of a stands there with the rewards 0, 0.5",
            "rollout 0 of task 1 of a stands there with the rewards 1, 0",
        ]
    assert taken[0] == taken[1]
    assert taken[0][0]["reward"] == 0.0  # of the file that sorts last
    assert [row["reward"] for row in taken[0]][1] == 0.5  # within a file the last row counts


def test_model_and_shares_are_those_of_the_files(tmp_path: Path) -> None:
    paths = shards(tmp_path)[:2]
    for path in paths:
        told = {
            "environments": {},
            "model": "nano",
            "settings": {"seed": 3},
            "combined": {"shares": {"b": 0.25, "a": 0.75}},
        }
        path.with_name(f"{path.stem}_metrics.json").write_text(json.dumps(told))
    found = aggregate(paths, tmp_path / "out").results
    assert (found.model, found.shares, list(found.environments)) == ("nano", {"b": 0.25, "a": 0.75}, ["b", "a"])
    assert [shard["settings"] for shard in found.settings["shards"]] == [{"seed": 3}] * 2
    (tmp_path / "s0_metrics.json").write_text(json.dumps({"environments": {}, "model": "other"}))
    with pytest.raises(UsageError, match=r"different models: other \(s0.jsonl\), nano \(s1.jsonl\)"):
        aggregate(paths, tmp_path / "again")
    assert not (tmp_path / "again.jsonl").exists()


def test_shards_of_one_collection_give_the_combined_mean_of_the_whole(tmp_path: Path) -> None:
    rows = [stored("a", 1, index, 1.0) for index in range(8)]  # eight rollouts of one row
    rows += [stored("a", 2, index, 0.0) for index in range(8)]
    rows += [stored("b", task, 0, 1.0) for task in range(4)]
    parts = {"s0": (rows[:8], {"a": 1}), "s1": (rows[8:18], {"a": 1, "b": 2}), "s2": (rows[18:], {"b": 2})}
    paths = []
    for name, (part, counts) in parts.items():
        paths.append(write(tmp_path / f"{name}.jsonl", part))
        shares = {key: count / sum(counts.values()) for key, count in counts.items()}
        told = {"environments": {}, "settings": {"num_examples": counts}, "combined": {"shares": shares}}
        (tmp_path / f"{name}_metrics.json").write_text(json.dumps(told))
    whole = aggregate(paths, tmp_path / "whole").results
    assert whole.shares == {"a": pytest.approx(1 / 3), "b": pytest.approx(2 / 3)}
    assert whole.mean_reward == pytest.approx(0.5 / 3 + 2 / 3)

    aggregate(paths[:2], tmp_path / "two")
    again = aggregate([tmp_path / "two.jsonl", paths[2]], tmp_path / "again").results  # a merge of a merge
    assert (again.shares, again.mean_reward) == (whole.shares, whole.mean_reward)

    (tmp_path / "s2_metrics.json").unlink()  # nothing told: by the tasks
    assert aggregate(paths, tmp_path / "untold").results.shares == whole.shares
    doubled = write(tmp_path / "s3.jsonl", rows[18:])  # and where a task stands in two files
    assert aggregate([*paths, doubled], tmp_path / "doubled").results.shares == whole.shares


def test_the_tasks_of_merged_rows_are_numbered_anew(tmp_path: Path) -> None:
    numbered = {"_ng_rollout_index": 0, "responses_create_params": {"input": "?"}}
    one = [stored("a", "x", index, 1.0, _ng_task_index=0, id="x", **numbered) for index in range(2)]
    one.append(stored("a", 7, 0, None, _ng_task_index=7, **numbered))  # named by its number
    two = [stored("b", 0, 0, 1.0, _ng_task_index=0, **numbered), stored("a", "y", 0, 0.0, _ng_task_index=0, id="y")]
    paths = [write(tmp_path / "one.jsonl", one), write(tmp_path / "two.jsonl", [*two, stored("c", 0, 0, 1.0)])]
    aggregate(paths, tmp_path / "out")
    rows = scan_lines(tmp_path / "out.jsonl")
    assert [(row["task_id"], row.get("id"), row.get("_ng_task_index")) for row in rows] == [
        (7, 7, 0), ("x", "x", 1), ("x", "x", 1), ("y", "y", 2), (0, 0, 3), (0, None, None)
    ]  # fmt: skip
    assert [row["_ng_task_index"] for row in scan_lines(tmp_path / "out_failures.jsonl")] == [0]


def test_a_full_disk_is_told_with_the_output_and_nothing_is_left(tmp_path: Path) -> None:
    path = write(tmp_path / "long.jsonl", [stored("a", task, 0, 1.0, "long " * 4_000) for task in range(10)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(PolygymError, match=r"cannot write '.*out\.jsonl' and the files beside it: File too large"):
            aggregate([path], tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_given_once_and_is_not_the_output(tmp_path: Path) -> None:
    first, second, _ = shards(tmp_path)
    with pytest.raises(UsageError, match="given twice"):
        aggregate([first, second, first], tmp_path / "out")
    with pytest.raises(UsageError, match="one of the files to merge"):
        aggregate([first, second], first, overwrite=True)
    aggregate([first], tmp_path / "out")
    with pytest.raises(UsageError, match="holds an evaluation already"):
        aggregate([first], tmp_path / "out")


def test_files_that_a_collection_is_writing_are_left_alone(tmp_path: Path) -> None:
    first, *_ = shards(tmp_path)
    aggregate([first], tmp_path / "out")
    before = (tmp_path / "out.jsonl").read_bytes()
    with open(tmp_path / "out.jsonl", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="is being written by an evaluation"):
            aggregate([first], tmp_path / "out", overwrite=True)
    assert (tmp_path / "out.jsonl").read_bytes() == before
