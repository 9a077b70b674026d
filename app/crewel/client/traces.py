"""Where a client makes spans: around what it publishes and asks, and around what the application does with a message.

A client without `traces` makes none, and does not import OpenTelemetry.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal

from crewel.bayeux.message import Fields
from crewel.client.client_message import Message
from crewel.client.errors import ClientError

Operation = Literal["publish", "request"]
_NOTHING: Final = nullcontext()


class Traces:
    """Makes no spans."""

    def sending(self, operation: Operation, message: Fields) -> AbstractContextManager[Any]:
        """The block in which this message is sent, whose `ext` then has the context of the block."""
        return _NOTHING

    def processing(self, message: Message) -> AbstractContextManager[Any]:
        """The block in which the application processes this message."""
        return _NOTHING


NO_TRACES: Final = Traces()


def traces(*, is_on: bool) -> Traces:
    """What makes the spans of a client. Raises ClientError if OpenTelemetry is not installed."""
    if not is_on:
        return NO_TRACES
    try:
        from crewel.client.client_spans import Telemetry
    except ImportError as error:
        raise ClientError(f"traces needs OpenTelemetry: install crewel[otel] (there is no {error.name})") from error
    return Telemetry()
