"""Publishes that travel in one payload."""

from __future__ import annotations

from typing import Any, Unpack

from crewel.bayeux.message import Fields
from crewel.client import publish_options
from crewel.client.client_message import Reply
from crewel.client.publish_options import PublishOptions
from crewel.client.sync.background import Block, Fact


class Batch(Block[publish_options.Batch]):
    """Collects until its block ends, then sends everything at once, in order: `with client.batch() as batch:`.

    If the block raises, nothing is sent. If the server refuses some of the messages, leaving the block raises `PublishRefused`
    for the first of them; `replies` has the reply to each.
    """

    # Written by tools/sync_client.py, as crewel.client.Batch has it
    replies = Fact[list[Reply]]("_origin", "replies")
    """One reply for each message, in the order of publishing, once the block has ended."""

    def publish(self, channel: str, data: Any, ext: Fields | None = None, **options: Unpack[PublishOptions]) -> None:
        """Add one message. Raises ValueError for a channel that takes no publish."""
        self._origin.publish(channel, data, ext, **options)

    # End of what is written
