"""Handshakes: what refuses them, in this order: limits, transports, the policy, the login; and their reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from crewel.bayeux import replies
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.admission.admission import Admission
from crewel.broker.exchange import Exchange
from crewel.broker.handler_steps import Steps
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.refusals import denied, limited, no_transport, requested_name, shown_token, unavailable
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.sessions.login_refusals import LoginRefusals
from crewel.broker.sessions.logins import Logins
from crewel.broker.sessions.session_table import SessionTable
from crewel.broker.subscriptions.subscribe_handler import Permissions
from crewel.errors import Limited, StoreError

HANDSHAKE: Final = "/meta/handshake"
_UNAVAILABLE: Final = "503:"
"""How the error of a reply begins whose handshake the store could not take."""


@dataclass(eq=False)
class HandshakeHandler:
    """Answers handshakes."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _admission: Admission
    _logins: Logins
    _table: SessionTable
    _permissions: Permissions
    _refusals: LoginRefusals

    def __post_init__(self) -> None:
        self._guard, self._limits = self._admission.guard, self._admission.limits
        self._browsers, self._times = self._mailboxes.connects.browsers, self._mailboxes.times

    def handshake(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        """MAY carry anything; the version is not checked, and the transports only if they are there: hand-written clients leave
        them out."""
        try:
            self._limits.handshake(session, message)
            refusal = no_transport(message, self._runtime.settings.bayeux.transports)
            if refusal is not None:
                return self._refuse(exchange, message, refusal)
            outcome = self._begin(exchange, session, message)
        except Limited as error:
            return self._refuse(exchange, message, limited(message, error))
        if isinstance(outcome, dict) or shown_token(message) is None:
            return outcome
        return self._count_token(session, outcome)

    def _begin(self, exchange: Exchange, session: Session, message: Message) -> Reply | Steps[Reply]:
        if not self._guard.admits_everybody:
            return self._ask_and_shake_hands(exchange, session, message)
        if self._logins.needs_login(session, message):
            return self._log_in(exchange, session, message)
        self._limits.admit(session)
        return self._shake_hands(exchange, session, message)

    def _count_token(self, session: Session, steps: Steps[Reply]) -> Steps[Reply]:
        """Count a token that does not hold."""
        reply = yield from steps
        if not reply["successful"] and ":user.security" in reply["error"] and session.account is not None:
            self._limits.token_failed(session.account)
        return reply

    def _ask_and_shake_hands(self, exchange: Exchange, session: Session, message: Message) -> Steps[Reply]:
        refusal = yield from self._guard.handshake(session, message)
        if refusal is None:
            if self._logins.needs_login(session, message):
                return (yield from self._log_in(exchange, session, message))
            try:
                self._limits.admit(session)
            except Limited as error:
                return self._refuse(exchange, message, limited(message, error))
            return self._shake_hands(exchange, session, message)
        return self._refuse(exchange, message, denied(message, refusal))

    def _refuse(self, exchange: Exchange, message: Message, reply: Reply) -> Reply:
        """Note a refusal, and let the exchange have no session. What the store stands in the way of is no refusal."""
        exchange.session = None
        if not reply["error"].startswith(_UNAVAILABLE):
            self._refusals.note(exchange.peer, message, reply)
        return reply

    def _log_in(self, exchange: Exchange, session: Session, message: Message) -> Steps[Reply]:
        self._browsers.bind_new(session, exchange.peer)
        refusal = yield from self._logins.login(exchange, session, message)
        if refusal is not None:
            return self._refuse(exchange, message, refusal)
        assert exchange.session is not None
        if exchange.session is not session:
            try:
                yield from self._permissions.regrant(exchange.session)
            except StoreError as error:
                exchange.session = None
                return unavailable(message, error, requested_name(message.ext.get("session")))
        reply = self._shake_hands(exchange, exchange.session, message)
        if exchange.login is not None:
            reply["ext"] = {"session": exchange.login}
        return reply

    def _shake_hands(self, exchange: Exchange, session: Session, message: Message) -> Reply:
        peer = exchange.peer
        self._refusals.granted(session.name)
        if not session.is_live:  # else another client's, which this one has taken over
            self._browsers.bind_new(session, peer)
            self._table.add(session)
        reply = replies.handshaken(
            message, session.id, list(self._runtime.settings.bayeux.transports), self._times.handshaken(session, peer)
        )
        exchange.handshake = reply
        return reply
