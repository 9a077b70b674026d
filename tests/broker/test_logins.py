"""Logins without a store, or with one that fails: what is refused leaves everything as it was."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Message
from crewel.broker.durability.durability import Durability
from crewel.broker.services import Service
from crewel.broker.session import Session, State
from crewel.errors import StoreError, StoreFull, StoreUnavailable, StoreUncertain
from crewel.extensions.ack import AckExtension
from crewel.security.grants import OPERATOR, Grants
from crewel.security.policy import Answer, HandshakeAnswer, Identity, OpenPolicy, Refusal
from tests.broker.world import Client, Socket, World, data_of

IDENTICAL = "user.configuration.identicalClient"
NO_STORE = "storage.enabled=false"


def shake(client: Client, ack: bool = False, **session: Any) -> dict[str, Any]:
    ext: dict[str, Any] = {"session": session}
    if ack:
        ext["ack"] = True
    return client.handshake(ext=ext)


def login(client: Client, **session: Any) -> dict[str, Any]:
    told: dict[str, Any] = shake(client, **session)["ext"]["session"]
    return told


@pytest.fixture
def world() -> Any:
    world = World(NO_STORE, extensions=[AckExtension()])
    yield world
    world.close()


@pytest.mark.parametrize(("most", "is_granted"), [(5000, False), (6000, True), (0, True)])
def test_a_login_asks_for_a_queue_within_the_limit(most: int, is_granted: bool) -> None:
    world = World(NO_STORE, f"limits.max_queued_bytes_per_session={most}", extensions=[AckExtension()])
    reply = shake(Client(world), name="joe/1", queue={"maxBytes": 6000})
    assert reply["successful"] is is_granted
    assert is_granted or "queue.maxBytes" in reply["ext"]["session"]["message"]
    world.close()


class TestAlive:
    """Under the policy `open`, a name alone takes over what is not alive."""

    def test_before_its_first_connect_a_session_is_not_alive(self, world: World) -> None:
        login(Client(world), name="joe/1")
        assert login(Client(world), name="joe/1")["reconnected"] is True

    def test_while_a_connect_is_held_it_is(self, world: World) -> None:
        old = Client(world)
        login(old, name="joe/1")
        old.connect()
        old.connect()
        world.settle()
        world.advance(29)
        assert shake(Client(world), name="joe/1")["error"] == f"403:client/joe/1:{IDENTICAL}"

    def test_until_the_next_connect_is_overdue_it_is(self, world: World) -> None:
        old = Client(world)
        login(old, name="joe/1")
        old.connect()
        world.advance(9.9)
        assert not shake(Client(world), name="joe/1")["successful"]
        world.advance(0.2)
        assert login(Client(world), name="joe/1")["reconnected"] is True

    def test_a_refusal_says_when_the_name_is_free(self, world: World) -> None:
        old = Client(world)
        login(old, name="joe/1")
        old.connect()
        world.advance(3.0)
        told = login(Client(world), name="joe/1")
        assert (told["errorCode"], told["retryAfter"]) == (IDENTICAL, 7000)
        world.advance(7.0)
        assert login(Client(world), name="joe/1")["reconnected"] is True

    def test_while_its_client_is_connected_that_cannot_be_said(self, world: World) -> None:
        old = Client(world)
        login(old, name="joe/1")
        old.connect()
        old.connect()
        world.settle()
        assert "retryAfter" not in login(Client(world), name="joe/1")

    def test_after_its_socket_is_closed_a_named_session_is_alive_for_the_grace_alone(self, world: World) -> None:
        old = Client(world, Socket())
        login(old, name="joe/1")
        old.say("/meta/connect", connectionType="websocket")
        old.send(old.message("/meta/connect", connectionType="websocket"))
        world.settle()
        assert old.socket is not None
        world.broker.mailboxes.connects.socket_closed(old.socket)
        assert login(Client(world), name="joe/1")["retryAfter"] == 10_000
        world.advance(10.1)
        assert login(Client(world), name="joe/1")["reconnected"] is True

    def test_after_its_socket_is_closed_an_anonymous_session_lives_as_long_as_its_connect_would_have_been_held(
        self, world: World
    ) -> None:
        old = Client(world, Socket())
        old.handshake()
        old.say("/meta/connect", connectionType="websocket")
        old.send(old.message("/meta/connect", connectionType="websocket"))
        world.settle()
        assert old.socket is not None
        world.broker.mailboxes.connects.socket_closed(old.socket)
        world.sweep_after(39)
        assert old.is_known
        world.sweep_after(2)
        assert not old.is_known

    def test_an_operator_need_not_wait(self, world: World) -> None:
        world.broker.admission.admin.know("admin")
        old = Client(world)
        login(old, name="joe/1")
        old.connect()
        new = Client(world)
        assert login(new, name="joe/1", token="admin")["reconnected"] is True
        assert new.session.is_operator
        assert new.session.grants is OPERATOR

    def test_a_wrong_token_is_refused_under_the_policy_open(self, world: World) -> None:
        world.broker.admission.admin.know("admin")
        reply = shake(Client(world), name="joe/1", token="x")
        assert (reply["successful"], reply["advice"]["reconnect"]) == (False, "none")
        assert reply["error"] == "403:client/joe/1:user.security.authentication.accessDenied"
        assert not world.broker.sessions.by_id


class TestTakeOver:
    def test_services_see_one_session_with_its_attributes(self, world: World) -> None:
        seen: list[str] = []
        service = Service("watch")
        service.on_session_added(lambda session: seen.append("added"))
        service.on_session_removed(lambda session, expired: seen.append("removed"))
        world.broker.install([service])
        old, new = Client(world), Client(world)
        told = login(old, name="joe/1")
        session = old.session
        session.attributes["user"] = "joe"
        login(new, resume=told["resume"])
        assert new.session is session
        assert session.attributes == {"user": "joe"}
        assert (session.id, old.is_known, seen) == (new.id, False, ["added"])
        assert session.state is State.HANDSHAKEN

    def test_the_new_client_has_its_own_cookie_and_the_old_one_counts_no_more(self, world: World) -> None:
        old, new = Client(world), Client(world)
        told = login(old, name="joe/1")
        old.connect()
        held = old.connect()
        world.settle()
        login(new, resume=told["resume"])
        assert held.answer[0]["error"] == f"402:client/joe/1:{IDENTICAL}"
        assert new.session.browser == new.browser != old.browser
        new.connect()
        first = new.connect()
        world.settle()
        assert first.is_held
        assert not world.broker.mailboxes.connects.browsers.admits(new.session)

    def test_a_socket_that_was_taken_over_gets_nothing_any_more(self, world: World) -> None:
        old, new = Client(world, Socket()), Client(world, Socket())
        told = login(old, name="joe/1")
        old.subscribe("/a")
        assert old.socket is not None
        old.socket.take()
        login(new, resume=told["resume"])
        Client(world).joined().publish("/a", 1)
        world.settle()
        assert old.socket.take() == []
        assert old.say("/a", data=2)["error"] == "402::session_unknown"
        new.say("/meta/connect")
        world.settle()
        assert new.socket is not None
        assert 1 in data_of(new.socket.received)

    def test_the_same_socket_can_take_its_session_over(self, world: World) -> None:
        client = Client(world, Socket())
        told = login(client, name="joe/1")
        client.subscribe("/a")
        assert login(client, resume=told["resume"])["reconnected"] is True
        client.say("/meta/connect")
        Client(world).joined().publish("/a", 1)
        world.settle()
        assert client.socket is not None
        assert data_of(client.socket.received) == [1]

    def test_what_was_sent_and_not_acknowledged_is_in_the_queue_again(self, world: World) -> None:
        old, new = Client(world), Client(world)
        told = login(old, ack=True, name="joe/1")
        old.subscribe("/a")
        sender = Client(world).joined()
        old.connect(ext={"ack": 0})
        sender.publish("/a", 1)
        world.settle()
        sent = old.connect(ext={"ack": 1})
        world.settle()
        assert data_of(sent.answer) == [1]
        sender.publish("/a", 2)
        world.settle()
        again = login(new, ack=True, resume=told["resume"])
        assert again["queued"] == 2
        assert new.session.mailbox._retained == 0
        first = new.connect(ext={"ack": sent.answer[-1]["ext"]["ack"]})
        world.settle()
        assert data_of(first.answer) == [1, 2]


NONCE = "0123456789abcdef"


class TestCopies:
    """A proxy may send a handshake twice, and pass on either answer."""

    @pytest.mark.parametrize("name", [{}, {"name": "joe"}, {"name": "joe/1"}], ids=str)
    def test_a_copy_gets_the_same_answer(self, world: World, name: dict[str, str]) -> None:
        first, copy = Client(world), Client(world)
        told = login(first, **name, nonce=NONCE)
        assert login(copy, **name, nonce=NONCE) == told
        assert (copy.id, copy.browser, len(world.broker.sessions.by_id)) == (first.id, first.browser, 1)
        assert copy.connect().answer[-1]["successful"]

    def test_a_copy_of_a_take_over_gets_the_same_answer(self, world: World) -> None:
        resume = login(Client(world), name="joe/1")["resume"]
        first, copy = Client(world), Client(world)
        told = login(first, name="joe/1", resume=resume, nonce=NONCE)
        world.advance(60.0)
        assert login(copy, name="joe/1", resume=resume, nonce=NONCE) == told
        assert (copy.id, copy.session) == (first.id, first.session)
        first.connect()
        assert login(Client(world), name="joe/1", resume=told["resume"])["reconnected"] is True

    def test_a_copy_of_a_reply_with_messages_has_them_too(self) -> None:
        world = World(NO_STORE, "bayeux.allow_message_delivery_during_handshake=true", extensions=[AckExtension()])
        first = Client(world)
        resume = login(first, ack=True, name="joe/1")["resume"]
        first.subscribe("/a")
        world.broker.publish("/a", 1)
        world.settle()
        ext = {"ack": True, "session": {"name": "joe/1", "resume": resume, "nonce": NONCE}}
        message = {"channel": "/meta/handshake", "id": "1", "version": "1.0", "ext": ext}
        answers = [world.post(dict(message)).answer for _ in range(2)]
        assert data_of(answers[0]) == [1]
        assert answers[1] == answers[0]
        reply = answers[1][0]
        client = Client(world)
        client.id = reply["clientId"]
        client.browser = client.session.browser
        assert data_of(client.connect(ext={"ack": reply["ext"]["ack"]["batch"]}).answer) == []
        assert not client.session.mailbox._retained
        world.close()

    def test_a_copy_after_a_minute_is_another_login(self, world: World) -> None:
        resume = login(Client(world), name="joe/1")["resume"]
        first, late = Client(world), Client(world)
        login(first, name="joe/1", resume=resume, nonce=NONCE)
        world.advance(60.1)
        login(late, name="joe/1", resume=resume, nonce=NONCE)
        assert (late.id != first.id, first.is_known) == (True, False)

    def test_a_copy_after_the_next_login_needs_the_newest_resume(self, world: World) -> None:
        old = login(Client(world), name="joe/1")["resume"]
        first, second = Client(world), Client(world)
        new = login(first, name="joe/1", resume=old, nonce=NONCE)["resume"]
        login(second, name="joe/1", resume=new, nonce=NONCE[::-1])
        assert login(Client(world), name="joe/1", resume=old, nonce=NONCE)["errorCode"] == IDENTICAL
        assert second.connect().answer[-1]["successful"]

    @pytest.mark.parametrize("name", [{}, {"name": "joe"}, {"name": "joe/1"}], ids=str)
    def test_a_copy_after_the_first_connect_is_refused(self, world: World, name: dict[str, str]) -> None:
        """Its client has the answer, and the secret in it is no longer for the one who shows the old one."""
        first = Client(world)
        resume = login(Client(world), **name)["resume"]
        login(first, **name, resume=resume, nonce=NONCE)
        first.connect()
        assert login(Client(world), **name, resume=resume, nonce=NONCE)["errorCode"] == IDENTICAL
        assert first.connect().is_held

    def test_a_copy_with_a_token_does_not_take_over_after_the_first_connect(self, world: World) -> None:
        world.broker.admission.admin.know("admin")
        first = Client(world)
        login(first, name="joe/1", token="admin", nonce=NONCE)
        first.connect()
        assert login(Client(world), name="joe/1", token="admin", nonce=NONCE)["errorCode"] == IDENTICAL
        assert first.is_known

    @pytest.mark.parametrize(
        "other", [{"resume": "wrong"}, {"token": "admin"}, {"nonce": NONCE[::-1]}, {"ptp": False}], ids=str
    )
    def test_what_says_anything_else_is_no_copy(self, world: World, other: dict[str, Any]) -> None:
        world.broker.admission.admin.know("admin")
        first, second = Client(world), Client(world)
        told = login(first, name="joe/1", nonce=NONCE)
        assert login(second, **({"name": "joe/1", "nonce": NONCE} | other)) != told
        assert second.id != first.id

    def test_another_cookie_is_no_copy(self, world: World) -> None:
        first, second = Client(world, browser="a"), Client(world, browser="b")
        login(first, name="joe/1", nonce=NONCE)
        login(second, name="joe/1", nonce=NONCE)
        assert (second.id != first.id, second.browser) == (True, "b")

    def test_a_copy_with_the_cookie_of_its_client_keeps_it(self, world: World) -> None:
        first, copy = Client(world, browser="a"), Client(world, browser="a")
        assert login(first, name="joe/1", nonce=NONCE) == login(copy, name="joe/1", nonce=NONCE)
        assert (copy.id, copy.browser) == (first.id, "a")

    def test_sockets_are_no_copies_of_each_other(self, world: World) -> None:
        first, second = Client(world, Socket()), Client(world, Socket())
        login(first, name="joe/1", nonce=NONCE)
        login(second, name="joe/1", nonce=NONCE)
        assert second.id != first.id

    def test_the_oldest_logins_are_forgotten(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("crewel.broker.sessions.name_claims.REMEMBERED", 2)
        clients = [Client(world) for _ in range(3)]
        for number, client in enumerate(clients, 1):
            login(client, name=f"joe/{number}", nonce=NONCE)
        copies = [Client(world) for _ in range(3)]
        for number, copy in enumerate(copies, 1):
            if number > 1:
                login(copy, name=f"joe/{number}", nonce=NONCE)
        login(copies[0], name="joe/1", nonce=NONCE)
        assert [copy.id == client.id for copy, client in zip(copies, clients, strict=True)] == [False, True, True]

    def test_a_session_from_the_store_is_taken_over(self, world: World) -> None:
        first, second = Client(world), Client(world)
        login(first, name="joe/1", nonce=NONCE)
        first.connect()
        first.session.mailbox.is_absent = True
        assert login(second, name="joe/1", nonce=NONCE)["reconnected"] is True
        assert second.id != first.id

    def test_a_nonce_is_no_short_string(self, world: World) -> None:
        told = login(Client(world), name="joe/1", nonce="5")
        assert told == {
            "errorCode": "user.illegalArgument",
            "message": "nonce: must be a string of 16 to 64 characters",
        }


class Failing:
    """A durable half whose store does not take logins."""

    def __init__(self, error: StoreError) -> None:
        self.error = error
        self.subscriptions: Any = type("Subscriptions", (), {"leaving": set()})()
        self.asked: list[str] = []

    async def login(self, name: str, facts: dict[str, Any], max_sessions: int, newcomer: Session) -> Any:
        self.asked.append(name)
        await asyncio.sleep(0)
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreUncertain("who knows"), StoreFull("full")])
def test_a_login_that_the_store_does_not_take_leaves_nothing_behind(world: World, error: StoreError) -> None:
    durable_half, world.broker.runtime.access.has_store = world.broker.durability, True
    world.broker.sessions.logins._durability = cast("Durability", Failing(error))
    client = Client(world)
    request = client.send(
        {"channel": "/meta/handshake", "ext": {"ack": True, "session": {"name": "joe/1", "maxSessions": 1}}}
    )
    world.settle()
    (reply,) = request.received
    assert reply["error"] == f"503:client/joe/1:{error.code}"
    assert reply["advice"] == {"reconnect": "handshake", "interval": 1000}
    assert reply["ext"]["session"] == {"errorCode": error.code, "message": str(error)}
    assert (len(world.broker.sessions.by_id), len(world.broker.addressing.names)) == (0, 0)
    world.broker.sessions.logins._durability, world.broker.runtime.access.has_store = durable_half, False
    assert login(Client(world), name="joe/1", maxSessions=1)["reconnected"] is False


def test_of_a_handshake_that_asked_for_no_name_nothing_is_told(world: World) -> None:
    world.broker.runtime.access.has_store = True
    world.broker.sessions.logins._durability = cast("Durability", Failing(StoreUnavailable("away")))
    request = Client(world).send({"channel": "/meta/handshake", "ext": {"ack": True}})
    world.settle()
    (reply,) = request.received
    assert reply["error"] == "503::resource.unavailable"
    assert "ext" not in reply


class TestTokensThatEnd:
    def granted(self, world: World, client: Client, seconds: float) -> None:
        login(client, name="joe/1")
        everything = frozenset({"/**"})
        client.session.grants = Grants("joe", everything, everything, expires_at=time.time() + seconds)

    def test_a_held_connect_is_answered_when_the_token_has_expired(self, world: World) -> None:
        client = Client(world)
        self.granted(world, client, 3600)
        client.connect()
        held = client.connect()
        world.settle()
        world.sweep_after(1)
        assert held.is_held
        self._expire(client)
        world.sweep_after(10)  # the clock was set, which a sweep notices within `bayeux.max_interval_ms`
        (reply,) = held.answer
        assert reply["error"] == "403:client/joe/1:user.security.authentication.expired"
        assert reply["advice"]["reconnect"] == "handshake"
        again = client.connect()
        assert again.answer[0]["error"] == reply["error"]

    def test_a_connect_that_comes_too_late_is_refused_at_once(self, world: World) -> None:
        client = Client(world)
        self.granted(world, client, -1)
        assert client.connect().answer[0]["advice"]["reconnect"] == "handshake"

    def test_messages_wait_for_the_next_login(self, world: World) -> None:
        client = Client(world, Socket())
        self.granted(world, client, 3600)
        client.subscribe("/a")
        client.say("/meta/connect")
        resume = world.broker.sessions.logins
        self._expire(client)
        world.sweep_after(1)
        assert client.socket is not None
        client.socket.take()
        Client(world).joined().publish("/a", 1)
        world.settle()
        assert client.socket.take() == []
        world.broker.admission.admin.know("admin")
        new = Client(world)
        assert login(new, name="joe/1", token="admin")["queued"] == 1
        assert data_of(new.connect().answer) == [1]
        assert resume is world.broker.sessions.logins

    def _expire(self, client: Client) -> None:
        grants = client.session.grants
        assert grants is not None
        client.session.grants = Grants("joe", grants.subscribe, grants.publish, expires_at=time.time() - 1)


@pytest.mark.parametrize(
    ("refusal", "error", "advice"),
    [
        (Refusal(), "403::handshake_denied", {"reconnect": "none"}),
        (Refusal(code="user.configuration"), "403:client/joe/1:user.configuration", {"reconnect": "none"}),
        (
            Refusal(code="resource.unavailable", reconnect="handshake"),
            "503:client/joe/1:resource.unavailable",
            {"reconnect": "handshake"},
        ),
    ],
)
def test_a_policy_may_say_why(world: World, refusal: Refusal, error: str, advice: dict[str, Any]) -> None:
    class Closed:
        def can_handshake(self, session: Any, message: Any) -> Refusal:
            return refusal

    world.broker.admission.guard.policy = cast("Any", Closed())
    reply = shake(Client(world), name="joe/1")
    assert (reply["error"], reply["advice"]) == (error, advice)


class TestPosting:
    """Publishing without a session."""

    def post(self, world: World, *elements: Any, grants: Grants = OPERATOR) -> list[dict[str, Any]]:
        return world.loop.run_until_complete(world.broker.publishing.for_back_ends.post(grants, list(elements)))

    def test_messages_do_not_overtake_one_that_waits_for_a_listener(self, world: World) -> None:
        listening = asyncio.Event()
        heard: list[Any] = []
        service = Service("slow")

        @service.listener("/a")
        async def slow(session: Any, message: Any) -> bool:
            if message.data == 0:
                await listening.wait()
            return bool(message.data != 1)

        service.subscription("/a")(lambda message: heard.append(message.data))
        world.broker.install([service])
        world.loop.call_later(0, listening.set)
        replies = self.post(world, *({"channel": "/a", "data": n} for n in range(4)))
        assert [reply["successful"] for reply in replies] == [True, False, True, True]
        assert replies[1]["error"] == "404::message_deleted"
        assert heard == [0, 2, 3]

    def test_a_listener_sees_a_session_that_nobody_hears(self, world: World) -> None:
        seen: list[Any] = []
        service = Service("look")

        @service.listener("/service/x")
        def look(session: Any, message: Any) -> None:
            seen.append(session)
            session.deliver("/service/x", "for nobody")

        world.broker.install([service])
        assert self.post(world, {"channel": "/service/x", "data": 1})[0]["successful"] is True
        world.settle()
        assert (seen[0].is_operator, seen[0].is_live, seen[0].name) == (True, False, "client/__admin")
        assert world.broker.sessions.by_id == {}

    def test_a_failure_of_the_application_is_its_own_messages(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Broken:
            def can_create(self, *_: Any) -> bool:
                return True

            def can_publish(self, session: Any, channel: Any, message: Any) -> Any:
                if message.data == 1:
                    raise RuntimeError("broken")
                return True

        world.broker.admission.guard.policy = cast("Any", Broken())
        shop = Grants("shop", publish=frozenset({"/**"}))
        replies = self.post(world, {"channel": "/a", "data": 1}, {"channel": "/a", "data": 2}, grants=shop)
        assert [reply["successful"] for reply in replies] == [False, True]
        assert "refused" in caplog.text


class Members(OpenPolicy):
    """A policy of an application: the password says whose client it is, but for `anybody`."""

    def can_handshake(self, session: Session, message: Message) -> HandshakeAnswer:
        password = str(message.ext.get("password"))
        session.attributes["password"] = password
        return True if password == "anybody" else Identity(password.removeprefix("of "))


class TestIdentities:
    """Under a policy that looks at handshakes, a name is used by its own subject alone."""

    @pytest.fixture
    def members(self, world: World) -> World:
        service = Service("members")
        service.policy = Members()
        world.broker.install([service])
        return world

    def shake(self, world: World, password: str, ack: bool = False, **session: Any) -> tuple[Client, dict[str, Any]]:
        client = Client(world)
        ext: dict[str, Any] = {"session": session, "password": password}
        return client, client.handshake(ext=ext | ({"ack": True} if ack else {}))

    @pytest.mark.parametrize("name", ["ann/1", "client/ann/1", "/node/heron/client/ann/1", "ann"])
    def test_a_name_of_another_subject_is_refused_whether_or_not_its_session_is_there(
        self, members: World, name: str
    ) -> None:
        for _ in range(2):
            refused = self.shake(members, "of bob", name=name)[1]
            assert ":user.security.authentication.accessDenied" in refused["error"]
            assert self.shake(members, "of ann", name=name)[1]["successful"]

    def test_a_session_keeps_to_its_subject_when_its_client_is_gone(self, members: World) -> None:
        ann, _ = self.shake(members, "of ann", name="ann/1")
        ann.connect()
        members.advance(11)
        refused = self.shake(members, "of bob", name="ann/1")[1]
        assert refused["ext"]["session"]["message"] == "the client has logged in as another subject"
        again = self.shake(members, "of ann", name="ann/1")[1]
        assert again["ext"]["session"]["reconnected"] is True

    def test_a_resume_of_another_subject_is_refused(self, members: World) -> None:
        resume = self.shake(members, "of ann", name="ann/1")[1]["ext"]["session"]["resume"]
        assert not self.shake(members, "of bob", resume=resume)[1]["successful"]
        assert self.shake(members, "of ann", resume=resume)[1]["ext"]["session"]["reconnected"] is True

    def test_without_an_identity_a_name_is_refused_and_the_reason_says_what_is_missing(self, members: World) -> None:
        refused = self.shake(members, "anybody", name="ann/1")[1]
        assert "returns an Identity" in refused["ext"]["session"]["message"]
        assert self.shake(members, "anybody")[1]["successful"]

    def test_services_see_the_subject_and_what_the_last_handshake_noted(self, members: World) -> None:
        client, _ = self.shake(members, "of ann", name="ann/1")
        session = client.session
        assert session.subject == "ann"
        session.attributes["kept"] = 1
        self.shake(members, "ann", name="ann/1")
        assert session.attributes == {"kept": 1, "password": "ann"}

    @pytest.mark.parametrize("subject", ["", "anonymous", None])
    def test_an_identity_names_one_user(self, subject: Any) -> None:
        with pytest.raises(ValueError, match="must name one user"):
            Identity(subject)

    def test_a_client_that_does_not_take_over_waits_until_the_other_one_is_gone(self, members: World) -> None:
        old, _ = self.shake(members, "of ann", name="ann/1")
        old.connect()
        members.advance(3.0)
        asked = {"name": "ann/1", "reconnectSameClientOnly": True}
        told = self.shake(members, "of ann", **asked)[1]["ext"]["session"]
        assert (told["errorCode"], told["retryAfter"]) == (IDENTICAL, 7000)
        assert old.is_known
        members.advance(7.1)
        assert self.shake(members, "of ann", **asked)[1]["ext"]["session"]["reconnected"] is True

    def test_a_client_that_does_not_take_over_comes_back_with_its_resume(self, members: World) -> None:
        old, granted = self.shake(members, "of ann", name="ann/1")
        old.connect()
        resume = granted["ext"]["session"]["resume"]
        again = self.shake(members, "of ann", name="ann/1", reconnectSameClientOnly=True, resume=resume)[1]
        assert again["ext"]["session"]["reconnected"] is True

    def test_an_identity_that_is_none_refuses_the_handshake(self, members: World) -> None:
        assert self.shake(members, "of ")[1]["error"] == "403::handshake_denied"

    def test_an_operator_uses_any_name(self, members: World) -> None:
        members.broker.admission.admin.know("admin")
        assert self.shake(members, "of bob", name="ann/1", token="admin")[1]["successful"]

    def test_a_policy_that_leaves_handshakes_alone_leaves_names_free(self, world: World) -> None:
        class ReadOnly(OpenPolicy):
            def can_publish(self, session: Session, channel: Channel, message: Message) -> Answer:
                return False

        service = Service("read only")
        service.policy = ReadOnly()
        world.broker.install([service])
        assert self.shake(world, "of bob", name="ann/1")[1]["successful"]
