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
    if "ok" in expected:
        assert check_seed(seed, given["limit"], given.get("index", 0)) == expected["ok"]
        return
    with pytest.raises(UsageError) as caught:
        check_seed(seed, given["limit"], given.get("index", 0))
    assert {"seed_type": "give an integer", "seed_range": "is outside"}[expected["error"]] in str(caught.value)


def test_a_derived_seed_is_the_same_in_every_process_and_differs_by_type() -> None:
    assert derive_seed(0, "math", 7) == 421487550420829563
    assert len({derive_seed(0, "math", 7), derive_seed(0, "math", "7"), derive_seed(0, "mat", "h7")}) == 3
