"""What all tests share: no network credentials from outside, and one thread of linear algebra a process."""

from __future__ import annotations

import os
import signal

import pytest

# A shell that starts the suite in the background lets it ignore SIGINT, and children inherit that: Ctrl-C is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def _no_endpoint_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
