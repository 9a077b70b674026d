"""An entry: one message on its way to sessions. Queues hold references to it, and it is encoded once for all of them."""

from __future__ import annotations

from crewel.bayeux.codec import encode
from crewel.bayeux.message import Fields

__all__ = ["Entry"]


class Entry:
    """A message as its receivers get it. `fields` must not change once somebody has read `wire`; a receiver that needs
    another form gets an entry of its own."""

    __slots__ = ("_wire", "fields", "lazy")

    def __init__(self, fields: Fields, *, lazy: bool = False) -> None:
        self.fields = fields
        self.lazy = lazy
        self._wire: bytes | None = None

    @property
    def channel(self) -> str:
        """The channel that it is delivered on."""
        name: str = self.fields["channel"]
        return name

    @property
    def wire(self) -> bytes:
        """Its JSON, encoded at the first need. Raises TypeError if the server's own code put in what JSON cannot say."""
        if self._wire is None:
            self._wire = encode(self.fields)
        return self._wire
