"""The table at the end of a run whose environments or tasks a resume has changed."""

from __future__ import annotations

from pathlib import Path

import training_toys as toy
from polygym.train import loop
from polygym.train.comparison import before_and_after
from polygym.train.config import load_config


def evaluation(**tasks_E: dict[int, float]) -> dict[str, object]:
    return {
        "environments": {
            name: {
                "n": len(tasks),
                "rollouts": len(tasks),
                "mean_reward": sum(tasks.values()) / len(tasks),
                "tasks": [[task, [reward]] for task, reward in tasks.items()],
            }
            for name, tasks in tasks_E.items()
        }
    }


HALF = {"math": 0.5, "word": 0.5}


def test_an_environment_that_was_added_has_a_line_without_a_before() -> None:
    before = evaluation(math={0: 0.0, 1: 0.0})
    found, notes = before_and_after(before, evaluation(math={0: 1.0, 1: 0.5}, word={0: 0.25, 1: 0.75}), HALF)
    word = found.environments["word"]
    assert (word.tasks, word.rollouts, word.before, word.after, word.difference) == (2, 2, None, 0.5, None)
    assert (found.combined.tasks, found.combined.after) == (2, 0.75)
    assert str(found).splitlines()[3].split() == ["word", "2", "2", "-", "0.500", "-", "-"]
    assert notes == (
        "word was added after the first evaluation: it has no reward before, and counts in no combined one",
    )


def test_tasks_that_were_not_asked_before_are_told() -> None:
    before = evaluation(math={0: 0.0, 1: 0.0}, word={0: 0.0})
    found, notes = before_and_after(before, evaluation(math={1: 1.0, 2: 1.0}, word={5: 1.0, 6: 1.0}), HALF)
    assert [difference.tasks for difference in found.environments.values()] == [1, 0]
    assert [note[:81] for note in notes] == [
        "math: 1 of the 2 held-out tasks of the last evaluation were asked in the first on",
        "word: 0 of the 2 held-out tasks of the last evaluation were asked in the first on",
    ]


def test_nothing_is_noted_where_the_tasks_are_the_same() -> None:
    same = evaluation(math={0: 0.0, 1: 0.0})
    assert before_and_after(same, same, {"math": 1.0})[1] == ()


def test_no_common_environment_is_no_error_at_the_end_of_a_run() -> None:
    found, notes = before_and_after(evaluation(math={0: 0.0}), evaluation(word={0: 1.0}), HALF)
    assert (list(found.environments), found.combined.difference, len(notes)) == (["word"], None, 1)


def test_a_resume_with_another_environment_shows_it_in_its_table(tmp_path: Path) -> None:
    path = toy.write_config(tmp_path / "run.toml", toy.save_model(tmp_path / "model"), tmp_path / "run", steps=1)
    loop.run(load_config(path))
    path.write_text(path.read_text() + '[[env]]\nid = "training_toys:load_environment"\nname = "u"\n')
    summary = loop.run(load_config(path, ["max_steps=2", "batch_size=24", "eval.num_examples=3"]), resume=True)
    assert summary.comparison is not None
    assert list(summary.comparison.environments) == ["a", "e", "u"]
    assert [note.partition(" ")[0] for note in summary.to_dict()["notes"]] == ["a:", "e:", "u"]
    assert "u was added after the first evaluation" in str(summary)
