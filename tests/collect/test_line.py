"""Who is played next, and with how many workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from collect_toys import rollout
from polygym.collect.line import Line, work_off
from polygym.collect.per_environment import concurrency_by_environment, counts_by_environment
from polygym.collect.progress import Progress
from polygym.errors import UsageError
from polygym.rollout import Rollout


class Watched:
    """Plays items named `(environment, number)` in given seconds; knows how many were under way, and the order."""

    def __init__(self, seconds_E: dict[str, float]) -> None:
        self.seconds_E = seconds_E
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.begun: list[str] = []
        self.ended: list[str] = []

    async def play(self, item: tuple[str, int]) -> Rollout:
        name = item[0]
        self.begun.append(name)
        self.now[name] += 1
        self.most[name] = max(self.most[name], self.now[name])
        await asyncio.sleep(self.seconds_E[name])
        self.now[name] -= 1
        self.ended.append(name)
        return rollout(name, item[1], 1.0)


def played(
    counts_E: dict[str, int],
    seconds_E: dict[str, float],
    concurrency: int,
    limits_E: dict[str, int] | None = None,
) -> Watched:
    watched = Watched(seconds_E)
    work_E = {name: [(name, number) for number in range(count)] for name, count in counts_E.items()}
    line = Line(work_E, counts_E, limits_E=limits_E)
    asyncio.run(work_off(line, watched.play, concurrency=concurrency, progress=Progress()))
    assert Counter(watched.ended) == Counter(counts_E)
    return watched


def test_one_fifty_times_slower_neither_holds_the_others_up_nor_starves() -> None:
    watched = played({"slow": 16, "a": 100, "b": 100}, {"slow": 0.25, "a": 0.005, "b": 0.005}, concurrency=12)
    # Each has its third of the workers while all have work, so the first of slow are under way from the beginning ...
    assert Counter(watched.begun[:12]) == {"slow": 4, "a": 4, "b": 4}
    # ... a and b are through before slow has ended 8, and then all workers are its own.
    before = watched.ended[: max(place for place, name in enumerate(watched.ended) if name != "slow")]
    assert before.count("slow") <= 8
    assert watched.most["slow"] == 12


def test_with_one_worker_every_stretch_has_the_shares_of_the_whole() -> None:
    watched = played({"a": 30, "b": 10}, {"a": 0.0, "b": 0.0}, concurrency=1)
    assert [Counter(watched.begun[start : start + 8]) for start in range(0, 40, 8)] == [{"a": 6, "b": 2}] * 5


def test_a_limit_of_an_environment_leaves_the_other_workers_to_the_others() -> None:
    watched = played({"a": 20, "b": 20}, {"a": 0.01, "b": 0.01}, concurrency=10, limits_E={"a": 2})
    assert watched.most == {"a": 2, "b": 8}


def test_what_is_put_back_comes_last_and_what_is_held_waits_for_the_others() -> None:
    held = {"a"}
    order: list[str] = []
    line: Line[str] = Line({"a": ["a1", "a2"], "b": ["b1", "b2", "b3"]}, {"a": 2, "b": 3}, held=held.__contains__)

    async def play(item: str) -> Rollout | None:
        order.append(item)
        if item == "b1":
            held.clear()
        if item == "a1" and order.count("a1") == 1:
            return None
        return rollout(item[0], 0, 1.0)

    asyncio.run(work_off(line, play, concurrency=1, progress=Progress()))
    assert order == ["b1", "a1", "b2", "a2", "b3", "a1"]


def test_what_is_held_is_played_once_nothing_else_is_left() -> None:
    line: Line[str] = Line({"a": ["a1"], "b": ["b1"]}, {"a": 1, "b": 1}, held=lambda name: name == "a")
    order: list[str] = []

    async def play(item: str) -> Rollout:
        order.append(item)
        return rollout(item[0], 0, 1.0)

    asyncio.run(work_off(line, play, concurrency=1, progress=Progress()))
    assert order == ["b1", "a1"]


def test_counts_are_given_for_all_or_by_name() -> None:
    names, agents = ["a", "b"], {"a_simple_agent": "a"}
    assert counts_by_environment("r", 3, names, 1) == {"a": 3, "b": 3}
    assert counts_by_environment("r", {"a_simple_agent": 4}, names, 2, agents) == {"a": 4, "b": 2}
    assert counts_by_environment("r", {"b": 4, "_default": 1}, names, 2) == {"a": 1, "b": 4}
    assert concurrency_by_environment(None, names) == (128, {})
    assert concurrency_by_environment({"all": 8, "a": 2}, names) == (8, {"a": 2})
    assert concurrency_by_environment({"_default": 3}, names) == (128, {"a": 3, "b": 3})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda: counts_by_environment("num_repeats", {"c": 1}, ["cc"], 1), "for 'c', which is unknown; did you mean"),
        (lambda: counts_by_environment("num_repeats", {"a": 0}, ["a"], 1), "num_repeats=0 must be an integer of at"),
        (lambda: counts_by_environment("num_repeats", True, ["a"], 1), "num_repeats=True must be"),
        (lambda: concurrency_by_environment({"all": 0}, ["a"]), "concurrency=0"),
    ],
)
def test_wrong_counts_are_told(given: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        given()
