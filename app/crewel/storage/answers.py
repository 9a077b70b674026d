"""What scripts answer instead of a result when they refuse: one word, and the error that it means here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

from crewel.errors import Behind, Fenced, StoreError, StoreUnavailable

T = TypeVar("T")


class TooManySessions(StoreError):
    """The subject has as many sessions as it may have."""

    code = "user.configuration.maxSession"


_REFUSALS: Final[dict[bytes, tuple[type[StoreError], str]]] = {
    b"fenced": (Fenced, "another server owns this by now"),
    b"behind": (Behind, "the store has lost a commit that it had answered"),
    b"early": (StoreUnavailable, "a part of the commit that comes before is not written yet"),
    b"ending": (StoreUnavailable, "the session of this name is just ending"),
    b"too many": (TooManySessions, "the subject has as many sessions as it may have"),
}


def unless_refused(parse: Callable[[Any], T]) -> Callable[[Any], T]:
    """Return a parser of answers that raises the error of a refusal, and leaves all other answers to `parse`."""

    @wraps(parse)
    def parsed(answer: Any) -> T:
        refusal = _REFUSALS.get(answer) if isinstance(answer, bytes) else None
        if refusal is not None:
            error, text = refusal
            raise error(text)
        return parse(answer)

    return parsed
