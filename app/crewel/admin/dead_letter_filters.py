"""What dead letters are chosen by: the fields of requests, which the command line takes as options with the same checks."""

from __future__ import annotations

from typing import Final

from crewel.admin.request_fields import Field, pattern, text_field
from crewel.qos.fields import text_that
from crewel.qos.names import parse_name
from crewel.storage.dead_letter_matching import parse_field
from crewel.storage.dead_letter_records import is_dead_id
from crewel.times import EXPECTED, since

_MOST_FIELD: Final = 1024

dead_letter_id: Final = text_that(is_dead_id, "the id of a dead letter, such as 1795179106957-0")


def _receiver(value: object) -> str:
    name = parse_name(value) if isinstance(value, str) else None
    if name is None:
        raise ValueError("the name of a session or a subject: client/joe/1 or client/joe")
    return name.relative


def _code(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 128 or not value.replace(".", "").isalnum():
        raise ValueError("an error code, or its beginning: user.update")
    return value.rstrip(".")


def _field(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MOST_FIELD:
        raise ValueError("a field of the data and its value: order=100 or lines.sku=A7")
    parse_field(value)
    return value


def _returns(value: object) -> int:
    """In a query it is a text, in a body a number."""
    number = int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 10**9:
        raise ValueError("a whole number from 0 on")
    return number


WITH_FIELD: Final = text_field(
    "field",
    "Only those whose data has this field with exactly this value: `order=100`, `lines.sku=A7`. A path goes through lists.",
    _field,
)
FILTERS: Final = (
    text_field("code", "Only dead letters with this error code, or one below it.", _code),
    text_field("receiver", "Only those of this session (client/joe/1) or of this subject (client/joe).", _receiver),
    text_field("channel", "Only those of this channel or pattern.", pattern),
    text_field("since", f"Only those from this time on: {EXPECTED}.", since),
    text_field("until", "Only those up to this id.", dead_letter_id),
    text_field(
        "contains", "Only those with this text in data, options, reason, sender, message id or the code as given."
    ),
    text_field("like", "Only those whose data has this shape: `like` of a group."),
    text_field("deadReason", "Only those with this reason, whatever its numbers are: `value` of a group by reason."),
    WITH_FIELD,
    Field(
        "returns",
        _returns,
        {"type": "integer", "minimum": 0},
        "Only those whose message was redriven so many times before, and came back each time. 0: never redriven.",
    ),
)
ATTRIBUTES: Final = {each.name: each.name for each in FILTERS} | {"since": "since_ms", "deadReason": "reason"}
"""What each is in `DeadLetterFilter`."""
