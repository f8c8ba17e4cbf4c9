"""Going on with an output: what is kept, what is played again, and when that is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agent_toys import FAST, OTHER, RESPONSE, Stack, row, running
from collect_toys import Scripted, toy
from polygym.collect.evaluate import evaluate
from polygym.collect.progress import Progress
from polygym.collect.results import Results
from polygym.collect.resume import cut_tail
from polygym.collect.rollout_rows import own_keys
from polygym.collect.served import evaluate_rows
from polygym.environments import EnvGroup
from polygym.errors import PolicyError, UsageError
from polygym.policies.base import Request
from polygym.rows import Row

Lines = list[dict[str, Any]]


def lines(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def settings(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out_metrics.json").read_bytes())
    return found


def without_times(rows: Lines) -> list[str]:
    """The rows in one order, without what differs between two equal collections."""
    return sorted(json.dumps({key: value for key, value in row.items() if key != "seconds"}) for row in rows)


def collected(rows: list[Row], output: Path, **arguments: Any) -> tuple[Results, Stack]:
    async def work() -> tuple[Results, Stack]:
        async with running() as stack:
            return await evaluate_rows(rows, stack.url, output=output, **arguments), stack

    return asyncio.run(work())


class Failing:
    """A policy of which the first `times` answers to each question in `questions` fail."""

    def __init__(self, times: int, *questions: str) -> None:
        self.asked: list[str] = []
        self.times, self.questions = times, questions

    def __call__(self, request: Request) -> Any:
        question = request.messages[0].content
        self.asked.append(question)
        fails = question in self.questions and self.asked.count(question) <= self.times
        return PolicyError("down") if fails else "right"


def test_what_failed_is_played_again_up_to_three_times_and_what_is_there_is_not(tmp_path: Path) -> None:
    environment = toy("a")
    (first, second, *_) = (task.prompt[0].content for task in environment.tasks("held_out"))
    answers = Failing(2, first)
    never = Failing(99, second)

    def both(request: Request) -> Any:
        never(request)
        return never(request) if request.messages[0].content == second else answers(request)

    def again(**arguments: Any) -> Results:
        return evaluate(environment, Scripted(both), rollouts_per_example=1, output=tmp_path / "out", **arguments)

    found = again()
    assert (found.environments["a"].rollouts, found.environments["a"].unscored) == (4, 2)
    assert {line["attempts"] for line in lines(tmp_path / "out_failures.jsonl")} == {1}
    found = again(resume=True)
    assert (found.environments["a"].rollouts, found.environments["a"].unscored) == (4, 2)
    found = again(resume=True)
    assert (found.environments["a"].rollouts, found.environments["a"].unscored) == (4, 1)
    (failure,) = lines(tmp_path / "out_failures.jsonl")
    assert (failure["attempts"], failure["class"]) == (3, "endpoint")
    assert len(lines(tmp_path / "out.jsonl")) == 4  # one row a rollout, whatever was tried
    asked = len(answers.asked) + len(never.asked)
    told: list[str] = []
    progress = Progress()
    progress.message = told.append  # type: ignore[method-assign]
    found = again(resume=True, progress=progress)
    assert told == ["3 rollouts are there already; 1 have failed 3 times and are left so (--overwrite begins anew)"]
    assert len(answers.asked) + len(never.asked) == asked  # nothing is played a fourth time
    assert found.complete
    assert json.loads(json.dumps(found.to_dict())) == settings(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 11])
def test_a_collection_that_was_cut_off_ends_as_one_that_was_not(kept: int, tmp_path: Path) -> None:
    group = EnvGroup([toy("a"), toy("b")])

    def play(name: str, **arguments: Any) -> Results:
        return evaluate(
            group,
            Scripted(lambda request: "right" if request.seed % 2 else "wrong"),
            rollouts_per_example=2,
            output=tmp_path / name,
            **arguments,
        )

    undisturbed = play("whole")
    play("out")
    path = tmp_path / "out.jsonl"
    content = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join(content[:kept]) + b"\n" * bool(kept) + content[kept][:40])
    found = play("out", resume=True)
    assert without_times(lines(path)) == without_times(lines(tmp_path / "whole.jsonl"))
    one, other = (without_seconds(results) for results in (found, undisturbed))
    assert one == other


def without_seconds(results: Results) -> dict[str, Any]:
    found = json.loads(json.dumps(results.to_dict()))
    for environment in found["environments"].values():
        for name in ("seconds", "seconds_mean", "seconds_p99"):
            environment.pop(name, None)
    for name in ("combined", "macro"):
        found.pop(name, None)
    return dict(found)


def test_rows_through_servers_go_on_too(tmp_path: Path) -> None:
    rows = [row(number, "seeded", agent=(FAST, OTHER)[number % 2], note="n") for number in range(10)]
    whole, _ = collected(rows, tmp_path / "whole", rollouts_per_example={"fast": 2})
    collected(rows, tmp_path / "out", rollouts_per_example={"fast": 2})
    path = tmp_path / "out.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:9]))
    found, stack = collected(rows, tmp_path / "out", rollouts_per_example={"fast": 2}, resume=True)
    assert len(stack.asked) == 6
    assert without_times(lines(path)) == without_times(lines(tmp_path / "whole.jsonl"))
    assert without_seconds(found)["environments"] == without_seconds(whole)["environments"]
    assert [line["_ng_rollout_index"] for line in lines(path)].count(1) == 5


def test_other_settings_or_rows_are_refused_by_name_unless_told_and_then_noted(tmp_path: Path) -> None:
    rows = [row(number, "seeded") for number in range(4)]
    collected(rows, tmp_path / "out", seed=3)
    before = (tmp_path / "out.jsonl").read_bytes()
    with pytest.raises(UsageError, match=r"begun with other settings \(seed was 3\); give those again, .* --changed"):
        collected(rows, tmp_path / "out", resume=True)
    with pytest.raises(UsageError, match=r"\(rows_sha256 was '[0-9a-f]{64}', num_examples was"):
        collected([*rows, row(4, "seeded")], tmp_path / "out", seed=3, resume=True)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    found, stack = collected([*rows, row(4, "seeded")], tmp_path / "out", resume="changed")
    assert [asked["id"] for asked in stack.asked] == [4]
    assert found.environments["fast"].rollouts == 5
    assert found.settings["changed"]["seed"] == [3]
    assert settings(tmp_path)["settings"]["changed"]["seed"] == [3]


def test_a_row_that_now_asks_something_else_is_played_and_one_that_is_gone_counts_no_more(tmp_path: Path) -> None:
    collected([row(0), row(1), row(2)], tmp_path / "out")
    other = row(1) | {"responses_create_params": {"input": "Listen."}}
    found, stack = collected([row(0), other], tmp_path / "out", resume="changed")
    assert [asked["id"] for asked in stack.asked] == [1]
    assert found.environments["fast"].rollouts == 2
    assert [line["task_id"] for line in lines(tmp_path / "out.jsonl")] == [0, 1, 2]  # nothing collected is lost


def test_an_output_from_an_older_schema_is_refused_with_its_line(tmp_path: Path) -> None:
    collected([row(0), row(1)], tmp_path / "out")
    path = tmp_path / "out.jsonl"
    path.write_text("".join(json.dumps(line | {"schema": 0}) + "\n" for line in lines(path)))
    with pytest.raises(UsageError, match=r"out\.jsonl, line 1: the rollout has schema 0, and this version reads sche"):
        collected([row(0), row(1)], tmp_path / "out", resume=True)


def test_a_line_that_is_damaged_before_good_ones_is_told(tmp_path: Path) -> None:
    collected([row(0), row(1)], tmp_path / "out")
    path = tmp_path / "out.jsonl"
    path.write_bytes(b'{"broken\n' + path.read_bytes())
    with pytest.raises(UsageError, match=r"out\.jsonl, line 1: not JSON"):
        collected([row(0), row(1)], tmp_path / "out", resume=True)


def test_rollouts_of_which_nobody_says_how_they_were_collected_are_not_gone_on_with(tmp_path: Path) -> None:
    collected([row(0), row(1)], tmp_path / "out")
    (tmp_path / "out_metrics.json").unlink()
    with pytest.raises(UsageError, match=r"out_metrics\.json', which says with which settings .* is not there"):
        collected([row(0), row(1)], tmp_path / "out", resume="changed")
    assert len(lines(tmp_path / "out.jsonl")) == 2


def test_without_an_earlier_output_a_resume_begins_one(tmp_path: Path) -> None:
    found, _ = collected([row(0)], tmp_path / "out", resume=True)
    assert found.environments["fast"].rollouts == 1


@pytest.mark.parametrize(
    ("content", "left", "cut"),
    [
        (b"", b"", 0),
        (b'{"a":1}\n', b'{"a":1}\n', 0),
        (b'{"a":1}\n{"b":', b'{"a":1}\n', 5),
        (b'{"a":1}\n{"b":2}', b'{"a":1}\n{"b":2}\n', 0),
        (b'{"a":1}\n\n{"b":', b'{"a":1}\n\n', 5),
        (b'{"b":', b"", 5),
        (b"{}\n\n", b"{}\n\n", 0),
    ],
)
def test_a_torn_tail_is_cut_back_to_the_last_whole_row(content: bytes, left: bytes, cut: int, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    assert cut_tail(path) == cut
    assert path.read_bytes() == left


@pytest.mark.parametrize(
    "metrics", [None, "broken", '{"environments":{},"schema":7}', '{"environments":{},"schema":1}']
)
@pytest.mark.parametrize("content", ["a\nb\nnot json", "a\nb\n", '{"a":1}\nb\n{"c":'])
def test_what_is_no_evaluation_is_refused_and_stays_as_it_is(metrics: str | None, content: str, tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text(content)
    if metrics is not None:
        (tmp_path / "notes_metrics.json").write_text(metrics)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UsageError, match=r"is not there|put it back|has schema 7|last whole line is not a JSON object"):
        evaluate(toy("a"), Scripted(lambda request: "right"), output=tmp_path / "notes", resume=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"temperature": -1}, "temperature=-1 is outside"),
        ({"temperature": float("nan")}, "temperature=nan is outside"),
        ({"temperature": "hot"}, "temperature='hot' must be a number"),
        ({"top_p": 0}, "top_p=0 is outside"),
        ({"top_p": 2}, "top_p=2 is outside"),
        ({"max_output_tokens": 0}, "max_output_tokens=0 must be an integer of at least 1"),
        ({"max_output_tokens": 1.5}, "max_output_tokens=1.5 must be an integer"),
    ],
)
def test_sampling_that_nobody_could_heed_is_refused_at_once(params: Row, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        asyncio.run(evaluate_rows([row(0)], "http://127.0.0.1:9", params=params, output=tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"resume": "yes"}, "resume='yes' must be True, False, or 'changed'"),
        ({"resume": True, "overwrite": True}, "give one of --overwrite and --resume"),
    ],
)
def test_wrong_arguments_are_told(arguments: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        evaluate(toy("a"), Scripted(lambda request: "right"), output=tmp_path / "out", **arguments)


@pytest.mark.parametrize(
    "change",
    [
        {"answer": "no"},
        {"hint": "h"},
        {"seed": 2},
        {"responses_create_params": {"input": "Look.", "tools": [{"type": "function", "name": "f"}]}},
    ],
)
def test_a_row_of_which_anything_but_its_sampling_changed_is_played_again(change: Row, tmp_path: Path) -> None:
    rows = [row(0, answer="yes", seed=1), row(1, "foreign", answer="yes", seed=1)]
    params = {"temperature": 0.5}
    collected(rows, tmp_path / "out", params=params)
    found = lines(tmp_path / "out.jsonl")
    assert [own_keys(line) for line in sorted(found, key=lambda line: line["task_id"])] == rows
    sampled = row(1, "foreign", answer="yes", seed=1, responses_create_params={"input": "Look.", "top_p": 0.5})
    _, stack = collected([rows[0] | change, sampled], tmp_path / "out", resume="changed", params=params)
    assert [asked["id"] for asked in stack.asked] == [0]


def test_what_a_server_says_of_a_rollout_stands_in_its_line_beside_what_the_row_said(tmp_path: Path) -> None:
    rows = [row(0, response="mine", turns="many")]
    collected(rows, tmp_path / "out")
    (line,) = lines(tmp_path / "out.jsonl")
    assert (line["response"], line["turns"]) == (RESPONSE, 1)
    assert own_keys(line) == rows[0]
