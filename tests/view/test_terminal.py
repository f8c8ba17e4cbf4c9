"""The live display, drawn into a string."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from polygym.rollout import Cause, Rollout
from polygym.view.terminal import CollectionDisplay, TrainingDisplay, environment_names

METRICS = {
    "reasoning/math/groups": 12,
    "reasoning/math/share": 0.6,
    "reasoning/math/mean_reward": 0.75,
    "reasoning/math/signal_fraction": 0.5,
    "reasoning/math/errors": 2,
    "word/groups": 8,
    "word/share": 0.4,
    "word/errors": 0,
    "combined/mean_reward": 0.45,
    "eval/word/mean_reward": 0.25,
    "eval/word/groups": 3,
    "time/collect": 1.5,
}


def screen(terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def rollout(environment: str, reward: float | None) -> Rollout:
    cause = Cause("endpoint\x1b[2J", "down") if reward is None else None
    return Rollout(environment, 0, "g", 0, 0, reward=reward, cause=cause)


@pytest.fixture
def tick(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A clock that stands still until it is told how many seconds pass."""
    now = [100.0]
    monkeypatch.setattr("polygym.view.terminal.monotonic", lambda: now[0])

    def pass_time(seconds: float) -> None:
        now[0] += seconds

    return pass_time


def test_environments_of_a_metrics_line_keep_their_order_and_their_slashes():
    assert environment_names(METRICS) == ["reasoning/math", "word"]


def test_a_training_step_away_from_a_terminal_is_one_line(tick):
    console = screen(terminal=False)
    with TrainingDisplay(console) as display:
        tick(2.0)
        display.step(5, 105, METRICS)
    expected = "step 5/105  3:20 left  reasoning/math 0.750 (2 errors)  word -  combined 0.450\n"
    assert text_of(console) == expected


def test_a_training_run_on_a_terminal_shows_a_row_for_each_environment(tick):
    console = screen(terminal=True)
    with TrainingDisplay(console) as display:
        display.phase("update")
        tick(2.0)
        display.step(5, 105, METRICS)
        display.message("word has \x1b[31mregressed")
    shown = text_of(console)
    assert "step 5/105" in shown
    assert "3:20 left  update" in shown
    assert "word has regressed" in shown
    header, math, word = (
        next(line for line in reversed(shown.split("\n")) if line.startswith(start)).split()
        for start in ("environment", "reasoning/math", "word  ")
    )
    assert header == ["environment", "share", "groups", "reward", "signal", "held", "out", "errors", "trend"]
    assert math == ["reasoning/math", "0.60", "12", "0.750", "0.50", "-", "2", "▆"]
    assert word == ["word", "0.40", "8", "-", "-", "0.250", "0"]


def test_an_evaluation_counts_unscored_rollouts_and_names_their_causes():
    console = screen(terminal=False)
    with CollectionDisplay(console, "evaluating") as display:
        display.start({"math": 2, "word": 1})
        for item in (rollout("math", 1.0), rollout("math", 0.5), rollout("word", None)):
            display.rollout(item)
        display.finish()
    assert text_of(console) == "evaluating 3/3  0:00  math 0.750  word -  unscored 1 (endpoint 1)\n"


def test_the_time_left_leaves_out_loading_and_evaluations(tick):
    display = TrainingDisplay(screen(terminal=False))
    tick(7.0)
    for phase, seconds in (("evaluate", 30.0), ("collect", 2.0)):
        display.phase(phase)
        display.start({"math": 1})
        tick(seconds)
        display.finish()
    display.step(1, 11, METRICS)
    assert display.seconds_left() == 20.0


def test_a_run_on_demonstrations_shows_its_loss():
    console = screen(terminal=False)
    with TrainingDisplay(console) as display:
        display.step(2, 2, {"math/loss": 0.125, "math/tokens": 100.0, "grad_norm": 1.0})
    assert text_of(console) == "step 2/2  0:00 left  math loss 0.125\n"


def test_an_environment_that_was_not_asked_shows_no_loss_for_its_reward():
    console = screen(terminal=False)
    with TrainingDisplay(console) as display:
        waiting = {"word/groups": 0.0, "word/loss": 0.0}
        display.step(2, 2, {"math/groups": 1.0, "math/loss": 0.1, "math/mean_reward": 0.5, **waiting})
    assert text_of(console) == "step 2/2  0:00 left  math 0.500  word -\n"


def test_only_the_collections_of_an_evaluation_get_lines_of_their_own_in_a_training_run():
    console = screen(terminal=False)
    with TrainingDisplay(console) as display:
        for phase in ("collect", "evaluate"):
            display.phase(phase)
            display.start({"math": 1})
            display.rollout(rollout("math", 1.0))
            display.finish()
    assert text_of(console) == "evaluation 1/1  0:00  math 1.000\n"


def test_the_display_leaves_the_screen_whole_when_the_run_is_interrupted():
    console = screen(terminal=True)
    with pytest.raises(KeyboardInterrupt), TrainingDisplay(console) as display:
        display.step(1, 2, METRICS)
        raise KeyboardInterrupt
    assert text_of(console).endswith("\x1b[?25h")


def test_an_environment_that_is_not_done_has_a_rate_and_a_time_left(tick):
    display = CollectionDisplay(screen(terminal=False), "collecting")
    display.start({"math": 4, "word": 2})
    tick(10.0)
    for reward in (1.0, 0.0):
        display.rollout(rollout("math", reward))
    display.rollout(rollout("word", 1.0))
    display.rollout(rollout("word", None))
    assert display.line() == "collecting 4/6  0:10  math 0.500 (0.2/s, 0:10 left)  word 1.000  unscored 1 (endpoint 1)"
