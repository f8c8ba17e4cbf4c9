"""When to try again."""

from __future__ import annotations

import time
from email.utils import formatdate

import pytest

from polygym.policies.backoff import CircuitBreaker, backoff_seconds, retry_after_seconds


def test_waits_double_up_to_half_a_minute_less_a_random_half() -> None:
    assert [backoff_seconds(tries, lambda: 0.0) for tries in range(1, 9)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoff_seconds(3, lambda: 1.0) == 1.0
    assert backoff_seconds(10_000, lambda: 0.0) == 30.0
    assert len({backoff_seconds(3) for _ in range(20)}) > 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0.25 "}, 0.25),
        ({"Retry-After": "7", "retry-after-ms": "1500"}, 1.5),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}, 30.0),
        ({"Retry-After": "Wed, 99 Oct 2015 07:28:30 GMT"}, None),
    ],
)
def test_retry_after_is_read_in_seconds_milliseconds_or_as_a_date(headers: dict[str, str], seconds: object) -> None:
    assert retry_after_seconds(headers) == seconds


def test_a_date_without_the_servers_clock_is_read_by_ours() -> None:
    wait = retry_after_seconds({"Retry-After": formatdate(time.time() + 60, usegmt=True)})
    assert wait is not None
    assert 58 < wait <= 60


def test_the_breaker_opens_after_so_many_failures_in_a_row_and_lets_one_probe_through_each_time() -> None:
    now = 100.0
    breaker = CircuitBreaker(threshold=2, cooldown_seconds=10, clock=lambda: now)
    breaker.failed("refused", "endpoint")
    breaker.answered()
    breaker.failed("refused", "endpoint")
    assert not breaker.is_open
    breaker.failed("still refused", "timeout")
    assert (breaker.is_open, breaker.cause, breaker.kind) == (True, "still refused", "timeout")
    assert not breaker.admit_probe()
    now = 110.0
    assert [breaker.admit_probe() for _ in range(3)] == [True, False, False]
    now = 112.0
    breaker.failed("refused again", "endpoint")
    now = 121.0
    assert not breaker.admit_probe()
    now = 122.0
    assert breaker.admit_probe()
    breaker.answered()
    assert not breaker.is_open
