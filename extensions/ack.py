"""Acknowledged messages: what a client has not acknowledged is sent again.

The server half of the pair whose browser half is the official client's `AckExtension`. As in the extension that this comes
from, the server's part adds a part to each session that asks for it. Its `rcv_meta` takes the acknowledgement, and `send_meta`
tells the batch id. The session's mailbox keeps what leaves; what an acknowledgement means for the session is the work of the
port, `broker.durability.acknowledgements`. Such a session gets messages with connect replies only, on every transport.
"""

from __future__ import annotations

from crewel.bayeux.message import AWAITS, Fields, Message
from crewel.broker.broker import Broker
from crewel.broker.durability.acknowledgements import Acknowledgements
from crewel.broker.session import Session, SessionPart
from crewel.extension import Extension

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"


class AckExtension(Extension):
    """Adds an `AcknowledgedSession` to each session whose handshake carries `ext.ack` true."""

    name = field = "ack"
    meta_channels = frozenset((HANDSHAKE,))

    def installed(self, broker: Broker) -> None:
        """Remember the port, and whether handshake replies carry messages."""
        self._port = broker.durability.acknowledgements
        self._settings = broker.settings.bayeux

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """Note on a handshake that the client acknowledges. The string `"true"` of old documents counts too."""
        if session is not None and "ext" in message.fields and _asks(message):
            self._begin(session)
        return True

    def restored(self, session: Session) -> None:
        """Let a session that acknowledges continue doing so."""
        if session.acknowledges:
            self._begin(session)

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Tell on the handshake that acknowledgements are on."""
        if session is not None and session.acknowledges and reply["successful"]:
            if self._settings.allow_message_delivery_during_handshake:
                _tell(reply, {"enabled": True, "batch": session.mailbox.close_batch()})
            else:
                _tell(reply, message.ext["ack"])  # in kind: true, or "true"
        return True

    def _begin(self, session: Session) -> None:
        self._port.begin(session)
        session.add_part(AcknowledgedSession(self._port))


class AcknowledgedSession(SessionPart):
    """The wire half of one session's acknowledgements."""

    __slots__ = ("_brings_new", "_port")
    is_plain = True

    def __init__(self, port: Acknowledgements) -> None:
        self._port = port
        self._brings_new = False  # whether the reply to the last connect brings nothing again

    def takes(self, session: Session, ext: Fields) -> bool:
        """A client that waits acknowledges the last batch: that settles everything."""
        if len(ext) != 1 or "ack" not in ext:
            return False
        batch = ext["ack"]
        if type(batch) is not int or batch != session.mailbox.expected() or batch < 0:
            return False
        self._port.confirm(session)
        return True

    def expects(self, session: Session) -> bytes:
        """The last batch."""
        batch = session.mailbox.expected()
        return b'"ack":%d' % batch if batch >= 0 else b""

    def took_all(self, session: Session) -> None:
        """That settles everything."""
        self._port.confirm(session)

    def answer(self, session: Session) -> bytes:
        """Tell the batch id."""
        return b'"ack":%d' % session.mailbox.close_batch()

    def rcv_meta(self, session: Session, message: Message) -> bool:
        """Take the acknowledgement that a connect carries."""
        if message.channel.name == CONNECT and session.is_live:
            ext = message.fields.get("ext")
            batch = ext.get("ack") if type(ext) is dict else None
            # By type: `true` is an int to `isinstance`.
            self._port.connected(session, message, batch if type(batch) is int else None)
            self._brings_new = session.mailbox.expected() >= 0
        return True

    def send_meta(self, session: Session, reply: Fields, message: Message) -> bool:
        """Tell the batch id of a connect reply. The reply to a client that is busy is none: it brings nothing, and the client
        has the batches that it does not acknowledge yet. One that waits for an answer learns whether it has them still."""
        if reply["successful"] and message.channel.name == CONNECT and not message.says_busy:
            _tell(reply, session.mailbox.close_batch())
            if self._brings_new and message.awaits_answer:
                reply["ext"]["busy"] = AWAITS
        return True


def _tell(reply: Fields, answer: object) -> None:
    reply.setdefault("ext", {})["ack"] = answer


def _asks(message: Message) -> bool:
    asked = message.ext.get("ack")
    return asked is True or asked == "true"  # by identity: 1 == True, and 1 asks for nothing
