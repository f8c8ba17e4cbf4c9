"""Tests of the watch for environments that get worse."""

from __future__ import annotations

from polygym.train.regression import Regressions


def evaluation(**means: float) -> dict[str, dict[str, object]]:
    return {name: {"mean_reward": mean, "interval": (mean - 0.05, mean + 0.05)} for name, mean in means.items()}


def test_a_fall_beyond_the_interval_is_one_warning_that_names_the_environment() -> None:
    watch = Regressions()
    assert watch.observe(evaluation(math=0.6, word=0.2)) == []
    (warning,) = watch.observe(evaluation(math=0.5, word=0.3))
    assert warning.startswith("math has regressed: held-out reward 0.500 +- 0.050 against its best of 0.600")
    assert watch.metrics() == {"math/regressed": 1.0, "word/regressed": 0.0}


def test_a_fall_within_the_interval_is_none() -> None:
    watch = Regressions()
    watch.observe(evaluation(math=0.60))
    assert watch.observe(evaluation(math=0.56)) == []


def test_few_tasks_that_all_fail_prove_nothing() -> None:
    watch = Regressions()
    watch.observe({"word": {"mean_reward": 0.1, "interval": (0.0, 0.5)}})
    assert watch.observe({"word": {"mean_reward": 0.0, "interval": (0.0, 0.0)}}) == []
    assert watch.observe({"word": {"mean_reward": 0.4, "interval": (0.35, 0.45)}}) == []
    assert len(watch.observe({"word": {"mean_reward": 0.3, "interval": (0.25, 0.35)}})) == 1


def test_the_best_is_kept_over_evaluations_and_over_a_resume() -> None:
    watch = Regressions()
    for mean in (0.6, 0.57, 0.56):
        watch.observe(evaluation(math=mean))
    again = Regressions()
    again.load_state_dict(watch.state_dict())
    assert again.observe(evaluation(math=0.54))
    assert again.best_E == {"math": 0.6}


def test_an_environment_without_a_scored_sample_is_left_out() -> None:
    watch = Regressions()
    assert watch.observe({"math": {"mean_reward": None, "interval": None}}) == []
    assert watch.metrics() == {}
