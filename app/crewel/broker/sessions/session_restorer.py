"""Sessions of records of the store, after a restart or a take-over by another node."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from crewel.bayeux.channel import PRESENCE, SYSTEM
from crewel.broker.admission.guard import Guard
from crewel.broker.durability.durability import Durability
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.session import Session
from crewel.broker.sessions.logins import Logins
from crewel.broker.sessions.session_table import SessionTable
from crewel.delivery.durable_session import DurableSession
from crewel.delivery.records import SessionRecord
from crewel.errors import IllegalArgument
from crewel.qos.connect import NOTHING_ASKED, read_connect_qos
from crewel.qos.fields import MAX_NUMBER
from crewel.security.grants import restored_grants

log = logging.getLogger(__name__)


@dataclass(eq=False)
class SessionRestorer:
    """Makes sessions of records of the store."""

    _mailboxes: Mailboxes
    _guard: Guard
    _table: SessionTable
    _durability: Durability
    _logins: Logins

    def restore(self, durable: DurableSession, record: SessionRecord, former: Session | None) -> Session:
        """Let a session that the store has live again, as its last login made it, and return it. `former`: what it was in
        this server before it was read again. The rights of that login still hold, also those of the admin token, which are
        not stored."""
        facts = record.login
        session = Session(self._mailboxes.host, facts["id"])
        if former is not None and former.id == session.id:
            grants = former.grants
        else:
            grants = restored_grants(facts.get("grants"), asks_for_tokens=self._guard.asks_for_tokens)
        session.restore(facts.get("browser"), facts.get("replyId", ""), grants, acknowledges=facts.get("ack", False))
        asked = facts.get("asked", {}) | ({"name": durable.name} if durable.is_named else {})
        try:
            qos = read_connect_qos(asked, MAX_NUMBER, MAX_NUMBER) if asked else NOTHING_ASKED
        except IllegalArgument as error:  # it was granted by a server of another version
            log.warning("a session is restored without an option of its login: %s", error.message)
            qos = NOTHING_ASKED
        self._logins.apply_options(session, qos, is_stored=True)
        session.wait_for_client(qos.timeout_ms if durable.is_named else None)
        for extension in self._mailboxes.outbound.pipe.extensions:
            extension.restored(session)
        self._durability.hand_to(session, durable)
        self._mailboxes.dispatchers.restore(session, record)
        self._table.revive(session, durable.since, record)
        if session.grants is None and (self._guard.asks_for_tokens or any(map(_is_for_operators, durable.since))):
            self._logins.expire_token(session)  # else it would be a subscriber that receives nothing
        return session


def _is_for_operators(pattern: str) -> bool:
    return pattern.startswith(SYSTEM) and not pattern.startswith(f"{PRESENCE}/")
