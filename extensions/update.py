"""Updates: what a delivery says of its message, and what its receiver says of it.

The server half of the pair whose browser half is update.js. A session asks for it with `ext.session.update` in its handshake,
beside `ext.ack`. Its statuses come in `ext.update` of a connect, or as the data of a publish to `/service/update`; what does
not count is returned in `ext.update.rejected` of the reply. The engine behind it is `broker.durability.acknowledgements`.
"""

from __future__ import annotations

from crewel.bayeux import replies
from crewel.bayeux.message import Fields, Message
from crewel.bayeux.replies import Reply
from crewel.broker.broker import Broker
from crewel.broker.session import Session
from crewel.errors import IllegalArgument
from crewel.extension import Extension

CONNECT = "/meta/connect"
SERVICE = "/service/update"


class UpdateExtension(Extension):
    """Lets sessions ask for updates, and takes their statuses."""

    name = field = "update"
    meta_channels = frozenset((CONNECT,))

    def installed(self, broker: Broker) -> None:
        """Offer updates to sessions."""
        self._port = broker.durability.acknowledgements
        self._port.offer_statuses()
        broker.runtime.services.answers[SERVICE] = self._answer
        broker.admission.guard.admit(SERVICE)

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """Take the statuses that a connect carries. Of a session that acknowledges, the port reads them itself, before the
        acknowledgement counts."""
        if session is not None and not (session.is_live and session.acknowledges):
            batch = message.ext.get("ack")
            self._port.read_statuses(session, message, batch if type(batch) is int else None)
        return True

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Tell which statuses did not count."""
        rejected = None if session is None else self._port.rejected.pop(session, None)
        if rejected:
            reply.setdefault("ext", {})["update"] = {"rejected": rejected}
        return True

    def _answer(self, session: Session, message: Message) -> Reply:
        if not isinstance(message.data, list):
            raise IllegalArgument("data", "must be a list of statuses, such as {id, state} or {id, errorCode, message}")
        rejected = self._port.handle_statuses(session, message.data)
        reply = replies.ok(message)
        if rejected:
            reply["ext"] = {"update": {"rejected": rejected}}
        return reply
