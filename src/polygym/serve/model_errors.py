"""Errors of the model server, in the shape that OpenAI's clients read.

The one idea: a status tells a client whether to try again, so an endpoint's own status and its Retry-After go through
as they came, and what will not pass by itself says so.
"""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import Response

from polygym.errors import PolicyError
from polygym.serve.app import json_response

INVALID, SERVER = "invalid_request_error", "server_error"
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
_STATUSES = {"rate_limited": 429, "timeout": 504, "generation": 500, "oracle": 422, "refused": 400, "empty_sample": 422}
"""Status for a kind of failure that came without one; 502 for the others."""


class ApiError(Exception):
    """A request that ends in an error: `status`, and the fields of OpenAI's error object.

    Args:
        retry_after: seconds after which it is worth trying again.
        passing: whether trying again may help at all.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        passing: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after = retry_after
        self.passing = passing

    def body(self) -> dict[str, Any]:
        """OpenAI's error object."""
        kind = _TYPES.get(self.status, INVALID if self.status < 500 else SERVER)
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The answer to send."""
        headers = {}
        if self.retry_after is not None:
            headers = {"Retry-After": str(math.ceil(self.retry_after)), "retry-after-ms": f"{self.retry_after * 1e3:g}"}
        if not self.passing:
            headers["x-should-retry"] = "false"
        return json_response(self.body(), self.status, headers)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """400: the caller has to change something."""
    return ApiError(400, message, param=param, code=code)


def unknown_model(name: object, known: str) -> ApiError:
    """A request for a model that is not here, in the code of OpenAI and vLLM."""
    return ApiError(
        404, f"the model {name!r:.80} does not exist; this server has {known!r}", code="model_not_found", param="model"
    )


def context_overflow(prompt_tokens: int) -> ApiError:
    """400 in the words that clients know a full context by."""
    known = f" The prompt has {prompt_tokens} tokens." if prompt_tokens else ""
    return bad_request(
        f"The prompt exceeds the maximum context length of the model.{known} Please reduce the length of the messages.",
        "messages",
        "context_length_exceeded",
    )


def failed_policy(error: PolicyError) -> ApiError:
    """What a client is told when the policy could not answer; `code` is the error's kind.

    What is refused, and an endpoint that was not asked because it was found dead, is not worth another try.
    """
    status = error.status if error.status is not None and error.status >= 400 else _STATUSES.get(error.kind, 502)
    return ApiError(
        status,
        str(error),
        code=error.kind,
        retry_after=error.retry_after,
        passing=error.asked and error.kind not in ("refused", "oracle", "empty_sample"),
    )
