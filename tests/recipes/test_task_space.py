"""Drawing tasks without repeats, with splits that belong to the task."""

from __future__ import annotations

import pytest

from polygym.errors import UsageError
from polygym.recipes.task_space import check_range, interleave, shuffled_range, take


def test_a_shuffled_range_gives_each_integer_once_in_an_order_that_the_seed_names() -> None:
    assert sorted(shuffled_range(100, seed=1)) == list(range(100))
    assert list(shuffled_range(100, seed=1)) == list(shuffled_range(100, seed=1)) != list(shuffled_range(100, seed=2))


def test_a_shuffled_range_of_a_huge_space_is_lazy() -> None:
    stream = shuffled_range(26**20, seed=0)
    assert len({next(stream) for _ in range(1000)}) == 1000


def test_streams_take_turns_and_drop_out_when_they_end() -> None:
    assert list(interleave(["abc", "", "d"])) == ["a", "d", "b", "c"]


def test_asking_for_more_than_exist_names_the_maximum() -> None:
    with pytest.raises(UsageError, match="num_examples=4 is more than exist: the maximum is 3"):
        take("abc", 4, environment="toy", argument="num_examples")


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "3", None])
def test_a_number_of_examples_is_a_positive_integer(count: object) -> None:
    with pytest.raises(UsageError, match="must be an integer of at least 1"):
        take("abc", count, environment="toy", argument="num_examples")  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [(3, 2), (0, 2), (1,), (1, 2, 3), "12", (1, 2.0), (True, 2), 5, None])
def test_a_range_is_two_ordered_integers(value: object) -> None:
    with pytest.raises(UsageError, match=r"size=.* must be \[low, high\], two integers with 1 <= low <= high"):
        check_range(value, environment="toy", argument="size", minimum=1)
    assert check_range([1, 2], environment="toy", argument="size", minimum=1) == (1, 2)
