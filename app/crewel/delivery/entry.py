"""An entry: one message on its way to sessions. Queues hold references to it, and it is encoded once for all of them."""

from __future__ import annotations

from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields

__all__ = ["Entry"]


class Entry:
    """A message as its receivers get it. `fields` must not change any more; a receiver that needs another form gets an
    entry of its own."""

    __slots__ = ("fields", "lazy", "wire")

    def __init__(self, fields: Fields, *, lazy: bool = False) -> None:
        """Raises TypeError for fields that JSON cannot say: for who sends them, and not when a response is made."""
        self.fields = fields
        self.lazy = lazy
        self.wire = encode(fields)
        """Its JSON."""

    @property
    def channel(self) -> str:
        """The channel that it is delivered on."""
        name: str = self.fields["channel"]
        return name
