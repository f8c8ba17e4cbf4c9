"""Everything that `polygym plan` prints."""

import itertools
import json

import pytest

from polygym.errors import UsageError
from polygym.mixture import Evidence, PlannedEnvironment, plan_batch
from polygym.mixture.batch_plan import missed_any


def environment(name, weight=1.0, tasks=1000, **changes):
    return PlannedEnvironment(**{"name": name, "weight": weight, "tasks": tasks, "max_completion_tokens": 64} | changes)


MIX = (environment("math", 0.55), environment("tools", 0.30), environment("word", 0.15))


def plan(environments=MIX, **changes):
    settings = {
        "groups_per_step": 8,
        "rollouts_per_example": 4,
        "micro_batch_tokens": 4096,
        "max_seq_len": 256,
        "max_steps": 100,
    }
    return plan_batch(environments, **(settings | changes))


def by_name(found):
    return {env.name: env for env in found.environments}


def known(mean, attempts=40, **fields):
    return Evidence(mean, attempts, **fields)


def test_the_global_batch_is_prompts_times_responses():
    found = plan()
    assert (found.prompts_per_step, found.rollouts_per_example, found.batch_size) == (8, 4, 32)
    assert "global batch: 8 prompts x 4 responses = 32 rollouts a step" in str(found)


def test_updates_and_micro_batches_share_out_the_batch():
    found = plan(updates_per_batch=2)
    # 32 episodes of at most 256 tokens over 2 updates of passes of 4096 tokens
    assert (found.rollouts_per_update, found.micro_batches_per_update) == (16, 1)
    assert plan(updates_per_batch=1).micro_batches_per_update == 2
    short = [environment("a", prompt_tokens=36)]
    assert plan(short, micro_batch_tokens=1000).micro_batches_per_update == 4  # 32 episodes of 36 + 64 tokens


def test_each_environment_has_its_groups_and_its_range():
    found = by_name(plan())
    assert [found[name].groups for name in found] == pytest.approx([4.4, 2.4, 1.2])
    assert [(env.groups_least, env.groups_most) for env in found.values()] == [(4, 5), (2, 3), (1, 2)]
    assert sum(env.rollouts for env in found.values()) == pytest.approx(32)
    assert found["word"].epochs == pytest.approx(1.2 * 100 / 1000)


def test_a_small_weight_is_water_filled_to_a_group():
    found = by_name(plan((environment("math", 0.99), environment("word", 0.01))))
    assert (found["word"].weight, found["word"].share, found["word"].groups_least) == (0.01, 0.125, 1)


def test_the_chance_of_being_missed_by_independent_draws_is_exact():
    found = plan()
    assert [env.missed_by_independent_draws for env in found.environments] == pytest.approx([0.45**8, 0.7**8, 0.85**8])
    assert found.missed_any == pytest.approx(0.3234, abs=1e-4)
    assert "32.3 % of steps" in str(found)


@pytest.mark.parametrize(("weights", "groups"), [((0.5, 0.5), 3), ((0.6, 0.3, 0.1), 5), ((0.25,) * 4, 6), ((1.0,), 4)])
def test_the_chance_that_any_is_missed_agrees_with_enumeration(weights, groups):
    chance = 0.0
    for draws in itertools.product(range(len(weights)), repeat=groups):
        if len(set(draws)) < len(weights):
            product = 1.0
            for drawn in draws:
                product *= weights[drawn]
            chance += product
    assert missed_any(weights, groups) == pytest.approx(chance, abs=1e-12)


def test_many_environments_and_groups_stay_between_zero_and_one():
    assert missed_any([1 / 60] * 60, 50) == 1.0
    assert missed_any([0.5, 0.5], 1000) == pytest.approx(2 * 0.5**1000)


def test_group_sizes_cost_tokens_and_seconds_and_lower_the_error():
    found = plan(tokens_per_second=1000)
    assert [(size.rollouts_per_example, size.rollouts) for size in found.group_sizes] == [(4, 32), (8, 64), (16, 128)]
    assert [size.tokens for size in found.group_sizes] == pytest.approx([32 * 64, 64 * 64, 128 * 64])
    assert [size.writing_seconds for size in found.group_sizes] == pytest.approx([2.048, 4.096, 8.192])
    assert [size.standard_error for size in found.group_sizes] == pytest.approx([0.25, 0.5 / 8**0.5, 0.125])
    assert [size.signal for size in found.group_sizes] == [None] * 3
    assert plan().group_sizes[0].writing_seconds is None


