"""Keeping secrets out of what others read.

The one idea: a value is secret because of the key it stands under, and then everywhere: documents are masked by key,
texts by value. User, password and query of an address are secret wherever it stands.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MASK = "****"
_SECRET_KEY = re.compile(r"(?:^|[_-])(?:api_?key|key|token|secret|password|authorization)$", re.IGNORECASE)
_USER_INFO = re.compile(r"(?<=://)[^/\s@]+@")
_QUERY = re.compile(r"(://[^\s?#'\"]*\?)[^\s#'\"]+")
_MIN_LENGTH = 4  # a shorter value is no secret, and masking it would tear texts apart


def is_secret_key(key: object) -> bool:
    """Whether what stands under `key` is secret.

    >>> [is_secret_key(key) for key in ("policy_api_key", "token", "max_total_tokens", "return_token_id_information")]
    [True, True, False, False]
    """
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None


def masked(value: Any) -> Any:
    """A copy of a document without its secrets.

    >>> masked({"api_key": "sk-1234", "url": "http://me:pass@host/v1", "port": 8000})
    {'api_key': '****', 'url': 'http://****@host/v1', 'port': 8000}
    """
    if isinstance(value, Mapping):
        return {key: MASK if is_secret_key(key) and item is not None else masked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [masked(item) for item in value]
    return _masked_urls(value) if isinstance(value, str) else value


def secrets_of(value: Any, *, secret: bool = False) -> set[str]:
    """The secret texts of a document."""
    if isinstance(value, Mapping):
        return set().union(*(secrets_of(item, secret=secret or is_secret_key(key)) for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        return set().union(*(secrets_of(item, secret=secret) for item in value))
    return {str(value)} if secret and value is not None else set()


def redacted(text: str, secrets: Iterable[str]) -> str:
    """`text` without the secrets, longest first.

    >>> redacted("key sk-1234 was refused", ["sk-1234"])
    'key **** was refused'
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _MIN_LENGTH:
            text = text.replace(secret, MASK)
    return _masked_urls(text)


def _masked_urls(text: str) -> str:
    """`text` without what addresses in it hold for their server alone.

    >>> _masked_urls("http://me:pass@host/v1 and http://host/v1?api_key=1&b=2")
    'http://****@host/v1 and http://host/v1?****'
    """
    return _QUERY.sub(rf"\1{MASK}", _USER_INFO.sub(f"{MASK}@", text))


def hide_arguments(*given: str | None) -> None:
    """Overwrite secrets in this process's own command line, which every user of the machine can read (Linux)."""
    if sys.platform != "linux":
        return
    import ctypes

    # fields 48 and 49 of proc_pid_stat(5); the name in brackets, the second field, may hold blanks
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    memory = ctypes.string_at(start, end - start)
    for secret in (argument.encode() for argument in given if argument):
        place = memory.find(secret)
        while place >= 0:
            ctypes.memset(start + place, ord("*"), len(secret))
            place = memory.find(secret, place + 1)
