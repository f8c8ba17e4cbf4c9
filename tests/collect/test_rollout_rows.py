from __future__ import annotations

from pathlib import Path

import pytest

from polygym.collect.rollout_rows import OWN, RolloutRows, own_keys, shadowed
from polygym.errors import UsageError
from polygym.rows import dump_row
from stored_rollouts import stored, write


def test_the_last_row_of_a_rollout_counts_and_a_torn_tail_does_not(tmp_path: Path) -> None:
    rows = [
        stored("b", 1, 0, 1.0),
        stored("a", "1", 0, 0.0),
        stored("a", 10, 0, None),
        stored("a", 2, 1, 0.5),
        stored("a", 10, 0, 1.0),
        stored("a", 2, 1, 0.25),
    ]
    torn = dump_row(stored("a", 3, 0, 1.0, "ü" * 50))[:-70]
    with RolloutRows(write(tmp_path / "x.jsonl", rows, tail=b"\n" + torn)) as found:
        assert found.names() == [("a", 2, 1), ("a", 10, 0), ("a", "1", 0), ("b", 1, 0)]
        assert [reward for _, reward in found.rewards()] == [0.25, 1.0, 0.0, 1.0]
        assert [row["reward"] for row in found.rows()] == [0.25, 1.0, 0.0, 1.0]
        assert (found.torn, found.replaced, len(found), found.counts_E) == (True, 2, 4, {"a": 3, "b": 1})
        assert found.conflicts == {("a", 2, 1): (0.5, 0.25)}  # a redone error is none
        assert found.raw(("a", 2, 1)) == dump_row(rows[-1])


def test_a_last_line_without_newline_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [stored("a", 1, 0, 1.0)])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with RolloutRows(path) as found:
        assert (found.torn, found.raw(("a", 1, 0))[-2:]) == (False, b"}\n")


def test_damage_before_the_last_line_is_told_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [stored("a", 1, 0, 1.0)], tail=b'{"half\n' + dump_row(stored("a", 2, 0, 1.0)))
    with pytest.raises(UsageError, match=r"x\.jsonl, line 2: not JSON .* repair or remove the line"):
        RolloutRows(path).__enter__()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (stored("a", 1, 0, 1.0) | {"schema": 0}, "has schema 0, and this version reads schema 1"),
        ({"environment": "a", "task_id": 1, "reward": 1.0}, "has no schema, and this version reads schema 1"),
        ({"question": "?"}, "no rollout: .*its keys: question"),
        (stored("a", True, 0, 1.0), "task_id is True"),
        (stored("a", 1, 0, 1.0) | {"rollout_index": "0"}, "rollout_index is '0'"),
        (stored("a", 1, 0, 1.0) | {"reward": "1"}, "reward is '1'"),
        (stored("a", 1, 0, 1.0) | {"reward": 10**400}, "reward is 1000.* must be a finite number"),
        (stored("a", 1, 0, 1.0) | {"rollout_index": 10**30}, "rollout_index is 1000"),
        (stored("a", 1, 0, 1.0, messages=None), "messages must be a list"),
        (stored("a", 1, 0, 1.0, turns=-1), "turns the number of those"),
        (stored("a", 1, 0, 1.0, seconds=[1]), "seconds is .1.; it must be an object"),
        ({key: value for key, value in stored("a", 1, 0, 1.0).items() if key != "seed"}, "has no 'seed'"),
    ],
)
def test_what_is_no_rollout_of_this_schema_is_refused_by_line(
    tmp_path: Path, row: dict[str, object], words: str
) -> None:
    path = write(tmp_path / "x.jsonl", [stored("b", 1, 0, 1.0), row])
    with pytest.raises(UsageError, match=rf"x\.jsonl, line 2: .*{words}"):
        RolloutRows(path).__enter__()


def test_a_missing_and_an_empty_file_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        RolloutRows(tmp_path / "none.jsonl").__enter__()
    with pytest.raises(UsageError, match="has no rollouts"):
        RolloutRows(write(tmp_path / "x.jsonl", [], tail=b'{"torn')).__enter__()


def test_the_own_keys_of_a_row_are_those_it_had_before_it_was_played() -> None:
    row = {
        "id": 3,
        "responses_create_params": {"input": "?"},
        "answer": "yes",
        "city": "Oslo",
        "agent_ref": {"name": "x"},
    }
    reply = {"response": {}, "mask_sample": False, "failure_kind": None, "failure_reason": None, "calls": 2.0}
    played = {**reply, "_ng_task_index": 0, **row, **stored("a", 3, 0, 1.0), "answer": "yes", "metrics": {"calls": 2.0}}
    assert own_keys(played) == row


def test_what_the_line_of_a_rollout_says_otherwise_is_put_back() -> None:
    row = {
        "id": 3,
        "responses_create_params": {"input": "?", "temperature": 0.5, "tools": []},
        "answer": None,
        "seed": 9,
        "messages": "mine",
        "response": "my own",
        "retry": 1,
        "mask_sample": 2,
        "failure_kind": "k",
        "failure_reason": "r",
        "extracted_answer": "x",
        "calls": 7,
        "city": "Oslo",
    }
    sent = {**row, "responses_create_params": {"input": "?", "temperature": 0.1, "top_p": 0.9, "tools": []}}
    line = {"verdict": "good", **sent, **stored("a", 3, 0, 1.0), "metrics": {"calls": 2.0}, "_ng_seed": 1}
    note = shadowed({**row, "_ng_task_index": 4}, line)
    assert own_keys({**line, OWN: note}) == row
    assert "city" not in note["keys"] and "input" not in note["params"]
    plain = {"id": 3, "responses_create_params": {"input": "?"}, "city": "Oslo"}
    assert shadowed(plain, {**plain, **stored("a", 3, 0, 1.0)}) == {}
