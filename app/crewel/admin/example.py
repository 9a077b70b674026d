"""What the documentation shows of requests: an example of each, and what stands in it for the variables of its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Example(NamedTuple):
    """A request, and some of what it is answered with. A test sends each."""

    fields: Mapping[str, Any]
    """Those of the query, or of the body."""
    answer: Mapping[str, Any]
    """Some fields of the answer, or of one of its lines; its lists are shortened too."""


_VARIABLES: Final = (
    ("subject", "joe", "The subject: joe of client/joe/1."),
    ("number", "1", "The session's number: 1 of client/joe/1."),
    ("id", "1795179106957-0", "The dead id."),
    ("job", "1795335085761-17", "The id of a job."),
    ("message", "1795324804876345", "The id of a stored message, or of a dead letter."),
    ("scheduled", "1795324804876345", "The id of a scheduled message."),
    ("channel", "kitchen/orders", "The channel's name with its slashes, without the first one: a/b of /a/b."),
)
VARIABLES: Final = {name: meaning for name, _, meaning in _VARIABLES}
"""What each variable of a path means."""
SAMPLES: Final = {name: sample for name, sample, _ in _VARIABLES}
"""What stands for it in an example."""
