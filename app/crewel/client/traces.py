"""Where a client makes spans: around what it publishes and asks, and around what the application does with a message.

A client without `traces` makes none, and does not import OpenTelemetry.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Literal

from crewel.bayeux.message import Fields
from crewel.client.client_message import Message

Operation = Literal["publish", "request"]
_NOTHING: Final = nullcontext()


class Traces:
    """Makes no spans."""

    def sending(self, operation: Operation, message: Fields) -> AbstractContextManager[Any]:
        """The block in which this message is sent, whose `ext` then has the context of the block."""
        return _NOTHING

    def failed(self, message: Fields, code: str, text: str) -> None:
        """A message that was sent after its block of `sending` was refused: with this dotted code or name of an exception."""

    def processing(self, message: Message) -> AbstractContextManager[Any]:
        """The block in which the application processes this message."""
        return _NOTHING

    def fail_processing(self, error: Exception) -> None:
        """The current block of `processing` fails with an exception that does not leave it."""


NO_TRACES: Final = Traces()
