"""What an extension keeps for one session, and the hooks by which it sees the session's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from crewel.bayeux.message import Fields, Message
from crewel.delivery.entry import Entry

if TYPE_CHECKING:
    from crewel.broker.session import Session


class SessionPart:
    """What an extension keeps for one session; override what you need."""

    is_plain: ClassVar[bool] = False
    """Whether it has a short way for the connects of a waiting client, `takes` and `answer`. It is used while the session
    has no other part."""

    def takes(self, session: Session, ext: Fields) -> bool:
        """A connect came that says nothing but this in `ext`, while nothing waits for the session. True: all is done that
        `rcv_meta` would do. False: nothing is done, and `rcv_meta` will be asked."""
        return False

    def answer(self, session: Session) -> bytes:
        """What the reply to such a connect says in `ext`: the JSON, less the braces around it."""
        return b""

    def rcv(self, session: Session, message: Message) -> bool:
        """A publish of this session came in."""
        return True

    def rcv_meta(self, session: Session, message: Message) -> bool:
        """A meta message of this session came in."""
        return True

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """These entries leave for the client in one response: the ones that shall, in their order. An entry is shared by
        all its receivers: replace, never change."""
        return entries

    def send_meta(self, session: Session, reply: Fields, message: Message) -> bool:
        """A meta reply to this session goes out."""
        return True
