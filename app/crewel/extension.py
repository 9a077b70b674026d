"""The base of server extensions.

An extension sees every message of the server; a `SessionPart`, which it adds to a session, sees that session's. `broker.pipe`
says in which order their hooks run.
"""

from __future__ import annotations

from typing import ClassVar

from crewel.bayeux.message import Fields, Message
from crewel.broker.broker import Broker
from crewel.broker.pipe import does_nothing
from crewel.broker.session import Session


class Extension:
    """The base of server extensions; override what you need. `ext` values live under `name` by convention."""

    name = ""
    field: ClassVar[str | None] = None
    """The field of `ext` that it acts on. Meta messages without it do not come to an extension that names one; None sees
    every meta message."""
    meta_channels: ClassVar[frozenset[str] | None] = None
    """The meta channels whose messages come to it; None is all of them."""
    encodes: ClassVar[tuple[type, ...]] = ()
    """Types of `data` that JSON cannot say and that its `send` makes JSON of."""

    def installed(self, broker: Broker) -> None:
        """Called once, before the first message."""

    def restored(self, session: Session) -> None:
        """Called for each session that is restored from the store: attach the state that its handshake attached."""

    @does_nothing
    def rcv(self, session: Session | None, message: Message) -> bool:
        """Called for each publish that arrives; False refuses it. `session` is None if it is unknown, because this runs before
        the session is checked."""
        return True

    @does_nothing
    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """A meta message came in; on a handshake `session` is the one that will be, should it be granted."""
        return True

    @does_nothing
    def send(self, session: Session | None, fields: Fields) -> bool:
        """A message goes out: to all its subscribers (`session` None, once a message and not once a subscriber), to one
        session, or the acknowledgement of a publish (it has `successful`). `fields` may be changed."""
        return True

    @does_nothing
    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """A meta reply goes out: for a connect, when it is released and not when it is held. `message` is its request."""
        return True
