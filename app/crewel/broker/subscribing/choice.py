"""Whether a session wants one message of a channel that it hears."""

from __future__ import annotations

from enum import Enum

__all__ = ["Heard"]


class Heard(Enum):
    """How one message reaches a session, by the options of its subscriptions."""

    NO = "not at all"
    YES = "as others"
    ONEWAY = "without waiting for its answer"
