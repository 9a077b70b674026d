"""Logins: what a handshake says of who it is (`ext.session`), what of it is stored, and sessions that come back.

A handshake makes a session, or takes one over. Then the session stays what it is, with its subscriptions and its queue, and
only its client is another one, with another clientId. Logins for one name follow one another.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from time import time
from typing import Any, Final

from crewel.bayeux import advice
from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.addressing.session_names import digest, is_named, new_reply_id, new_resume
from crewel.broker.admission.admission import Admission
from crewel.broker.cluster import ANY_NUMBER
from crewel.broker.durability.durability import Durability
from crewel.broker.exchange import Exchange, Peer
from crewel.broker.handler_steps import Steps, result_of
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.refusals import limited, login_refusal, refused, requested_name, superseded, unavailable
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, Verdict
from crewel.broker.sessions.name_claims import NameClaims, check_name
from crewel.broker.sessions.sign_outs import SignOuts
from crewel.errors import BayeuxCode, IllegalArgument, Limited, Refused, StoreError, StoreUnavailable, coded
from crewel.qos.connect import NOTHING_ASKED, Bounds, ConnectQos, OverflowPolicy, read_connect_qos
from crewel.qos.fields import MAX_NUMBER
from crewel.qos.names import ANONYMOUS, Name
from crewel.security.bad_token import ACCESS_DENIED, EXPIRED
from crewel.security.grants import OPERATOR
from crewel.security.sign_in import SIGNED_OUT, own_grants
from crewel.storage.script_step import TooManySessions

_KNOWN_OTHERWISE: Final = ("name", "token", "resume", "nonce", "clearSessions", "reconnectSameClientOnly")
"""Fields of `ext.session` that are not kept as they were asked."""
_ENDING_S: Final = 3.0
_UNVERIFIED: Final = "the server cannot verify this token: its policy is open, and it knows its admin token only"


@dataclass(eq=False)
class Logins:
    """The logins of one broker."""

    _runtime: Runtime
    _mailboxes: Mailboxes
    _admission: Admission
    _durability: Durability
    _claims: NameClaims
    _sign_outs: SignOuts
    _busy: dict[str, asyncio.Future[None]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._access = self._runtime.access
        self._connects, self._dispatchers = self._mailboxes.connects, self._mailboxes.dispatchers
        self._guard, self._limits, self._admin = self._admission.guard, self._admission.limits, self._admission.admin
        self._names = self._claims.names

    # Handshakes

    def needs_login(self, session: Session, message: Message) -> bool:
        """Whether this handshake has to go through `login`: there is more to it than a new clientId."""
        if session.acknowledges and self._access.has_store:  # `_is_stored`, without a call
            return True
        fields = message.fields
        return "ext" in fields and type(fields["ext"]) is dict and "session" in fields["ext"]

    def _is_stored(self, session: Session) -> bool:
        """Whether the store gets what the login of this session asks for."""
        return session.acknowledges and self._access.has_store

    def login(self, exchange: Exchange, session: Session, message: Message) -> Steps[Reply | None]:
        """Let the session of a handshake that the policy has granted be who it says; or let its client take over another
        one, which becomes the exchange's. Answers the reply that refuses it, or None."""
        asked = message.ext.get("session")
        name = requested_name(asked)
        try:
            qos = self._read(message)
            self._authenticate(session, qos, name)
            if session.grants is not None and session.grants.page:
                yield from self._check_page(session.grants.page, name)
            yield from self._log_in(exchange, session, message, qos)
        except IllegalArgument as error:
            return refused(message, Refused(coded(error.code, name, 403), error.code, error.message))
        except Limited as error:
            return limited(message, error)
        except Refused as error:
            return refused(message, error)
        except TooManySessions:
            return refused(message, self._claims.too_many(qos))
        except StoreError as error:
            return unavailable(message, error, name)
        return None

    def _read(self, message: Message) -> ConnectQos:
        if "session" not in message.ext:
            return NOTHING_ASKED
        max_bytes = self._runtime.settings.limits.max_queued_bytes_per_session or MAX_NUMBER
        return read_connect_qos(message.ext["session"], self._runtime.settings.bayeux.max_queue_messages, max_bytes)

    def _authenticate(self, session: Session, qos: ConnectQos, name: str) -> None:
        """Make an operator of a session that shows the admin token, and keep every other client to the names of its subject.
        Under the policy `open` no other token is right, so one is refused: its client believes that it is logged in."""
        grants = session.grants
        if qos.token is not None and self._guard.admits_everybody:
            grants = own_grants(self._admin, qos.token)
            if grants is None:
                raise login_refusal(ACCESS_DENIED, name, _UNVERIFIED)
        session.authenticate(grants)
        check_name(qos.name, grants, names_are_free=self._guard.names_are_free)

    def _check_page(self, page: str, name: str) -> Steps[None]:
        """Refuse the token of a live feed if its page has signed out."""
        if (yield from result_of(self._sign_outs.is_spent(page))):
            raise login_refusal(EXPIRED, name, SIGNED_OUT)

    def _log_in(self, exchange: Exchange, session: Session, message: Message, qos: ConnectQos) -> Steps[None]:
        subject = qos.name.subject if qos.name is not None else ANONYMOUS
        handshake = self._digest(exchange.peer, session, message, qos)
        while True:
            target = self._claims.target(session, qos)
            key = target.name if target is not None else _key(qos.name) or handshake
            under_way = self._busy.get(key)
            if under_way is None:
                break
            yield asyncio.shield(under_way)
        self._names.admit(target.name if target is not None else f"client/{subject}")
        if handshake and self._repeats(exchange, handshake):
            return
        done = self._runtime.loop.create_future()
        if key:
            self._busy[key] = done
        self._claims.arriving[subject] += 1
        try:
            yield from self._claims.clearing(session, target, qos)
            if target is None:
                self._claims.make_room(session, qos, subject)
                self._limits.admit(session)
                yield from self._begin(exchange, session, message, qos)
            else:
                yield from self._take_over(exchange, session, target, message, qos)
            if handshake and exchange.session is not None and exchange.login is not None:
                self._claims.remember(handshake, exchange.session, exchange.login)
        finally:
            self._claims.arriving -= Counter([subject])
            if key:
                del self._busy[key]
            done.set_result(None)

    # A handshake that arrives twice

    def _digest(self, peer: Peer, session: Session, message: Message, qos: ConnectQos) -> str:
        """What copies of a handshake have in common, and no other handshake has: all that it asks for and proves, its nonce
        and its cookie. Empty if it says no nonce; or if it comes over a socket, which no proxy opens twice."""
        if qos.nonce is None or peer.pushes:
            return ""
        cookie = None if peer.mints_cookie else peer.browser
        return digest(json.dumps([message.ext["session"], session.acknowledges, cookie], sort_keys=True))

    def _repeats(self, exchange: Exchange, handshake: str) -> bool:
        """Whether this handshake is a copy of the one that the session's client has sent: then it is given the same answer. A
        proxy passes on either answer, so neither may end the other."""
        answered = self._claims.answered(handshake)
        if answered is None:
            return False
        exchange.session, exchange.login = answered
        if self._runtime.settings.bayeux.allow_message_delivery_during_handshake:
            # The very same reply: another one would have the next batch, and acknowledge messages that only the first one has.
            exchange.repeated = exchange.session.answered
        if exchange.peer.mints_cookie:
            exchange.peer.browser = exchange.session.browser
        return True

    # A new session

    def _begin(self, exchange: Exchange, session: Session, message: Message, qos: ConnectQos) -> Steps[None]:
        name, durability = qos.name, self._durability
        resume = self._runtime.cluster.marked(new_resume()) if "session" in message.ext else None
        session.use_reply_id(self._runtime.cluster.marked(new_reply_id()) if resume is not None else "")
        digests = _digests(resume, qos)
        is_stored = self._is_stored(session)
        _check(session, qos, is_stored=is_stored)
        self.apply_options(session, qos, is_stored=is_stored)
        if not is_stored:
            session.use_name((yield from self._claims.give_name(qos)))
        else:
            yield from self._until_ended(_key(name))
            facts = _facts(session, message, digests, session.reply_id)
            login = durability.login(_key(name) or _prefix(name), facts, self._claims.counted(qos), session)
            answer = yield from result_of(login)
            if not answer.is_new:
                yield from self._until_arrived(answer.name)
                yield durability.recall(session, answer)
            durability.half_of(session, answer.name, "the server is reading the store again, with this session")
        session.wait_for_client(qos.timeout_ms if is_named(session) else None)
        self._claims.named(session, *digests)
        self._describe_login(exchange, session, resume, reconnected=False)

    def _until_ended(self, name: str) -> Steps[None]:
        """Wait until an earlier session of this name has left the store. It takes a commit."""
        deadline = self._runtime.loop.time() + _ENDING_S
        while name and (name in self._access.node.sessions or name in self._access.leaving):
            if self._runtime.loop.time() >= deadline:
                raise StoreUnavailable(f"{name}: the session before this one is still ending")
            yield asyncio.wait([self._access.until_changed(name)], timeout=deadline - self._runtime.loop.time())

    def _until_arrived(self, name: str) -> Steps[None]:
        """The store has the session as one of this server, which does not know it: it may be on its way from a dead node.
        Raises StoreUnavailable when it has come: the client may then take it over."""
        while name in self._durability.inheritance.arriving:
            yield asyncio.wait([self._access.until_changed(name)])
        if name in self._access.node.sessions:
            raise StoreUnavailable(f"{name}: the session has just come to this server")

    def apply_options(self, session: Session, qos: ConnectQos, *, is_stored: bool) -> None:
        """Give the session what its login asks for, and for the rest what the server has configured."""
        asked, delivery = qos.queue, self._runtime.settings.delivery
        session.log_in(qos)
        if is_stored:
            entries, size, policy = delivery.queue_max_entries, delivery.queue_max_bytes, OverflowPolicy.DEAD_MESSAGE
        else:
            entries, size = 0, self._runtime.settings.bayeux.max_queue_bytes
            policy = OverflowPolicy.DROP_OLDEST
        session.mailbox.bound(Bounds(asked.max_entries or entries, asked.max_bytes or size, asked.policy or policy))
        self._dispatchers.configure(session, qos)

    # A session that is taken over

    def _take_over(
        self, exchange: Exchange, session: Session, target: Session, message: Message, qos: ConnectQos
    ) -> Steps[None]:
        if target.acknowledges is not session.acknowledges:
            text = "must be asked for again" if target.acknowledges else "must not be asked for"
            raise IllegalArgument("ack", f"{text}: a take-over cannot change that")
        is_stored = self._is_stored(session)
        _check(target, qos, is_stored=is_stored)
        resume, durability = self._runtime.cluster.marked(new_resume()), self._durability
        digests = _digests(resume, qos)
        reply_id = target.reply_id or self._runtime.cluster.marked(new_reply_id())
        if is_stored:
            facts = _facts(session, message, digests, reply_id)
            answer = yield from result_of(durability.login(target.name, facts, ANY_NUMBER))
            durability.renew(target, answer)
        else:
            yield from self._claims.note_again(target, qos)
        target.use_reply_id(reply_id)
        self.apply_options(target, qos, is_stored=is_stored)
        target.wait_for_client(qos.timeout_ms if is_named(target) else None)
        if qos.clear_sessions and is_named(target):
            others = [each for each in self._names.of_subject(_subject(target)) if each is not target]
            self._claims.clear(others, is_granted=session.grants is not None)
        self._switch(exchange, session, target)
        self._names.add(target, *digests)
        self._describe_login(exchange, target, resume, reconnected=True)
        self._dispatchers.note_active(target)

    def _switch(self, exchange: Exchange, session: Session, target: Session) -> None:
        """The client of `session` is the target's from here on; its former client is dismissed."""
        peer = exchange.peer
        self._names.supersede(target.id, target.name, self._runtime.loop.time())
        self._connects.dismiss(target, superseded(target.name))
        # An acknowledgement counts for what this client was sent: all that was sent before goes out again.
        target.mailbox.renew()
        self._claims.table.hand_over(target, session, peer)
        exchange.session = target

    def _describe_login(self, exchange: Exchange, session: Session, resume: str | None, *, reconnected: bool) -> None:
        if resume is None:
            return
        view = session.mailbox.view()
        promises = session.promises()
        exchange.login = {
            "name": f"/node/{self._runtime.settings.node.name}/{session.name}",
            "reconnected": reconnected,
            "queued": view.depth,
            "resume": resume,
            **promises,
            **({"unclaimed": True} if promises["update"] else {}),
            **({"maxOpen": view.max_open} if view.max_open else {}),
            "replyId": session.reply_id,
            "maxMessageBytes": self._runtime.settings.bayeux.max_message_bytes,
        }

    # Tokens that end

    def check_token(self, session: Session) -> None:
        """If the session's token has expired, let its client log in again first."""
        if session.verdict is None and session.grants is not None and session.grants.has_expired(time()):
            self.expire_token(session)

    def expire_token(self, session: Session) -> None:
        """Let no connect of the session succeed until its client has logged in again."""
        session.refuse(Verdict(coded(EXPIRED, session.name, 403), advice.handshake()))
        self._mailboxes.events.token_expired(session)
        self._connects.release(session, self._runtime.loop.time())

    def unknown(self, client_id: object) -> Verdict:
        """What a connect with an unknown `clientId` is answered."""
        name = self._names.superseded(client_id, self._runtime.loop.time()) if isinstance(client_id, str) else None
        return Verdict(BayeuxCode.SESSION_UNKNOWN, advice.handshake()) if name is None else superseded(name)


