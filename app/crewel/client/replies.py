"""What the server answers to a publish and to a subscribe, beside whether it did it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crewel.bayeux.message import Fields


@dataclass(frozen=True, slots=True)
class DestinationState:
    """How one destination of a publish fared."""

    to: str
    """The address, as it was given."""
    state: str
    """`OK`, or another word if it did not get the message."""
    error_code: str = ""
    """Why not, as a dotted code."""

    @property
    def is_ok(self) -> bool:
        """Whether the message is on its way there, or waits for it."""
        return self.state == "OK"


class Reply(dict[str, Any]):
    """The server's reply to a publish: its fields, the id of the message, and how each destination fared."""

    @property
    def message_id(self) -> str | None:
        """The message's id; None if the server was not asked for it, by `persistent` or anything else in `ext.publish`."""
        message_id = told_of(self, "publish").get("id")
        return message_id if isinstance(message_id, str) else None

    @property
    def destinations(self) -> tuple[DestinationState, ...]:
        """How each destination fared, in the order of the publish; empty if it had none."""
        return destinations_of(self)


def told_of(reply: Fields, part: str) -> Fields:
    """This part of a reply's `ext`; empty if it has none."""
    ext = reply.get("ext")
    told = ext.get(part) if isinstance(ext, dict) else None
    return told if isinstance(told, dict) else {}


def destinations_of(reply: Fields) -> tuple[DestinationState, ...]:
    """How each destination fared, as the reply to a publish tells it, successful or not."""
    told = told_of(reply, "publish").get("destinations")
    return tuple(_state(each) for each in told if isinstance(each, dict)) if isinstance(told, list) else ()


def _state(told: Fields) -> DestinationState:
    to, state, error_code = (told.get(name) for name in ("to", "state", "errorCode"))
    return DestinationState(
        to if isinstance(to, str) else "",
        state if isinstance(state, str) else "",
        error_code if isinstance(error_code, str) else "",
    )
