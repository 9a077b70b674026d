"""Sessions of records of the store, after a restart or a take-over by another node."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from crewel.bayeux.channel import SYSTEM
from crewel.broker.durability.durability import Durability
from crewel.broker.guard import Guard
from crewel.broker.logins import Logins
from crewel.broker.names import Names
from crewel.broker.session import Host, Session
from crewel.broker.session_queue.dispatcher_runner import DispatcherRunner
from crewel.broker.session_queue.outbound import Outbound
from crewel.broker.session_table import SessionTable
from crewel.broker.subscriptions.options import SubscriptionOptions
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

    _host: Host
    _outbound: Outbound
    _guard: Guard
    _dispatchers: DispatcherRunner
    _names: Names
    _table: SessionTable
    _options: SubscriptionOptions
    _durability: Durability
    _logins: Logins

    def restore(self, durable: DurableSession, record: SessionRecord) -> None:
        """Let a session that the store has live again, as its last login made it."""
        facts = record.login
        session = Session(self._host, facts["id"])
        grants = restored_grants(facts.get("grants"), asks_for_tokens=self._guard.asks_for_tokens)
        session.restore(facts.get("browser"), facts.get("replyId", ""), grants, is_reliable=facts.get("ack", False))
        asked = facts.get("asked", {}) | ({"name": durable.name} if durable.is_named else {})
        try:
            qos = read_connect_qos(asked, MAX_NUMBER, MAX_NUMBER) if asked else NOTHING_ASKED
        except IllegalArgument as error:  # it was granted by a server of another version
            log.warning("a session is restored without an option of its login: %s", error.message)
            qos = NOTHING_ASKED
        self._logins.apply_options(session, qos, is_stored=True)
        session.wait_for_client(qos.timeout_ms if durable.is_named else None)
        for extension in self._outbound.pipe.extensions:
            extension.restored(session)
        self._durability.hand_to(session, durable)
        self._dispatchers.restore(session, record)
        self._names.add(session, *facts.get("resume", ()))
        self._table.revive(session, durable.since)
        self._options.restore(session, record.options)
        if session.grants is None and (
            self._guard.asks_for_tokens or any(each.startswith(SYSTEM) for each in durable.since)
        ):
            self._logins.expire_token(session)  # else it would be a subscriber that receives nothing
