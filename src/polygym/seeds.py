"""Seeds: one random stream for every rollout and turn, named by what it belongs to.

The one idea: a seed is a hash of names, never a counter, so the order in which work happens to run cannot change it.
"""

from __future__ import annotations

import hashlib

from polygym.errors import UsageError

LIMITS = {"uint32": 2**32 - 1, "int64": 2**63 - 1}


def check_seed(seed: object, limit: str = "int64", index: object = 0) -> int:
    """`seed + index`, if it is an integer from 0 to the largest of `limit`.

    Raises:
        UsageError: when either is not an integer (True and 1.0 are not) or the sum leaves the range.
    """
    seed, index = _integer("seed", seed, limit), _integer("index", index, limit)
    value = seed + index
    if not 0 <= value <= LIMITS[limit]:
        plus = f" + {index}" if index else ""
        raise UsageError(f"seed={seed}{plus} is outside 0 to {LIMITS[limit]} ({limit})")
    return value


def _integer(name: str, value: object, limit: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"{name}={value!r} is a {type(value).__name__}; give an integer from 0 to {LIMITS[limit]}")
    return value


def derive_seed(*parts: int | str) -> int:
    """A seed from 0 to 2**63 - 1 that is a pure function of `parts`; `1` and `"1"` are different parts.

    >>> derive_seed(0, "math", 7) == derive_seed(0, "math", 7) != derive_seed(0, "math", "7")
    True
    """
    text = "\x1f".join(f"{type(part).__name__[0]}{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