def test_an_evaluation_gives_lengths_errors_and_expected_signal():
    tasks = ((1.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 0.0))
    even = [environment("a"), environment("b")]
    found = plan(
        even,
        evidence_E={
            "a": Evidence(0.25, 8, tasks, completion_tokens=10.0),
            "b": Evidence(0.5, 400, best_of_two=0.75, completion_tokens=30.0),
        },
    )
    a, b = found.environments
    assert (a.tokens, b.tokens, a.tokens_are_a_limit) == (4 * 4 * 10, 4 * 4 * 30, False)
    assert a.signal_by_K[4] == pytest.approx(0.5)
    assert b.signal_by_K[4] == pytest.approx(1 - 2 / 16)
    assert found.group_sizes[0].signal == pytest.approx((0.5 + 0.875) / 2)
    # within-task variance of a is (4 * .25 + 0) / 6; b is unknown and counts as the worst there is
    assert a.standard_error_by_K[4] == pytest.approx((1 / 6 / 4) ** 0.5)
    assert found.group_sizes[0].standard_error == 0.25


def test_an_environment_with_its_own_group_size_counts_with_it():
    found = plan((environment("a"), environment("b", rollouts_per_example=16)))
    assert found.batch_size == 4 * 4 + 4 * 16
    assert "8 prompts x their own number of responses = 80 rollouts" in str(found)


def test_adding_an_environment_raises_the_batch_by_what_its_weight_takes():
    even = plan((environment("a"), environment("b"), environment("c")), groups_per_step=12)
    assert (even.groups_with_one_more, even.batch_size_with_one_more, even.groups_per_environment) == (16, 64, None)
    assert even.advice == (
        "when an environment is added with the default weight of 1: the others keep their groups with 16 groups a "
        "step, which is batch_size = 64 (now 48)"
    )
    own = plan((environment("a", rollouts_per_example=16), environment("b")))
    assert "batch_size = 48 (now 32; it counts 4 rollouts a group, also where" in own.advice
    # weights 3 and 1 of 4 with 8 groups; a new one takes a fifth
    assert plan((environment("a", 3.0), environment("b", 1.0))).groups_with_one_more == 10
    # weights of .55, .30 and .15 sum to 1, so a new one of weight 1 takes half
    assert plan().groups_with_one_more == 16


@pytest.mark.parametrize("weights", [(1.0,), (0.5, 0.2), (3.0, 1.0, 1.0), (9.0, 0.1), (0.01, 0.01, 5.0)])
@pytest.mark.parametrize("groups", [3, 8, 50])
def test_with_the_advised_groups_nobody_loses_any_and_with_one_less_somebody_does(weights, groups):
    mix = [environment(f"e{number}", weight) for number, weight in enumerate(weights)]
    found = plan(mix, groups_per_step=groups)

    def kept(raised):
        more = by_name(plan([*mix, environment("new")], groups_per_step=raised))
        return all(more[env.name].groups >= env.groups - 1e-6 for env in found.environments)

    assert kept(found.groups_with_one_more)
    assert not kept(found.groups_with_one_more - 1)


def test_where_groups_are_given_by_environment_an_added_one_raises_them_by_itself():
    mix = (environment("a", rollouts_per_example=16), environment("b"), environment("c"))
    found = plan(mix, groups_per_step=12, groups_per_environment=4)
    assert (found.groups_per_environment, found.groups_with_one_more, found.batch_size_with_one_more) == (4, 16, None)
    assert found.advice == (
        "when an environment is added with the default weight of 1: groups_per_environment = 4 makes it 16 groups a "
        "step, and the others keep theirs"
    )
    small = plan((environment("a", 0.6), environment("b", 0.2)), groups_per_environment=4)
    assert "give it weight = 0.4, the mean of the others, or less" in small.advice


