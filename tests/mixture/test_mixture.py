"""Planned steps of a mix, and what survives a change of its environments."""

import json
from collections import Counter

import pytest

from polygym.errors import UsageError
from polygym.mixture import Mixture, TaskCursor

WEIGHTS = {"math": 0.55, "tools": 0.30, "word": 0.15}
SIZES = {"math": 40, "tools": 30, "word": 5}


def mixture(weights=WEIGHTS, sizes=SIZES, groups=8, seed=0):
    return Mixture(weights, sizes, groups, seed)


def saved(mix):
    return json.loads(json.dumps(mix.state_dict()))


def test_a_step_holds_its_groups_by_environment_in_order():
    mix = mixture()
    for _ in range(20):
        step = mix.plan_step()
        names = [name for name, _ in step]
        assert len(step) == 8
        assert names == sorted(names)
        assert set(names) == set(WEIGHTS)
        assert mix.metrics() == {
            **{f"{name}/groups": count for name, count in Counter(names).items()},
            **{f"{name}/share": pytest.approx(share) for name, share in WEIGHTS.items()},
        }


def test_each_environment_draws_from_its_own_cursor():
    mix = mixture()
    steps = [group for _ in range(10) for group in mix.plan_step()]
    for name, size in SIZES.items():
        tasks = [task for environment, task in steps if environment == name]
        assert tasks == TaskCursor(0, name, size).draw(len(tasks))


def test_a_weight_of_zero_needs_no_tasks():
    mix = mixture({"math": 1.0, "off": 0.0}, {"math": 3, "off": 0}, groups=2)
    assert {name for name, _ in mix.plan_step()} == {"math"}
    assert mix.shares == {"math": 1.0, "off": 0.0}


def test_save_draw_ten_restore_draw_the_same_ten():
    mix = mixture()
    for _ in range(7):
        mix.plan_step()
    state = saved(mix)
    ten = [mix.plan_step() for _ in range(10)]
    again = mixture()
    assert again.load_state_dict(state) == ""
    assert [again.plan_step() for _ in range(10)] == ten


def test_kept_environments_keep_their_cursors_when_others_come_and_go():
    mix = mixture()
    drawn = Counter(name for _ in range(5) for name, _ in mix.plan_step())
    changed = mixture({"math": 0.5, "word": 0.25, "search": 0.25}, SIZES | {"search": 12})
    assert changed.load_state_dict(saved(mix)) == (
        "the mix has changed: search is new and starts at its first task; tools is gone; "
        "shares are counted anew: math 0.5, word 0.25, search 0.25 of 8 groups a step"
    )
    tasks = [task for name, task in changed.plan_step() if name == "math"]
    assert tasks == TaskCursor(0, "math", 40).draw(drawn["math"] + len(tasks))[drawn["math"] :]


def test_a_dataset_of_another_size_is_told():
    mix = mixture()
    mix.plan_step()
    position = mix.state_dict()["cursors"]["word"]["position"]
    change = mixture(sizes=SIZES | {"word": 6}).load_state_dict(saved(mix))
    assert change == (
        f"the mix has changed: word has 6 tasks instead of 5: they come in a new order, from draw {position} on"
    )


def test_a_missing_size_is_refused_by_name():
    with pytest.raises(UsageError, match="sizes_E lacks word"):
        mixture(sizes={"math": 1, "tools": 1})
