"""Typed methods of a resources server that somebody writes: tools, seeding, grading.

The one idea: the annotation of `body` says what a request must hold. A pydantic model is checked before the method
runs, and what does not fit is told in words.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from polygym.errors import UsageError
from polygym.serve.sessions import Session

TOOL_MARK = "_polygym_tool"
Method = TypeVar("Method", bound=Callable[..., Any])


def tool(method: Method) -> Method:
    """Mark a method `(self, body, session)`, sync or async, as a tool named like it. `session` may be left out.

    `body` is annotated with a pydantic model of the arguments, or with `dict` to take them as they are. What is
    returned (text, a pydantic model, anything JSON can hold) is what the policy reads.
    """
    setattr(method, TOOL_MARK, True)
    return method


class VerifyRequest(BaseModel):
    """What `/verify` is sent: the row and the finished response. Subclass it to name the row's own keys."""

    model_config = ConfigDict(extra="allow")

    responses_create_params: dict[str, Any]
    response: dict[str, Any]


class TypedMethod:
    """A method `(body)` or `(body, session)` whose body is read as its annotation says."""

    def __init__(self, method: Callable[..., Any]) -> None:
        parameters = list(inspect.signature(method).parameters)
        if not 1 <= len(parameters) <= 2:
            raise UsageError(f"{method.__qualname__} must take (self, body) or (self, body, session)")
        try:
            hint = typing.get_type_hints(method).get(parameters[0])
        except NameError as error:
            raise UsageError(
                f"{method.__qualname__}: its annotations cannot be read ({error}); write models at the top of a module"
            ) from error
        self._method = method
        self._model = hint if isinstance(hint, type) and issubclass(hint, BaseModel) else None
        self._wants_session = len(parameters) == 2

    def read(self, body: dict[str, Any]) -> Any:
        """The body as the method wants it.

        Raises:
            ValidationError: of pydantic.
        """
        return body if self._model is None else self._model.model_validate(body)

    async def __call__(self, body: Any, session: Session) -> Any:
        returned = self._method(body, session) if self._wants_session else self._method(body)
        return await returned if hasattr(returned, "__await__") else returned


def validation_words(error: ValidationError) -> str:
    """What pydantic found, on one line."""
    found = (f"{'.'.join(map(str, item['loc'])) or 'arguments'}: {item['msg']}" for item in error.errors())
    return "; ".join(found)
