from __future__ import annotations

from typing import Any

import pytest

import case_rows
from polygym.errors import UsageError
from polygym.seeds import check_seed, derive_seed


@case_rows.parametrize("seed_range")
def test_case_seed_range(case: dict[str, Any]) -> None:
    given, expected = case["input"], case["expected"]
    seed = given["seed"] if "seed" in given else given["base"]
    limit, index = given.get("limit", "int64"), given.get("index", 0)
    if "ok" in expected:
        assert check_seed(seed, limit, index) == expected["ok"]
        return
    with pytest.raises(UsageError) as caught:
        check_seed(seed, limit, index)
    assert {"seed_type": "give an integer", "seed_range": "is outside"}[expected["error"]] in str(caught.value)


@pytest.mark.parametrize(
    ("seed", "limit", "index", "found"),
    [
        (0, "uint32", 0, 0),
        (2**32 - 1, "uint32", 0, 2**32 - 1),
        (2**32 - 2, "uint32", 1, 2**32 - 1),
        (2**32, "uint32", 0, "seed=4294967296 is outside"),
        (-1, "int64", 0, "seed=-1 is outside"),
        (2**63 - 1, "int64", 1, "is outside"),
        ("1", "uint32", 0, "seed='1' is a str"),
        (None, "uint32", 0, "seed=None is a NoneType"),
        (5, "uint32", 1.0, "index=1.0 is a float"),
        (5, "uint32", True, "index=True is a bool"),
    ],
)
def test_a_seed_and_its_index_are_integers_whose_sum_is_in_range(seed: Any, limit: str, index: Any, found: Any) -> None:
    if isinstance(found, int):
        assert check_seed(seed, limit, index) == found
        return
    with pytest.raises(UsageError, match=found):
        check_seed(seed, limit, index)


def test_a_derived_seed_is_the_same_in_every_process_and_differs_by_type() -> None:
    assert derive_seed(0, "math", 7) == 421487550420829563
    assert len({derive_seed(0, "math", 7), derive_seed(0, "math", "7"), derive_seed(0, "mat", "h7")}) == 3