def test_environments_that_cannot_teach_are_warned_about():
    found = plan(evidence_E={"math": known(0.81), "tools": known(0.0, 10), "word": known(0.5)})
    assert len(found.warnings) == 3
    for words, warning in zip(
        ("math is too easy", "tools is hopeless", "reward 0.52 is above"), found.warnings, strict=True
    ):
        assert words in warning
    at_the_bounds = plan(evidence_E={"math": known(0.8), "tools": known(0.0, 9), "word": known(0.0, 9)})
    assert at_the_bounds.warnings == ()


def test_an_evaluation_under_another_limit_is_warned_about_and_nothing_is_scaled():
    mix = (environment("a", max_tokens=40), environment("b", max_tokens=40), environment("c", max_tokens=40))
    limits = {"a": 512, "b": 40, "c": None}
    evidence_E = {name: known(0.4, completion_tokens=90.0, max_tokens=limit) for name, limit in limits.items()}
    found = plan(mix, evidence_E=evidence_E)
    (warning,) = found.to_dict()["warnings"]
    assert warning.startswith("a was evaluated with max_tokens = 512, the run has 40: ")
    assert f"warning: {warning}" in str(found)
    assert by_name(found)["a"].tokens / by_name(found)["a"].rollouts == pytest.approx(90)


def test_the_seconds_are_called_what_they_are():
    shown = str(plan(tokens_per_second=1000))
    assert (
        "seconds to write: tokens at 1,000 a second, as full batches are written;\nsmall batches take longer;" in shown
    )
    assert "seconds to write:" not in str(plan())


def test_a_time_that_is_short_is_not_shown_as_none():
    evidence_E = {env.name: known(0.5, completion_tokens=1.0) for env in MIX}
    found = plan(tokens_per_second=7000, evidence_E=evidence_E)
    seconds = [size.writing_seconds for size in found.group_sizes]
    assert 0 < min(seconds) < 0.05
    assert "< 0.1" in str(found)


def test_unbalanced_shares_and_task_counts_are_warned_about():
    found = plan((environment("a", 9), environment("b", 1)), groups_per_step=20)
    assert [w for w in found.warnings if "shares are unbalanced: a gets 9.0 times the groups of b" in w]
    found = plan((environment("a", tasks=10), environment("b", tasks=1000)))
    assert [w for w in found.warnings if "40.0 times through the 10 tasks of a and 0.4 times" in w]
    assert plan((environment("a", 4), environment("b", 1)), groups_per_step=20).warnings == ()


@pytest.mark.parametrize(
    ("reward", "words"), [(0.2, "below 0.25 to 0.45"), (0.25, None), (0.45, None), (0.5, "above 0.25 to 0.45")]
)
def test_the_combined_starting_reward_is_held_against_its_range(reward, words):
    found = plan(evidence_E={name: known(reward) for name in ("math", "tools", "word")})
    assert found.combined_reward == pytest.approx(reward)
    assert [words in warning for warning in found.warnings] == ([True] if words else [])


def test_the_combined_reward_is_unknown_without_one_of_its_environments():
    assert plan(evidence_E={"math": known(0.7), "tools": known(0.3)}).combined_reward is None


def test_too_few_groups_are_told():
    found = plan(groups_per_step=2)
    assert found.rotates
    assert any("they take turns" in warning for warning in found.warnings)
    assert "the environments take turns here" in str(found)


def test_a_switched_off_environment_is_left_out():
    found = plan((*MIX, environment("off", 0.0, tasks=0)))
    assert "off" not in by_name(found)


def test_the_plan_is_json_and_its_text_names_every_environment():
    found = plan(evidence_E={"math": known(0.7, best_of_two=0.8)})
    row = json.loads(json.dumps(found.to_dict()))
    assert row["environments"][0]["signal_by_K"].keys() == {"4", "8", "16"}
    assert row["group_sizes"][1]["rollouts"] == 64
    assert all(name in str(found) for name in ("math", "tools", "word", "groups with signal", "when an environment is"))


def test_two_environments_of_one_name_are_refused():
    with pytest.raises(UsageError, match="must be unique"):
        plan((environment("a"), environment("a")))
