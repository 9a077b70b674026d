"""What one client, address or subject may ask of the server, and what is answered beyond that.

A cap is counted where something begins and ends; a rate is a token bucket of the address, and of the subject. A session draws
tokens for publishes in advance (`Session.credit`), so that a publish within its limits costs one subtraction.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from random import random
from typing import Final

from crewel.addresses import Networks, holder_of
from crewel.bayeux.message import Message
from crewel.broker.addressing.channels import Channels
from crewel.broker.addressing.consumer_groups import ConsumerGroups
from crewel.broker.addressing.session_names import identity
from crewel.broker.admission.guard import Guard
from crewel.broker.exchange import Peer
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.payers import payers_with_address
from crewel.broker.refusals import shown_token
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.errors import Limited
from crewel.errors.codes import is_below
from crewel.limits import UNLIMITED, Account, Accounts, Rate
from crewel.qos.filters import ACCOUNT_BURST, ACCOUNT_RATE
from crewel.qos.names import ANONYMOUS
from crewel.security.bad_token import BadToken
from crewel.security.grants import Grants
from crewel.security.jwt import grants_of
from crewel.security.tokens import AdminToken
from crewel.settings.access import Limits as LimitSettings

log = logging.getLogger(__name__)

_MOST_ACCOUNTS: Final = 65_536
_SWEPT: Final = 5_000
"""Accounts that one sweep looks at."""
_QUIET_S: Final = 60.0
"""How often the log speaks of one account."""
_DRAWN: Final = 64
"""Publishes that a session may make before it asks again."""
_SHARE: Final = 32
"""A session draws at most this part of the burst, so that few sessions do not hold all tokens."""
_UNCOUNTED: Final = 4096
"""What a session draws at a time that no rate holds for."""
_ROOM_S: Final = 2.0
"""When a client that meets a cap may come back: sessions end within `bayeux.max_interval_ms`."""
_BUSY_S: Final = 1.0

FILTERS: Final = "filters"
"""The token bucket that the filters of an account draw from."""
FILTER_RATE: Final = Rate(ACCOUNT_RATE, ACCOUNT_BURST)
_RATES: Final[Mapping[str, Callable[[LimitSettings], tuple[int, int]]]] = {
    "handshakes": lambda settings: (settings.handshakes_per_s, settings.handshakes_burst),
    "publishes": lambda settings: (settings.publishes_per_s, settings.publishes_burst),
    "subscribes": lambda settings: (settings.subscribes_per_s, settings.subscribes_burst),
    "channels": lambda settings: (settings.channels_per_s, settings.channels_burst),
    FILTERS: lambda _: FILTER_RATE,
    "failed_tokens": lambda settings: (settings.failed_tokens_per_s, settings.failed_tokens_burst),
}
"""The settings of each kind of token bucket, which may change while the server runs."""


@dataclass(eq=False)
class Limiter:
    """The limits of one broker."""

    _runtime: Runtime
    _channels: Channels
    _groups: ConsumerGroups
    _mailboxes: Mailboxes
    _guard: Guard
    _admin: AdminToken
    _sessions: dict[str, Session]
    _topic_count: Callable[[], int]
    calls: Counter[Session] = field(default_factory=Counter, init=False)
    """Remote calls that wait for their results."""

    def __post_init__(self) -> None:
        self._loop = self._runtime.loop
        self._outbound = self._mailboxes.outbound
        self._metrics = self._runtime.metrics
        self._settings = self._runtime.settings.limits
        self._exempt = Networks(self._settings.exempt_addresses)
        self.addresses = Accounts(_MOST_ACCOUNTS)
        self.subjects = Accounts(_MOST_ACCOUNTS)
        self._rates: dict[str, Rate] = {}  # as they were asked for last

    # Handshakes

    def account_of(self, address: str | None) -> Account:
        """The account of this address."""
        return self.addresses.of(holder_of(address))

    def handshake(self, session: Session, message: Message) -> None:
        """A handshake has come from the session's peer. Raises Limited."""
        address = session.peer.remote if session.peer is not None else None
        account = self.account_of(address)
        session.charge(account, is_exempt=address in self._exempt)
        token = shown_token(message)
        if token is not None:
            self.may_show_token(account)
        if session.is_exempt:
            return
        wait = account.take("handshakes", self._rate("handshakes"), 1, self._now)
        if wait and (token is None or not self._admin.matches(token)):
            raise self._limited("handshakes_per_s", "too many handshakes from this address", _spread(wait), session)

    def admit(self, session: Session) -> None:
        """A session is about to begin. Raises Limited."""
        most, sessions = self._settings.max_sessions, self._sessions
        if most and len(sessions) >= most:
            raise self._limited(
                "max_sessions", "the server has too many sessions", _spread(_ROOM_S), session, Limited.CAP
            )
        most, account = self._settings.max_sessions_per_address, session.account
        if most and account is not None and account.sessions >= most and not session.is_operator:
            text = "this address has too many sessions"
            raise self._limited("max_sessions_per_address", text, _spread(_ROOM_S), session, Limited.CAP)

    def session_started(self, session: Session) -> None:
        """The session has begun, or another client has taken it over: its accounts count it."""
        subject = _subject(session)
        session.charge_subject(self.subjects.of(subject) if subject else None)
        for account in (session.account, session.subject_account):
            if account is not None:
                account.sessions += 1
                if session in self._groups.counted:  # a new session is not
                    account.groups += self._groups.count(session)
        if session.account is not None:
            session.account.subscriptions += len(session.subscriptions)
        session.charge_letters(payers_with_address(session))

    def session_ended(self, session: Session) -> None:
        """The session has ended, or another client has taken it over."""
        for account in (session.account, session.subject_account):
            if account is not None:
                account.sessions -= 1
                account.groups -= self._groups.count(session)
        if session.account is not None:
            session.account.subscriptions -= len(session.subscriptions)
        session.charge_none()

    # What a session does

    def draw(self, session: Session) -> None:
        """Let a session publish whose credit is used up. Raises Limited."""
        rate = self._rate("publishes")
        if session.is_operator or not rate.per_s:
            session.allow(_UNCOUNTED - 1)
            return
        now, most = self._now, max(1, min(_DRAWN, rate.burst // _SHARE))
        buckets = [each.bucket("publishes", rate, now) for each in self._accounts(session)]
        for bucket in buckets:
            available = bucket.available(rate, now)
            if available < 1:
                raise self._limited("publishes_per_s", "too many publishes", bucket.take(rate, 1, now), session)
            most = min(most, available)
        for bucket in buckets:
            bucket.spend(most)
        session.allow((most if buckets else _UNCOUNTED) - 1)

    def count(self, session: Session | None, peer: Peer) -> None:
        """A message has come that is no publish, and no part of the server would count. It is one that is refused, or one of
        the meta messages of a long batch, which compression makes a few bytes long. It counts as a publish. Raises Limited."""
        rate, now = self._rate("publishes"), self._now
        for account in self._accounts(session) if session is not None else self._accounts_of(peer):
            wait = account.take("publishes", rate, 1, now)
            if wait:
                peer.slow_down(min(wait, _BUSY_S))
                raise self._limited("publishes_per_s", "too many messages", wait, session)

    def subscribe(self, session: Session, count: int) -> None:
        """A session asks for so many subscriptions. Raises Limited."""
        self.room_for(session, count)
        rate, now = self._rate("subscribes"), self._now
        for each in self._accounts(session):
            wait = each.take("subscribes", rate, count, now)
            if wait:
                raise self._limited("subscribes_per_s", "too many subscriptions at a time", wait, session)

    def room_for(self, session: Session, count: int) -> None:
        """So many subscriptions of a session are about to begin. Raises Limited."""
        settings, account = self._settings, session.account
        asked = self._channels.asked
        has = len(session.subscriptions) + (asked.get(session, 0) if asked else 0)
        if settings.max_subscriptions_per_session and has + count > settings.max_subscriptions_per_session:
            raise self._full("max_subscriptions_per_session", "the session has too many subscriptions", session)
        if settings.max_subscriptions and self._channels.subscriptions + count > settings.max_subscriptions:
            raise self._full("max_subscriptions", "the server has too many subscriptions", session)
        if session.is_operator:
            return
        most = settings.max_subscriptions_per_address
        if most and account is not None and account.subscriptions + count > most:
            raise self._full("max_subscriptions_per_address", "this address has too many subscriptions", session)

    def joining(
        self, session: Session, queues: Collection[str], leaving: Collection[str]
    ) -> AbstractContextManager[None]:
        """A session is about to join the groups that have these queues, and to leave those others in the same step. The context
        lasts until the store has answered: in it all of them count, those that are left too. Raises Limited."""
        settings, groups = self._settings, self._groups
        more = groups.new(session, queues) - len(leaving)
        count = groups.count(session) + more
        if queues and count > len(groups.queues_of(session)):  # else it will be in no more of them than it is now
            most = settings.max_groups_per_session
            if most and count > most:
                raise self._full("max_groups_per_session", "the session is in too many consumer groups", session)
            most = settings.max_groups_per_account
            if most and not session.is_operator:
                for account in (session.account, session.subject_account):
                    if account is not None and account.groups + more > most:
                        text = "the sessions of this address or subject are in too many consumer groups"
                        raise self._full("max_groups_per_account", text, session)
        return groups.joining(session, queues)

    def new_channel(self, session: Session) -> None:
        """A session is the first to publish to a channel. Raises Limited."""
        most = self._settings.max_channels
        if most and self._topic_count() >= most:
            raise self._full("max_channels", "the server has too many channels", session)
        account = session.account
        if account is None or session.is_exempt or session.is_operator:
            return
        wait = account.take("channels", self._rate("channels"), 1, self._now)
        if wait:
            raise self._limited("channels_per_s", "too many new channels from this address", wait, session)

    def call_refused(self, session: Session) -> str:
        """Why a session may not have one more remote call that waits for its result; empty if it may."""
        settings, account = self._settings, session.account
        most = settings.max_calls_per_session
        if most and self.calls[session] >= most:
            self._metrics.limited["max_calls_per_session"] += 1
            return f"limits.max_calls_per_session: {most} calls of this session wait for their results"
        most = settings.max_calls_per_address
        if most and account is not None and account.calls >= most and not session.is_operator:
            self._metrics.limited["max_calls_per_address"] += 1
            return f"limits.max_calls_per_address: {most} calls of this address wait for their results"
        return ""

    def call_started(self, session: Session) -> Account | None:
        """A remote call of the session waits for its result; returns the account that `call_finished` gets."""
        self.calls[session] += 1
        account = session.account
        if account is not None:
            account.calls += 1
        return account

    def call_finished(self, session: Session, account: Account | None) -> None:
        """A remote call of the session has its result."""
        if account is not None:
            account.calls -= 1
        self.calls[session] -= 1
        if not self.calls[session]:
            del self.calls[session]

    def post(self, session: Session, address: str | None) -> None:
        """A back end at this address publishes without a session of its own: this one speaks for it. Raises Limited."""
        session.charge(self.account_of(address), is_exempt=address in self._exempt)
        subject = _subject(session)
        session.charge_subject(self.subjects.of(subject) if subject else None)
        self.draw(session)
        session.allow(session.credit + 1)  # the first publish of the request draws once more

    # Tokens

    async def grants_of(self, authorization: str, address: str | None) -> Grants:
        """What the bearer token grants that a client at this address shows. Raises BadToken and Limited."""
        account = self.account_of(address)
        if authorization:
            self.may_show_token(account)
        try:
            return await grants_of(authorization, self._admin, self._guard.policy)
        except BadToken as error:
            if authorization and is_below(error.code, "user"):
                self.token_failed(account)
            raise

    def may_show_token(self, account: Account) -> None:
        """A client of this address shows a token. Raises Limited if too many of them did not hold."""
        rate, now = self._rate("failed_tokens"), self._now
        if not rate.per_s:
            return
        bucket = account.bucket("failed_tokens", rate, now)
        if bucket.available(rate, now) < 1:
            text = "too many invalid tokens from this address"
            raise self._limited("failed_tokens_per_s", text, max(bucket.take(rate, 1, now), _BUSY_S), None)

    def token_failed(self, account: Account) -> None:
        """A token did not hold that a client of this address has shown."""
        account.take("failed_tokens", self._rate("failed_tokens"), 1, self._now)

    # Upkeep

    def sweep(self) -> None:
        """Forget accounts that have nothing and did nothing for a while."""
        self._outbound.backlog.sessions = len(self._sessions)
        self._outbound.shorten(self._sessions.values())
        for accounts in (self.addresses, self.subjects):
            accounts.sweep(self._rate, self._now, _SWEPT)

    # Inner

    @property
    def _now(self) -> float:
        return self._loop.time()

    def _rate(self, kind: str) -> Rate:
        asked, known = _RATES[kind](self._settings), self._rates.get(kind, UNLIMITED)
        if known != asked:
            known = self._rates[kind] = Rate(*asked) if asked[0] else UNLIMITED
        return known

    def _accounts(self, session: Session) -> list[Account]:
        """The accounts whose rates hold for the session."""
        if session.account is None and session.peer is not None and session.is_live:
            self._restored(session, session.peer)
        if session.is_operator or session.is_exempt:
            return []
        return [account for account in (session.account, session.subject_account) if account is not None]

    def _accounts_of(self, peer: Peer) -> list[Account]:
        """The accounts whose rates hold for a client that has no session."""
        return [] if peer.remote in self._exempt else [self.account_of(peer.remote)]

    def _restored(self, session: Session, peer: Peer) -> None:
        """The session is from before a restart: only now it is known where its client is."""
        account = self.account_of(peer.remote)
        session.charge(account, is_exempt=peer.remote in self._exempt)
        account.sessions += 1
        account.subscriptions += len(session.subscriptions)
        account.groups += self._groups.count(session)
        session.charge_letters(payers_with_address(session))

    def _full(self, limit: str, text: str, session: Session) -> Limited:
        return self._limited(limit, text, _ROOM_S, session, Limited.CAP)

    def _limited(
        self, limit: str, text: str, wait_s: float, session: Session | None, code: str = Limited.RATE
    ) -> Limited:
        """Count the refusal, let the client's own connection rest, and say it in the log now and then."""
        self._metrics.limited[limit] += 1
        account = None if session is None else session.account
        if session is not None and session.peer is not None:
            session.peer.slow_down(min(wait_s, _BUSY_S))
        if account is not None and account.quiet_until <= self._now:
            account.quiet_until = self._now + _QUIET_S
            log.warning(
                "a client is refused: %s", text, extra={"limit": f"limits.{limit}", "address": account.name or "local"}
            )
        return Limited(f"limits.{limit}", text, wait_s, code)


def _subject(session: Session) -> str:
    """Whose account counts the session; empty for an anonymous one."""
    subject = identity(session)
    return "" if subject == ANONYMOUS else subject


def _spread(wait_s: float) -> float:
    """When to come back: not all at the same moment."""
    return max(wait_s, _BUSY_S) * (1 + random())  # noqa: S311 - it is no secret
