"""Data as models and dataclasses have it, and as JSON has it: read for a subscription, and written for a publish."""

from __future__ import annotations

import dataclasses
import logging
from decimal import Decimal
from inspect import isroutine
from typing import Any, Final

from crewel.bayeux.codec import encode, encoded
from crewel.client.arguments import wrong_type
from crewel.client.client_message import Message
from crewel.client.errors import NotEncodableError, said

log = logging.getLogger("crewel.client")

ILLEGAL: Final = "user.update.illegalArgument"
"""The code with which a message is rejected whose data has another type."""
_EXPECTED: Final = "a type, such as a pydantic model or a dataclass"
_MOST_FAULTS: Final = 3
"""How many of the faults of one message its rejection names."""


class Payload:
    """What the data of a subscription is read as: a pydantic model, a dataclass, a TypedDict, or another type that pydantic
    knows. Raises TypeError for what it cannot read as."""

    def __init__(self, kind: Any) -> None:
        import pydantic  # only programs that name a type need it, and loading it takes a while

        if isinstance(kind, str | dict | list | tuple) or isroutine(kind):  # pydantic takes a dict for a schema
            raise wrong_type("data", kind, _EXPECTED)
        try:
            self._adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(kind)
        except (pydantic.errors.PydanticUserError, TypeError) as error:
            reason = str(error).partition("\n")[0]
            raise TypeError(f"{wrong_type('data', kind, _EXPECTED)}: {reason}") from None
        self._invalid = pydantic.ValidationError

    def read(self, message: Message[Any]) -> str | None:
        """Give the message its data in this type. Returns why that is not possible, or None."""
        try:
            message.data = self._validated(message)
        except self._invalid as error:
            return _faults(error.errors(include_url=False, include_input=False))
        except Exception as error:  # pydantic passes on what a validator raises, unless it is a ValueError
            log.warning("a validator failed", exc_info=error)
            return said(error)
        return None

    def _validated(self, message: Message[Any]) -> Any:
        # What was received, and not what an earlier attempt has made of it.
        received = message.fields["data"] if message.content is None else message.content
        try:
            return self._adapter.validate_python(received)
        except self._invalid:
            # A strict model takes a text for a time from JSON only.
            return self._adapter.validate_json(encode(message.fields["data"]))


def _faults(errors: list[Any]) -> str:
    shown = [f"{_place(each['loc'])}: {each['msg']}" for each in errors[:_MOST_FAULTS]]
    more = len(errors) - len(shown)
    return "; ".join([*shown, f"and {more} more"] if more else shown)


def _place(parts: tuple[int | str, ...]) -> str:
    return "data" + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in parts)


def written(value: Any) -> bytes:
    """The JSON of a value, in which a Decimal is a text, a pydantic model an object, and a named tuple a list. Raises
    NotEncodableError, which names what JSON cannot say, and its place."""
    try:
        return encoded(value, "")
    except TypeError as error:
        fault = str(error)
    try:
        return encoded(_plain(value), "")
    except (TypeError, ValueError) as error:
        fault = str(error)
    except RecursionError:
        pass  # it contains itself, as the first fault says
    raise NotEncodableError(fault)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)  # and not a number, which would lose digits
    if isinstance(value, type):
        return value
    if dataclasses.is_dataclass(value):
        return {
            each.name: _plain(getattr(value, each.name)) for each in dataclasses.fields(value) if each.name[0] != "_"
        }
    dump = getattr(value, "model_dump", None)
    return value if dump is None else dump(mode="json")
