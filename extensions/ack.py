"""Acknowledged messages: what a client has not acknowledged is sent again (reference 5.1).

The server half of the pair whose browser half is the official client's `AckExtension`. As in the extension that this
comes from, the server's part adds a part to each session that asks for it, which keeps the unacknowledged entries by batch
id: `rcv_meta` takes the acknowledgement and puts back what it does not cover, `send` retains what leaves, and `send_meta`
tells the batch id. Such a session gets messages with connect replies only, on every transport.
"""

from __future__ import annotations

from crewel.bayeux.message import Fields, Message
from crewel.broker.broker import Broker
from crewel.broker.session_part import SessionPart
from crewel.broker.sessions import Session
from crewel.delivery.batches import Batches
from crewel.delivery.durable import Durable
from crewel.delivery.entry import Entry
from crewel.delivery.order import in_order
from crewel.delivery.records import BATCH_BLOCK
from crewel.extension import Extension

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"
_SPARE = 500  # batch numbers that are reserved ahead of need


class AckExtension(Extension):
    """Adds an `AcknowledgedSession` to each session whose handshake carries `ext.ack` true."""

    name = field = "ack"
    meta_channels = frozenset((HANDSHAKE,))

    def installed(self, broker: Broker) -> None:
        """Remember the broker, whose settings and counters the sessions use."""
        self._broker = broker

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """Note on a handshake that the client acknowledges. The string `"true"` of old documents counts too."""
        if session is not None and _asks(message):
            session.connect_only = session.is_reliable = True
            self.restored(session)
        return True

    def restored(self, session: Session) -> None:
        """Let a session that acknowledges go on doing so."""
        if session.is_reliable:
            session.batches = Batches()
            session.add_part(AcknowledgedSession(self._broker, session.batches))


class AcknowledgedSession(SessionPart):
    """The unacknowledged entries of one session."""

    __slots__ = ("_batches", "_broker")
    is_plain = True

    def __init__(self, broker: Broker, batches: Batches) -> None:
        self._broker = broker
        self._batches = batches

    def takes(self, session: Session, ext: Fields) -> bool:
        """A client that waits acknowledges the last batch: that settles everything."""
        batches = self._batches
        if batches.must_resend or len(ext) != 1 or "ack" not in ext:
            return False
        batch = ext["ack"]
        if type(batch) is not int or batch != batches.number - 1:
            return False
        if session.durable is None or session.dispatcher is not None:
            self._acknowledge(session, batch)
        else:
            session.retained = 0
            self._broker.durability.acknowledged(session, session.durable, batches.hand_over())
        return True

    def answer(self, session: Session) -> bytes:
        """Tell the batch id."""
        number = self._batches.close()
        if session.durable is not None and number > session.durable.batch - _SPARE:
            self._reserve(session.durable)
        return b'"ack":%d' % number

    def rcv_meta(self, session: Session, message: Message) -> bool:
        """Take the acknowledgement that a connect carries, and put back what it leaves open."""
        if message.channel.name != CONNECT or not session.is_live:
            return True
        batches, ext = self._batches, message.fields.get("ext")
        batch = ext.get("ack") if type(ext) is dict else None
        if type(batch) is not int:  # by type: `true` is an int to `isinstance`
            batch = None
        self._acknowledge(session, batch)
        if not batches.must_resend:
            if not session.queue:
                session.urgent = False  # what was put back for a connect that this one overtook is acknowledged
            return True
        session.hold_delay = batches.resend_delay()
        if batch is not None:
            # The client waits for these: its connect is answered with them at once, as if it had asked not to be held. A
            # connect that acknowledges nothing at all is held as usual, and its reply carries them.
            session.urgent = True
            if not session.hold_delay:
                message.fields.setdefault("advice", {})
        return True

    def _acknowledge(self, session: Session, batch: int | None) -> None:
        batches = self._batches
        session.retained = 0  # what is still open is in the queue again, or open in the dispatcher
        if session.durable is None and session.dispatcher is None:
            session.queue = batches.acknowledge(batch, session.queue)
        else:
            told: list[Entry] = []
            session.queue = batches.acknowledge(batch, session.queue, told)
            if session.dispatcher is not None:
                told = self._broker.dispatchers.acknowledged(session, session.dispatcher, told)
            places = [entry.position for entry in told if entry.position]
            if places and session.durable is not None:
                self._broker.durability.settle(session.durable, places)
                self._broker.events.settled(told)

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """Retain what leaves with the next batch id, but for what nobody waits to hear of again."""
        kept, choosing = entries, self._broker.subscribing.choosing
        if choosing and session in choosing and any(entry.is_oneway for entry in entries):
            kept = [entry for entry in entries if not entry.is_oneway]
        again = self._batches.retain(kept)
        if again:
            # What was to be sent again, and is not in this response, waits as all others do.
            session.queue = in_order(session.queue)
            self._broker.metrics.resends += again
            self._broker.events.redelivered(session, again)
        session.retained += len(kept)
        return entries

    def send_meta(self, session: Session, reply: Fields, message: Message) -> bool:
        """Tell the batch id of a connect reply, or on the handshake that acknowledgements are on."""
        channel = message.channel.name
        if reply["successful"] and channel in (CONNECT, HANDSHAKE):
            answer = self._batches.close() if channel == CONNECT else self._handshake_answer(message)
            if session.durable is not None and self._batches.number > session.durable.batch - _SPARE:
                self._reserve(session.durable)
            if "ext" in reply:
                reply["ext"]["ack"] = answer
            else:
                reply["ext"] = {"ack": answer}
        return True

    def _reserve(self, durable: Durable) -> None:
        """Have more batch numbers reserved, with the next commit."""
        durable.batch += BATCH_BLOCK
        self._broker.access.node.touch(durable)

    def _handshake_answer(self, message: Message) -> object:
        if self._broker.settings.bayeux.allow_message_delivery_during_handshake:
            return {"enabled": True, "batch": self._batches.close()}
        return message.ext["ack"]  # in kind: true, or "true"


def _asks(message: Message) -> bool:
    asked = message.ext.get("ack")
    return asked is True or asked == "true"  # by identity: 1 == True, and 1 asks for nothing
