"""Numbers of rows that each source gives."""

from __future__ import annotations

import pytest

from polygym.data.counts import Amount, counts_of
from polygym.errors import UsageError

ROWS = {"a": 100, "b": 10}
WEIGHTS = {"a": 3.0, "b": 1.0}


@pytest.mark.parametrize(
    ("weights", "count", "epochs", "expected"),
    [
        ({}, None, None, {"a": 100, "b": 10}),
        ({}, None, 3, {"a": 300, "b": 30}),
        ({}, None, {"b": 7}, {"a": 100, "b": 70}),
        (WEIGHTS, None, None, {"a": 30, "b": 10}),
        (WEIGHTS, None, {"b": 3}, {"a": 90, "b": 30}),
        (WEIGHTS, None, {"b": 9}, {"a": 100, "b": 33}),
        ({}, 7, None, {"a": 4, "b": 3}),
        (WEIGHTS, 1_000, None, {"a": 750, "b": 250}),
        (WEIGHTS, 40, 1, {"a": 30, "b": 10}),
        ({}, {"b": 25}, None, {"a": 100, "b": 25}),
        ({}, {"a": 1, "b": 25}, 3, {"a": 1, "b": 25}),
        ({"a": 0.1, "b": 0.2}, 3, None, {"a": 1, "b": 2}),
    ],
)
def test_counts(
    weights: dict[str, float], count: Amount | None, epochs: Amount | None, expected: dict[str, int]
) -> None:
    assert counts_of(ROWS, weights, count, epochs) == expected


@pytest.mark.parametrize(
    ("weights", "count", "epochs", "said"),
    [
        ({"a": 1.0, "b": 0.001}, None, None, "leave no row for 'b'"),
        ({}, 1, None, "--count 1 leaves no row for b"),
        (WEIGHTS, {"a": 4}, None, "contradict each other"),
        ({}, {"c": 4}, None, "--count names 'c', which is not added; Allowed: a, b"),
        ({}, None, {"aa": 4}, "--epochs names 'aa', which is not added; did you mean 'a'"),
        ({}, 0, None, "--count 0 must be an integer of at least 1"),
        ({}, None, {"a": 0}, "--epochs 0 must be"),
        (WEIGHTS, 43, 1, "11 rows of 'b' are more than its 10 rows in --epochs give, which is 10"),
        ({}, {"b": 21}, {"b": 2}, "21 rows of 'b' are more than its 10 rows"),
    ],
)
def test_numbers_that_cannot_be_had_are_refused(
    weights: dict[str, float], count: Amount | None, epochs: Amount | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        counts_of(ROWS, weights, count, epochs)


def test_a_total_is_split_to_the_last_row() -> None:
    for total in range(20, 200):
        counts = counts_of(dict.fromkeys("abcde", 1), dict(zip("abcde", [5, 4, 3, 2, 1.5], strict=True)), total, None)
        assert sum(counts.values()) == total
        assert list(counts.values()) == sorted(counts.values(), reverse=True)
