"""Sessions as a server has them: handshakes and logins, names and their claims, restored sessions, and their end."""

from __future__ import annotations

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.admission import Admission
from crewel.broker.durability.durability import Durability
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.broker.sessions.handshakes import HandshakeHandler
from crewel.broker.sessions.login_notices import LoginNotices
from crewel.broker.sessions.login_refusals import LoginRefusals
from crewel.broker.sessions.logins import Logins
from crewel.broker.sessions.lost_cookies import LostCookies
from crewel.broker.sessions.name_claims import NameClaims
from crewel.broker.sessions.operator_channels import OperatorChannels
from crewel.broker.sessions.session_restorer import SessionRestorer
from crewel.broker.sessions.session_table import SessionTable
from crewel.broker.sessions.sign_outs import SignOuts
from crewel.broker.sessions.silent_sessions import SilentSessions
from crewel.broker.subscriptions.subscriptions import Subscriptions


class Sessions:
    """The sessions of one broker. `by_id` has those that live, by clientId."""

    def __init__(
        self,
        runtime: Runtime,
        mailboxes: Mailboxes,
        addressing: Addressing,
        admission: Admission,
        subscriptions: Subscriptions,
        durability: Durability,
        by_id: dict[str, Session],
    ) -> None:
        names, times = addressing.names, mailboxes.times
        self.by_id = by_id
        self.table = SessionTable(runtime, mailboxes, addressing, admission.limits, subscriptions, by_id)
        self.operators = OperatorChannels(runtime, addressing.channels, mailboxes.outbound)
        """Where operators see who comes and goes, and all else that they follow."""
        notices = LoginNotices(runtime, self.operators, names)
        self.claims = NameClaims(runtime, names, times, self.table, notices)
        self.sign_outs = SignOuts(runtime, self.table, by_id)
        self.logins = Logins(runtime, mailboxes, admission, durability, self.claims, self.sign_outs)
        self.refusals = LoginRefusals()
        self.lost_cookies = LostCookies(runtime, times)
        self.handshakes = HandshakeHandler(
            runtime, mailboxes, admission, self.logins, self.table, subscriptions.permissions, self.refusals
        )
        self.restorer = SessionRestorer(mailboxes, admission.guard, self.table, durability, self.logins)
        self.silent = SilentSessions(runtime, mailboxes, self.table, durability, self.logins, self.sign_outs)
        runtime.metrics.gauge("sessions", lambda: len(by_id))
