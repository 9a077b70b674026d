"""Which session a login takes over, and whether it may: by its resume, its token, or a name whose session is gone. Also which
login is a copy of one that was answered, and the names that other nodes must not give."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Final, NamedTuple

from crewel.bayeux.message import Fields
from crewel.broker.addressing.session_names import Names
from crewel.broker.admission.guard import NOT_AUTHORIZED
from crewel.broker.cluster import ANY_NUMBER
from crewel.broker.handler_steps import Steps, result_of
from crewel.broker.mailboxes.session_times import SessionTimes
from crewel.broker.refusals import IDENTICAL, NameHeld, login_refusal
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session, State
from crewel.broker.sessions.login_notices import LoginNotices
from crewel.broker.sessions.session_table import SessionTable
from crewel.delivery.records import SessionName
from crewel.errors import IllegalArgument, Refused
from crewel.qos.connect import ConnectQos
from crewel.qos.names import ANONYMOUS, Name
from crewel.security.bad_token import ACCESS_DENIED
from crewel.security.grants import Grants

_TOO_MANY: Final = "user.configuration.maxSession"
_NEEDS_RESUME: Final = "a name with a number of the server's comes back with its resume"
_MAY_NOT_CLEAR: Final = "clearSessions ends it only with a token; without one, the other clients have to leave first"
_OF_ANOTHER: Final = "the client has logged in as another subject"
_NO_IDENTITY: Final = (
    "this server's policy does not say whose client this is: for names, its can_handshake returns an Identity"
)
COPY_S: Final = 60.0
"""How long after a login a copy of its handshake may arrive: the life of a request on its way through proxies."""
REMEMBERED: Final = 10_000
"""Most answered logins that are remembered; the oldest are dropped, and a copy of theirs is a handshake like any other."""


class AnsweredLogin(NamedTuple):
    """A login that was granted to a handshake with a nonce."""

    at: float
    """Loop time in seconds."""
    name: str
    client_id: str
    reply: Fields
    """The `ext.session` of its reply."""


@dataclass(eq=False)
class NameClaims:
    """The claims of logins on names."""

    _runtime: Runtime
    names: Names
    _times: SessionTimes
    table: SessionTable
    _notices: LoginNotices
    arriving: Counter[str] = field(default_factory=Counter, init=False)
    """Logins that are under way, by subject."""
    _answered: OrderedDict[str, AnsweredLogin] = field(default_factory=OrderedDict, init=False)
    """By the digest of the handshake, oldest first."""

    def target(self, session: Session, qos: ConnectQos) -> Session | None:
        """The session that this login takes over; None if it makes one. Raises Refused."""
        name = qos.name
        if qos.resume is not None:
            shown = self.names.shown(qos.resume)
            if shown is not None:
                return self._owned(session, shown, name)
        if name is None or not name.number:
            return None  # a secret that is good for nothing any more: the session has ended
        there = self.names.find(name.relative)
        if there is None:
            if name.is_numbered:
                raise login_refusal(IDENTICAL, name.relative, _NEEDS_RESUME)
            return None
        if qos.resume is not None:
            raise login_refusal(IDENTICAL, name.relative, "the resume is not from the session's last login")
        if name.is_numbered:  # whatever the token: a subject's other clients have made such sessions too
            raise login_refusal(IDENTICAL, name.relative, _NEEDS_RESUME)
        if (session.grants is None or qos.reconnect_same_client_only) and self._is_alive(there):
            left = self._times.gone_in(there, self._runtime.loop.time())
            raise NameHeld(name.relative, None if left is None else ceil(left * 1000))
        return there

    def named(self, session: Session, *digests: str) -> None:
        """A new session has its name: it is found by that, and by the secrets of these digests."""
        self.names.add(session, *digests)
        self._notices.logged_in(session)

    def _owned(self, session: Session, shown: Session, name: Name | None) -> Session:
        if name is not None and not _same(name, shown.name):
            raise login_refusal(IDENTICAL, name.relative, "the resume belongs to another session")
        if session.grants is not None and shown.grants is not None and not may_be(session.grants, shown.grants.subject):
            raise login_refusal(ACCESS_DENIED, shown.name, _OF_ANOTHER)
        return shown

    def remember(self, handshake: str, session: Session, reply: Fields) -> None:
        """The login of the session was granted to the handshake with this digest."""
        now = self._runtime.loop.time()
        self._answered[handshake] = AnsweredLogin(now, session.name, session.id, reply)
        self._answered.move_to_end(handshake)
        while len(self._answered) > REMEMBERED or now - next(iter(self._answered.values())).at > COPY_S:
            self._answered.popitem(last=False)

    def answered(self, handshake: str) -> tuple[Session, Fields] | None:
        """The session and the `ext.session` that the handshake with this digest was given, if that is the last login of the
        session. Raises Refused if the client of that login has connected."""
        answered = self._answered.get(handshake)
        if answered is None or self._runtime.loop.time() - answered.at > COPY_S:
            return None
        session = self.names.find(answered.name)
        if session is None or session.id != answered.client_id:
            return None
        if session.state is State.HANDSHAKEN:
            return session, answered.reply
        if session.mailbox.view().is_absent:
            return None  # brought back from the store: no client has connected
        # It has its answer. With that it has proved its new resume, which the old one must not bring to light any more.
        raise login_refusal(IDENTICAL, session.name, "the handshake is a duplicate: its client has already connected")

    def _is_alive(self, session: Session) -> bool:
        """Whether its client connects: a connect is held, or the next one is not overdue."""
        if session.mailbox.view().is_absent or session.state is not State.CONNECTED:
            return False
        return not self._times.is_gone(session, self._runtime.loop.time())

    def make_room(self, session: Session, qos: ConnectQos, subject: str) -> None:
        """End earlier sessions of the subject if the login asks for that. Raises Refused if the subject has too many."""
        if subject == ANONYMOUS:
            return
        others = self.names.of_subject(subject)
        if qos.clear_sessions:
            others = self.clear(others, is_granted=session.grants is not None)
        most = self._most(qos)
        if len(others) + self.arriving[subject] > most:
            raise self.too_many(qos)

    def _most(self, qos: ConnectQos) -> int:
        """How many sessions the subject of this login may have."""
        return min(self._runtime.settings.limits.max_sessions_per_subject or qos.max_sessions, qos.max_sessions)

    def too_many(self, qos: ConnectQos) -> Refused:
        """The refusal of a login whose subject has its sessions."""
        subject = ANONYMOUS if qos.name is None else qos.name.subject
        text = f"the subject {subject} has {self._most(qos)} sessions already"
        return login_refusal(_TOO_MANY, f"client/{subject}", text)

    # What other nodes have to know

    def counted(self, qos: ConnectQos) -> int:
        """How many sessions the store lets the subject have; negative: any number, for this server has counted them all."""
        return ANY_NUMBER if qos.name is None else self._runtime.cluster.counted(self._most(qos))

    def give_name(self, qos: ConnectQos) -> Steps[SessionName]:
        """Return the name of a new session that is not stored: from then on no other node gives it. Raises StoreError."""
        name = qos.name
        chosen = SessionName(name.relative) if name is not None and name.number else None
        given = chosen or self.names.number(ANONYMOUS if name is None else name.subject)
        yield from self._claim(given, qos)
        return given

    def note_again(self, session: Session, qos: ConnectQos) -> Steps[None]:
        """A new login of a session that is not stored may have another wish for addressed messages. Raises StoreError."""
        if session.takes_ptp != qos.ptp:
            yield from self._claim(session.name, qos)

    def _claim(self, name: str, qos: ConnectQos) -> Steps[None]:
        claimed = self._runtime.cluster.claim(name, self.counted(qos), takes_ptp=qos.ptp)
        if claimed is not None:
            yield claimed

    def clearing(self, session: Session, target: Session | None, qos: ConnectQos) -> Steps[None]:
        """See that a login may end the other sessions of its subject, and end those at other nodes. A name alone proves
        nothing, and the secret of one session nothing about another. Without a token those that are alive stay, as they stay
        when their name is asked for. Raises Refused then, and StoreError; no session was ended."""
        asked = target.name if target is not None else "" if qos.name is None else qos.name.relative
        subject = asked.split("/")[1] if asked else ANONYMOUS
        if not qos.clear_sessions or subject == ANONYMOUS:
            return
        is_granted = session.grants is not None
        alive = "" if is_granted else self.alive_of(subject, target)
        if not alive and (cleared := self._runtime.cluster.clear(subject, is_granted=is_granted)) is not None:
            alive = yield from result_of(cleared)
        if alive:
            raise login_refusal(NOT_AUTHORIZED, asked, f"the client of {alive} is connected, and {_MAY_NOT_CLEAR}")

    def alive_of(self, subject: str, but: Session | None = None) -> str:
        """The name of a session of the subject here that is alive, other than this one; empty if there is none."""
        sessions = self.names.of_subject(subject)
        return next((each.name for each in sessions if each is not but and self._is_alive(each)), "")

    def clear(self, others: Iterable[Session], *, is_granted: bool) -> list[Session]:
        """End these sessions of the subject of a login, as far as it may; returns those that are left."""
        left = [other for other in others if not is_granted and self._is_alive(other)]
        for other in others:
            if other not in left:
                self.table.disconnect(other)
        return left


def may_be(grants: Grants, subject: str) -> bool:
    """Whether these grants are for this subject, or for any."""
    return grants.subject in ("", subject)


def check_name(name: Name | None, grants: Grants | None, *, names_are_free: bool) -> None:
    """Raise Refused if a client with these grants may not be called so. What has no grants may use any name where names are
    free, and none elsewhere: a name is the way to another client's queue."""
    if name is None:
        return
    # Not where logins are read: a session that an older version has stored is restored by that.
    if name.has_dot_segment:
        raise IllegalArgument("name", f"must not be of the subject {name.subject!r}, which a URL cannot carry")
    if grants is None and not names_are_free:
        raise login_refusal(ACCESS_DENIED, name.relative, _NO_IDENTITY)
    if grants is not None and not may_be(grants, name.subject):
        raise login_refusal(ACCESS_DENIED, name.relative, _OF_ANOTHER)


def _same(name: Name, session_name: str) -> bool:
    return name.relative == session_name if name.number else session_name.startswith(f"{name.relative}/")