def _check(session: Session, qos: ConnectQos, *, is_stored: bool) -> None:
    """Raise what refuses a login that asks for what its session cannot have."""
    if qos.persistent and not session.acknowledges:
        raise IllegalArgument("persistent", "needs ext.ack: without it, no message stays pending for a session")
    if qos.max_open and not session.acknowledges:
        raise IllegalArgument("maxOpen", "needs ext.ack: without it, no message is open at a client")
    if qos.persistent and not is_stored:
        raise StoreUnavailable("this server has no store")
    if qos.queue.policy is OverflowPolicy.DEAD_MESSAGE and not is_stored:
        raise IllegalArgument("queue.onOverflow", "only stored sessions have dead letters: handshake with ext.ack")


def _key(name: Name | None) -> str:
    """The name of the one session that is meant; empty if it is to be given a number."""
    return name.relative if name is not None and name.number else ""


def _prefix(name: Name | None) -> str:
    return f"client/{ANONYMOUS if name is None else name.subject}/"


def _subject(session: Session) -> str:
    return session.name.split("/")[1]


def _digests(resume: str | None, qos: ConnectQos) -> tuple[str, ...]:
    """What the session is recognised by: its new secret, and the one that was shown, until the client connects and so says
    that it has the new one. A handshake whose reply was lost can be repeated."""
    return () if resume is None else tuple(map(digest, (resume, qos.resume) if qos.resume is not None else (resume,)))


def _facts(session: Session, message: Message, digests: tuple[str, ...], reply_id: str) -> dict[str, Any]:
    """What the store keeps of a login; of its secrets, what recognises them."""
    facts: dict[str, Any] = {"id": session.id, "browser": session.browser, "ack": session.acknowledges}
    if digests:
        asked = message.ext["session"].items()
        facts["asked"] = {name: value for name, value in asked if name not in _KNOWN_OTHERWISE}
        facts["resume"], facts["replyId"] = digests, reply_id
    if session.grants is not None and session.grants is not OPERATOR:  # there may be another admin token by then
        facts["grants"] = session.grants.as_json()
    return facts
