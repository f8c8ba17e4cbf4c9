"""Secrets are hidden by key in documents and by value in texts."""

from __future__ import annotations

import subprocess
import sys

import pytest

from polygym.serve.masking import masked, redacted, secrets_of

DOCUMENT = {
    "policy_api_key": "sk-123456",
    "limits": {"max_total_tokens": 100, "token_ids": True},
    "headers": {"Authorization": "Bearer abcd"},
    "keys": [{"password": "pw-1"}],
    "token": None,
    "url": "http://me:pw@host/v1",
}


def test_a_document_is_masked_by_key_and_numbers_of_tokens_are_left():
    assert masked(DOCUMENT) == {
        "policy_api_key": "****",
        "limits": {"max_total_tokens": 100, "token_ids": True},
        "headers": {"Authorization": "****"},
        "keys": [{"password": "****"}],
        "token": None,
        "url": "http://****@host/v1",
    }


def test_a_text_is_masked_by_value():
    secrets = secrets_of(DOCUMENT)
    assert secrets == {"sk-123456", "Bearer abcd", "pw-1"}
    assert redacted("sk-123456 was refused at http://me:pw@host", secrets) == "**** was refused at http://****@host"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_secret_argument_is_overwritten_in_the_command_line():
    code = (
        "import sys; from polygym.serve.masking import hide_arguments; hide_arguments(*sys.argv[2:]); "
        "print(open('/proc/self/cmdline').read().split(chr(0))[-3:], sys.argv[2])"
    )
    done = subprocess.run([sys.executable, "-c", code, "--key", "sk-1234"], capture_output=True, text=True, check=True)
    assert done.stdout == "['--key', '*******', ''] sk-1234\n"
