"""The logins that were refused lately, by the name that they asked for and by cause."""

from __future__ import annotations

from typing import Any

from crewel.bayeux.message import Message
from crewel.broker.refusals import login_refusal, refused
from crewel.broker.sessions.login_refusals import MOST_CAUSES, MOST_NAMES, LoginRefusals, RefusedLogins

DENIED = "user.security.authentication.accessDenied"


def shake(name: str | None = "joe/1") -> Message:
    session = {} if name is None else {"name": name}
    return Message.read({"channel": "/meta/handshake", "ext": {"session": session}})


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0
        self.refusals = LoginRefusals(lambda: self.now)

    def refuse(self, name: str | None = "joe/1", code: str = DENIED, text: str = "the signature is wrong") -> None:
        message = shake(name)
        self.refusals.note(None, message, refused(message, login_refusal(code, name or "", text)))


def test_logins_of_one_name_are_counted_until_one_is_granted() -> None:
    clock = Clock()
    clock.refuse()
    clock.now += 5
    clock.refuse(code="user.security.authentication.expired", text="the token has expired")
    assert clock.refusals.of("client/joe/1") == RefusedLogins(
        "user.security.authentication.expired", "the token has expired", "client/joe/1", "", 1_000_000, 1_005_000, 2
    )
    assert clock.refusals.of("client/ann/1") is None
    clock.refusals.granted("client/joe/1")
    assert clock.refusals.of("client/joe/1") is None


def test_causes_are_counted_until_they_are_taken() -> None:
    clock = Clock()
    clock.refuse()
    clock.refuse("ann/1")
    clock.refuse(None, "user.configuration.maxSession")
    denied, many = clock.refusals.take_causes()
    assert (denied.code, denied.count, denied.name) == (DENIED, 2, "client/ann/1")
    assert (many.code, many.count, many.name) == ("user.configuration.maxSession", 1, "")
    assert clock.refusals.take_causes() == []
    assert clock.refusals.of("client/joe/1") is not None


def test_strangers_fill_no_memory() -> None:
    clock = Clock()
    for number in range(MOST_NAMES + 1):
        clock.refuse(f"joe/{number + 1}", code=f"user.x{number}", text="x" * 5000)
    assert clock.refusals.of("client/joe/1") is None
    last = clock.refusals.of(f"client/joe/{MOST_NAMES + 1}")
    assert last is not None
    assert len(last.reason) == 200
    causes = clock.refusals.take_causes()
    assert len(causes) == MOST_CAUSES + 1
    assert (causes[-1].code, causes[-1].count) == ("other", MOST_NAMES + 1 - MOST_CAUSES)


def test_a_client_without_a_session_is_noted_with_the_error_alone() -> None:
    refusals = LoginRefusals(lambda: 1.0)
    message = Message.read({"channel": "/meta/handshake"})
    reply: dict[str, Any] = {"successful": False, "error": "403::handshake_denied"}
    refusals.note(None, message, reply)
    (cause,) = refusals.take_causes()
    assert (cause.code, cause.reason, cause.name) == ("handshake_denied", "", "")
