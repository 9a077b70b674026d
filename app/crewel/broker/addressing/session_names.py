"""The sessions that have a name, the secrets that take them over, and the clientIds that were taken over."""

from __future__ import annotations

import secrets
from bisect import bisect_left, insort
from collections import OrderedDict
from hashlib import sha256
from typing import Final

from crewel.broker.refusals import login_refusal
from crewel.broker.session import Session
from crewel.delivery.records import SessionName
from crewel.qos.names import ANONYMOUS, parse_name

DENIED: Final = "communication.noConnection.serverDeny"
BEYOND_STORED: Final = -1_000_000_001
"""First number of sessions that are not stored, where others are: those count upwards from 1."""
REMEMBERED: Final = 10_000
"""Most clientIds that are remembered as taken over; the oldest are dropped."""
REMEMBERED_S: Final = 3600.0
"""How long one is remembered: a client that has been away for longer learns that its session is unknown."""


def new_resume() -> str:
    """A secret that takes a session over: 128 random bits."""
    return secrets.token_hex(16)


def new_reply_id() -> str:
    """An ID for reply channels that is used once: 128 random bits."""
    return secrets.token_hex(16)


def digest(resume: str) -> str:
    """What is kept of the secret."""
    return sha256(resume.encode("utf-8", "surrogatepass")).hexdigest()


class Names:
    """The names of one server's sessions. Times are loop times, in seconds."""

    def __init__(self, first_number: int) -> None:
        self._by_name: dict[str, Session] = {}
        self._by_subject: dict[str, dict[Session, None]] = {}
        # In order: to sort very many for each login would take as long as a thousand logins.
        self._subjects: list[str] = []
        self._by_digest: dict[str, Session] = {}
        self._digests: dict[Session, tuple[str, ...]] = {}
        self._number = first_number
        self._superseded: OrderedDict[str, tuple[str, float]] = OrderedDict()
        self.blocked: set[str] = set()
        """Subjects whose logins an operator has refused, until the server ends."""

    def __len__(self) -> int:
        """How many sessions have a name."""
        return len(self._by_name)

    def block(self, subject: str, *, is_blocked: bool) -> None:
        """Refuse the logins of this subject from now on, or accept them again."""
        (self.blocked.add if is_blocked else self.blocked.discard)(subject)

    def admit(self, name: str) -> None:
        """Raises Refused if no client may log in with this name, of a session or a subject."""
        if _subject(name) in self.blocked:
            raise login_refusal(DENIED, name, f"an operator has blocked the logins of {_subject(name)}")

    def add(self, session: Session, *digests: str) -> None:
        """The session, which has its name, can be found by that. It can be found by the secrets of these digests too, no matter
        which were there before: the new one, and the one that its client has shown."""
        self._by_name[session.name] = session
        subject = _subject(session.name)
        if subject not in self._by_subject:
            self._by_subject[subject] = {}
            insort(self._subjects, subject)
        self._by_subject[subject][session] = None
        self._forget_digests(session)
        for each in digests:
            self._by_digest[each] = session
        self._digests[session] = digests

    def prove(self, session: Session) -> None:
        """The client has its new secret, for it continues: the one that it showed counts no more."""
        newest, *shown = self._digests.get(session) or ("",)
        for each in shown:
            del self._by_digest[each]
        if shown:
            self._digests[session] = (newest,)

    def forget(self, session: Session) -> None:
        """The session has ended, or never came to be."""
        if self._by_name.get(session.name) is not session:
            return
        del self._by_name[session.name]
        subject = _subject(session.name)
        rest = self._by_subject[subject]
        del rest[session]
        if not rest:
            del self._by_subject[subject]
            del self._subjects[bisect_left(self._subjects, subject)]
        self._forget_digests(session)

    def _forget_digests(self, session: Session) -> None:
        for each in self._digests.pop(session, ()):
            if self._by_digest.get(each) is session:
                del self._by_digest[each]

    def find(self, name: str) -> Session | None:
        """The session of this name."""
        return self._by_name.get(name)

    def shown(self, resume: str) -> Session | None:
        """The session whose last login was given this secret."""
        return self._by_digest.get(digest(resume))

    def of_subject(self, subject: str) -> list[Session]:
        """The sessions of this subject."""
        return list(self._by_subject.get(subject, ()))

    def subjects(self) -> list[str]:
        """The subjects that have sessions, in order; that of sessions without a name of their own is one of them."""
        return self._subjects.copy()

    def number_from(self, first_number: int) -> None:
        """Count down from there, where no other node does."""
        self._number = first_number

    def number(self, subject: str) -> SessionName:
        """A new name, for a session that the store does not number."""
        self._number -= 1
        return SessionName(f"client/{subject}/{self._number + 1}")

    def supersede(self, client_id: str, name: str, now: float) -> None:
        """Remember that another client has taken the session of this one over."""
        self._superseded[client_id] = (name, now + REMEMBERED_S)
        while len(self._superseded) > REMEMBERED:
            self._superseded.popitem(last=False)

    def superseded(self, client_id: str, now: float) -> str | None:
        """The name of the session that was taken over from this client, if that is remembered."""
        name, until = self._superseded.get(client_id, (None, 0.0))
        if name is not None and until <= now:
            del self._superseded[client_id]
            return None
        return name


def _subject(session_name: str) -> str:
    name = parse_name(session_name)
    assert name is not None
    return name.subject


def identity(session: Session) -> str:
    """The subject as whom the session publishes: that of its token, else that of its name. Sessions that have neither are one
    subject, `anonymous`: nothing tells them apart."""
    if session.grants is not None and (session.grants.subject or not session.name or not is_named(session)):
        return session.grants.identity
    return session.name.split("/")[1] if session.name else ANONYMOUS


def is_named(session: Session) -> bool:
    """Whether its login said whose it is."""
    return not session.name.startswith(f"client/{ANONYMOUS}/")
