"""Names, take-over and `resume`, over both lanes and a real store."""

from __future__ import annotations

import itertools
import re
import secrets
import threading
from typing import Any

import pytest

from tests.functional.bayeux import Client, Message, data, in_time, sessions
from tests.functional.conftest import Serve, one_lane
from tests.functional.frames import SocketClient
from tests.functional.people import IDENTICAL, Person, refusal
from tests.functional.post import TOKEN
from tests.functional.wire import Connection, until
from tests.server_process import Server

NOT_AUTHORIZED = "user.security.authorization.notAuthorized"
PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}
AWAY = ("bayeux.max_interval_ms=400", "bayeux.sweep_ms=30")
_numbers = itertools.count(1)


@pytest.fixture
def joe() -> str:
    """A subject that no other test has."""
    return f"joe{next(_numbers)}"


class Quiet(Person):
    acknowledges = False


def connect_of(client: Client) -> Message:
    """The reply to one connect, which brings no messages."""
    (reply,) = client.connect()
    return reply


class TestNames:
    def test_the_reply_tells_the_whole_name_and_no_more_than_is_true(self, server: Server, joe: str) -> None:
        login = Person(server).be(f"{joe}/1").login
        assert re.fullmatch(rf"/node/[\w.-]+/client/{joe}/1", login["name"])
        assert {**login, "name": "", "resume": "", "replyId": ""} == {
            "name": "", "reconnected": False, "queued": 0, "resume": "", "update": False, "durable": True, "replyId": "",
            "maxMessageBytes": 65536,
        }  # fmt: skip
        assert re.fullmatch("[0-9a-f]{32}(-[0-9a-f]{8})?", login["resume"])
        assert re.fullmatch("[0-9a-f]{32}(-[0-9a-f]{8})?", login["replyId"])

    def test_every_form_of_a_name_is_that_name(self, server: Server, joe: str) -> None:
        first = Person(server).be(f"/node/elsewhere/client/{joe}/7")
        for form in (f"{joe}/7", f"client/{joe}/7", f"client/{joe}/session/7"):
            first = Person(server).be(form, resume=first.login["resume"])
            assert first.login["reconnected"] is True

    def test_a_subject_alone_is_given_a_number(self, server: Server, joe: str) -> None:
        names = [Person(server).be(joe).login["name"] for _ in range(2)]
        assert len(set(names)) == 2
        assert all(re.search(rf"/client/{joe}/-\d+$", name) for name in names)

    def test_without_a_name_the_session_is_anonymous(self, server: Server) -> None:
        assert re.search(r"/client/anonymous/-\d+$", Person(server).be().login["name"])

    def test_who_does_not_acknowledge_has_a_name_too_and_nothing_in_the_store(self, server: Server, joe: str) -> None:
        login = Quiet(server).be(f"{joe}/1").login
        assert login["durable"] is False
        assert re.search(rf"/client/{joe}/-\d+$", Quiet(server).be(joe).login["name"])

    def test_who_does_not_ask_is_told_nothing(self, server: Server) -> None:
        assert "ext" not in Client(server).handshake()
        assert Client(server).handshake(ext={"ack": True})["ext"] == {"ack": True}

    def test_updates_are_granted_to_who_acknowledges(self, server: Server, joe: str) -> None:
        assert Person(server).be(f"{joe}/1", update=True, settle="message", ackWait=1000).login["update"] is True
        reply = Client(server).handshake(ext={"session": {"name": f"{joe}/2", "update": True}})
        assert reply["ext"]["session"]["update"] is False


class TestRefusals:
    @pytest.mark.parametrize(
        ("session", "field"),
        [
            ({"name": "client//1"}, "name"),
            ({"name": 5}, "name"),
            ({"name": "anonymous"}, "name"),
            ({"name": "a" * 5000}, "name"),
            ({"update": "yes"}, "update"),
            ({"burst": {"maxEntries": 0}}, "burst.maxEntries"),
            ({"queue": {"maxEntries": 10**9}}, "queue.maxEntries"),
            ({"queue": {"onOverflow": "explode"}}, "queue.onOverflow"),
            ({"persistent": True}, "persistent"),
            ({"name": "joe", "persistent": True}, "persistent"),
            ({"clearSessions": True}, "clearSessions"),
            ({"timeout": -5}, "timeout"),
            ({"nam": "joe/1"}, "nam"),
        ],
    )
    def test_a_field_that_does_not_fit_is_named(self, server: Server, session: Message, field: str) -> None:
        before = sessions(server)
        reply = Person(server).shake(**session)
        error, code, reconnect = refusal(reply)
        assert re.fullmatch(r"403:[^:]*:user\.illegalArgument", error)
        assert len(error) < 200
        assert (code, reconnect) == ("user.illegalArgument", "none")
        assert reply["ext"]["session"]["message"].startswith(f"{field}: ")
        assert sessions(server) == before

    @pytest.mark.parametrize("value", [None, 5, "joe", [], [{"name": "joe/1"}]])
    def test_what_is_no_object_is_refused(self, server: Server, value: Any) -> None:
        client = Client(server)
        reply = client.send(client.message("/meta/handshake", ext={"session": value}))[0]
        assert refusal(reply)[1] == "user.illegalArgument"

    def test_the_error_names_who_was_refused(self, server: Server, joe: str) -> None:
        reply = Person(server).shake(name=f"/node/x/client/{joe}/1", ackWait="long")
        assert refusal(reply)[0] == f"403:client/{joe}/1:user.illegalArgument"

    def test_a_session_that_is_to_last_has_to_acknowledge(self, server: Server, joe: str) -> None:
        reply = Quiet(server).shake(name=f"{joe}/1", persistent=True)
        assert reply["ext"]["session"]["message"].startswith("persistent: needs ext.ack")

    def test_dead_letters_are_for_sessions_that_are_stored(self, server: Server, joe: str) -> None:
        reply = Quiet(server).shake(name=f"{joe}/1", queue={"onOverflow": "deadMessage"})
        assert refusal(reply)[1] == "user.illegalArgument"
        assert Quiet(server).shake(name=f"{joe}/1", queue={"onOverflow": "dropOldest"})["successful"]

    def test_a_subject_has_so_many_sessions_as_it_may(self, server: Server, joe: str) -> None:
        first = Person(server).be(f"{joe}/1")
        Person(server).be(joe)
        reply = Person(server).shake(name=f"{joe}/3", maxSessions=2)
        code = "user.configuration.maxSession"
        assert refusal(reply) == (f"403:client/{joe}:{code}", code, "none")
        assert Person(server).shake(name=f"{joe}/1", resume=first.login["resume"], maxSessions=2)["successful"]
        first = Person(server).be(f"{joe}/4", maxSessions=3)
        first.disconnect()
        assert Person(server).shake(name=f"{joe}/5", maxSessions=3)["successful"]

    def test_a_name_alone_clears_no_session_that_is_alive(self, server: Server, joe: str) -> None:
        other = Person(server).be(f"{joe}/1")
        other.hold(ext={"ack": other.batch})
        gone = Person(server)
        gone.shake(name=f"{joe}/4")  # and has never connected
        for login in ({"maxSessions": 1}, {}):
            refused = Person(server).shake(name=f"{joe}/2", clearSessions=True, **login)
            assert refusal(refused) == (f"403:client/{joe}/2:{NOT_AUTHORIZED}", NOT_AUTHORIZED, "none")
            assert f"client/{joe}/1" in refused["ext"]["session"]["message"]
        assert refusal(Person(server).shake(name=f"{joe}/1"))[1] == IDENTICAL  # it is alive still
        assert gone.take() == []  # and what it might have ended is there too, because it was refused

    def test_a_secret_clears_no_other_session_that_is_alive(self, server: Server, joe: str) -> None:
        own, other = Person(server).be(f"{joe}/1"), Person(server).be(f"{joe}/2")
        secret = own.login["resume"]
        refused = Person(server).shake(resume=secret, clearSessions=True)
        assert refusal(refused)[1] == NOT_AUTHORIZED
        assert own.take() == other.take() == []
        other.disconnect()
        again = Person(server).be(resume=secret, clearSessions=True)
        assert again.login["reconnected"] is True

    def test_sessions_whose_clients_are_gone_are_cleared_by_a_name(self, server: Server, joe: str) -> None:
        gone = Person(server)
        gone.shake(name=f"{joe}/1")
        Person(server).be(f"{joe}/2", clearSessions=True, maxSessions=1)
        assert connect_of(gone)["error"].startswith("402:")

    def test_sessions_of_a_subject_can_be_cleared_by_an_operator(self, shared: Serve, joe: str) -> None:
        server = shared(f"admin.token={TOKEN}")
        others = [Person(server).be(f"{joe}/1"), Quiet(server).be(joe)]
        connect = others[0].hold(ext={"ack": others[0].batch})
        newest = Person(server).be(f"{joe}/2", clearSessions=True, maxSessions=1, token=TOKEN)
        ended = connect.response().messages
        assert ended[-1]["advice"]["reconnect"] == "none"
        assert connect_of(others[1])["error"].startswith("402:")
        assert newest.take() == []


class TestTakeOver:
    def test_the_resume_takes_a_session_over_while_its_client_connects(
        self, server: Server, joe: str, channel: str
    ) -> None:
        old = Person(server).be(f"{joe}/1")
        old.subscribe(channel)
        other = Client(server).start()
        other.publish(channel, "sent", **PERSISTENT)
        assert data(old.take()) == ["sent"]
        connect = old.hold(ext={"ack": old.batch})
        new = Person(server)
        assert new.shake(name=f"{joe}/1", resume=old.login["resume"])["successful"]
        assert new.login["reconnected"] is True
        assert new.login["resume"] != old.login["resume"]
        (told,) = connect.response().messages
        assert told["error"] == f"402:client/{joe}/1:{IDENTICAL}"
        assert told["advice"] == {"reconnect": "none"}
        other.publish(channel, "later", **PERSISTENT)
        assert data(new.take_all()) == ["later"]

    def test_what_was_not_acknowledged_goes_to_the_new_client(self, server: Server, joe: str, channel: str) -> None:
        old = Person(server).be(f"{joe}/1")
        old.subscribe(channel)
        other = Client(server).start()
        ids = [other.publish(channel, n, **PERSISTENT)[-1]["ext"]["publish"]["id"] for n in range(3)]
        other.publish(channel, "transient")
        sent = old.take()
        assert data(sent) == [0, 1, 2, "transient"]
        new = Person(server)
        new.shake(resume=old.login["resume"])
        assert new.login["queued"] == 4
        messages = new.take_all()
        assert data(messages) == [0, 1, 2, "transient"]
        assert [message["id"] for message in messages[:3]] == ids

    def test_an_acknowledgement_counts_for_what_this_client_was_sent(
        self, server: Server, joe: str, channel: str
    ) -> None:
        old = Person(server).be(f"{joe}/1")
        old.subscribe(channel)
        Client(server).start().publish(channel, 1, **PERSISTENT)
        assert data(old.take()) == [1]
        new = Person(server)
        new.shake(resume=old.login["resume"])
        new.batch = old.batch
        assert data(new.take()) == [1]

    def test_the_client_before_is_told_once_it_connects_and_nothing_else(self, server: Server, joe: str) -> None:
        old = Person(server).be(f"{joe}/1")
        Person(server).be(f"{joe}/1", resume=old.login["resume"])
        for _ in range(2):
            reply = connect_of(old)
            assert reply["error"] == f"402:client/{joe}/1:{IDENTICAL}"
            assert reply["advice"] == {"reconnect": "none"}
        answers = old.send(old.message("/a", data=1), old.message("/meta/subscribe", subscription="/a"))
        assert [answer["error"] for answer in answers] == ["402::session_unknown"] * 2
        assert all("advice" not in answer for answer in answers)

    def test_a_name_alone_does_not_take_over_a_session_that_is_alive(self, server: Server, joe: str) -> None:
        old = Person(server).be(f"{joe}/1")
        connect = old.hold(ext={"ack": old.batch})
        reply = Person(server).shake(name=f"client/{joe}/1")
        assert refusal(reply) == (f"403:client/{joe}/1:{IDENTICAL}", IDENTICAL, "none")
        assert not connect.has_input()

    @one_lane
    def test_a_name_alone_takes_over_a_session_whose_client_is_gone(
        self, shared: Serve, joe: str, channel: str
    ) -> None:
        server = shared(*AWAY)
        old = Person(server).be(f"{joe}/1")
        old.subscribe(channel)
        Person(server).be(f"publisher-for-{joe}/1").publish(channel, 1, **PERSISTENT)
        granted: list[Person] = []

        def is_granted() -> bool:
            new = Person(server)
            if new.shake(name=f"{joe}/1")["successful"]:
                granted.append(new)
            return bool(granted)

        until(is_granted)
        assert granted[0].login["reconnected"] is True
        assert data(granted[0].take_all()) == [1]

    @pytest.mark.parametrize("resume", ["wrong", "0" * 32, "\u00e9", "\ud83d\ude00"])
    def test_a_wrong_resume_is_refused(self, server: Server, joe: str, resume: str) -> None:
        Person(server).be(f"{joe}/1")
        reply = Person(server).shake(name=f"{joe}/1", resume=resume)
        assert refusal(reply)[0] == f"403:client/{joe}/1:{IDENTICAL}"

    def test_a_handshake_whose_reply_was_lost_can_be_repeated(self, server: Server, joe: str) -> None:
        """As long as no client has connected with the new secret, the one that was shown is good."""
        first = Person(server).be(f"{joe}/1")
        lost, repeated = Person(server), Person(server)
        for person in (lost, repeated):
            assert person.shake(name=f"{joe}/1", resume=first.login["resume"])["successful"]
        assert repeated.take() == []
        assert refusal(Person(server).shake(name=f"{joe}/1", resume=first.login["resume"]))[1] == IDENTICAL
        other = Person(server)
        for _ in range(2):
            assert other.shake(name=f"{joe}/2", resume="of-a-session-that-has-ended")["successful"]

    def test_an_old_resume_is_a_wrong_one(self, server: Server, joe: str) -> None:
        first = Person(server).be(f"{joe}/1")
        Person(server).be(f"{joe}/1", resume=first.login["resume"])
        assert refusal(Person(server).shake(name=f"{joe}/1", resume=first.login["resume"]))[1] == IDENTICAL

    def test_the_resume_of_another_session_is_refused(self, server: Server, joe: str) -> None:
        first = Person(server).be(f"{joe}/1")
        Person(server).be(f"{joe}/2")
        for name in (f"{joe}/2", f"{joe}/3", f"other{joe}"):
            assert refusal(Person(server).shake(name=name, resume=first.login["resume"]))[1] == IDENTICAL

    def test_a_numbered_name_comes_back_with_its_resume_only(self, server: Server, joe: str) -> None:
        first = Person(server).be(joe)
        name = first.login["name"]
        assert refusal(Person(server).shake(name=name))[1] == IDENTICAL
        assert Person(server).be(name, resume=first.login["resume"]).login["name"] == name

    def test_an_anonymous_session_comes_back_with_its_resume(self, server: Server, channel: str) -> None:
        first = Person(server).be()
        first.subscribe(channel)
        second = Person(server).be(resume=first.login["resume"])
        assert (second.login["name"], second.login["reconnected"]) == (first.login["name"], True)
        Client(server).start().publish(channel, 1)
        assert data(second.take_all()) == [1]

    def test_a_resume_of_a_session_that_has_ended_makes_a_new_one(self, server: Server, joe: str) -> None:
        for name in (f"{joe}/1", joe, None):
            first = Person(server).be(name)
            first.disconnect()
            second = Person(server).be(name, resume=first.login["resume"])
            assert second.login["reconnected"] is False

    def test_who_acknowledges_is_not_taken_over_by_who_does_not(self, server: Server, joe: str) -> None:
        first = Person(server).be(f"{joe}/1")
        assert refusal(Quiet(server).shake(name=f"{joe}/1", resume=first.login["resume"]))[1] == "user.illegalArgument"
        assert first.take() == []

    def test_a_session_that_does_not_acknowledge_is_taken_over_with_its_queue(
        self, server: Server, joe: str, channel: str
    ) -> None:
        first = Quiet(server).be(f"{joe}/1")
        first.subscribe(channel)
        Client(server).start().publish(channel, 1)
        second = Quiet(server)
        second.shake(name=f"{joe}/1", resume=first.login["resume"])
        assert (second.login["reconnected"], second.login["queued"]) == (True, 1)
        assert data(second.take()) == [1]

    def test_a_socket_takes_over_from_polling_and_polling_from_a_socket(
        self, server: Server, joe: str, channel: str
    ) -> None:
        polling = Quiet(server).be(f"{joe}/1")
        polling.subscribe(channel)
        connect = polling.hold()
        socket = SocketClient(server)
        session = {"name": f"{joe}/1", "resume": polling.login["resume"]}
        login = socket.handshake(ext={"session": session})["ext"]["session"]
        assert connect.response().messages[-1]["error"].startswith("402:")
        socket.connect()
        held = socket.ask_connect()
        Client(server).start().publish(channel, 1)
        assert socket.heard() == [1]
        again = Quiet(server)
        again.shake(name=f"{joe}/1", resume=login["resume"])
        reply = socket.reply_to(held)
        assert (reply["error"], reply["advice"]) == (f"402:client/{joe}/1:{IDENTICAL}", {"reconnect": "none"})
        again.take()
        Client(server).start().publish(channel, 2)
        assert until(lambda: data(again.take())) == [2]
        assert socket.socket.fence() == []

    @one_lane
    @pytest.mark.parametrize("has_nonce", [False, True])
    def test_of_many_who_come_at_once_one_after_the_other_has_it(
        self, server: Server, joe: str, channel: str, has_nonce: bool
    ) -> None:
        first = Person(server).be(f"{joe}/1")
        first.subscribe(channel)
        people = [Person(server) for _ in range(8)]
        replies: list[Message] = []

        def come(person: Person) -> None:
            nonce = {"nonce": secrets.token_hex(16)} if has_nonce else {}
            replies.append(person.shake(name=f"{joe}/1", resume=first.login["resume"], **nonce))

        threads = [threading.Thread(target=come, args=(person,)) for person in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert [reply["successful"] for reply in replies] == [True] * 8
        (winner,) = [person for person in people if person.connect()[-1]["successful"]]
        Client(server).start().publish(channel, 1, **PERSISTENT)
        assert data(winner.take_all()) == [1]

    @one_lane
    def test_of_many_who_begin_at_once_one_makes_the_session(self, server: Server, joe: str) -> None:
        people = [Person(server) for _ in range(8)]
        threads = [threading.Thread(target=person.shake, kwargs={"name": f"{joe}/1"}) for person in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        logins = [person.login for person in people]
        assert sorted(login["reconnected"] for login in logins) == [False] + [True] * 7
        assert sum(person.connect()[-1]["successful"] for person in people) == 1


class TestLife:
    @one_lane
    def test_a_named_session_lives_as_long_as_it_said(self, serve: Serve) -> None:
        server = serve(*AWAY)
        in_time(lambda: Person(server).be())
        in_time(lambda: Person(server).be("joe/1", timeout=400))
        in_time(lambda: Quiet(server).be("joe/2", timeout=400))
        long = Person(server).be("joe/3", timeout=60000)
        until(lambda: sessions(server) == 1)
        reply = Person(server).shake(name="joe/3", resume=long.login["resume"])
        assert reply["ext"]["session"]["reconnected"] is True

    def test_bounds_of_the_burst_and_of_the_queue_are_obeyed(self, server: Server, joe: str, channel: str) -> None:
        person = Person(server).be(
            f"{joe}/1", burst={"maxEntries": 2}, queue={"maxEntries": 5, "onOverflow": "dropOldest"}
        )
        person.subscribe(channel)
        other = Client(server).start()
        for number in range(9):
            other.publish(channel, number, **PERSISTENT)
        taken = [data(person.take()) for _ in range(4)]
        assert taken == [[4, 5], [6, 7], [8], []]

    def test_bytes_of_a_burst(self, server: Server, joe: str, channel: str) -> None:
        person = Quiet(server).be(f"{joe}/1", burst={"maxBytes": 1000})
        person.subscribe(channel)
        other = Client(server).start()
        for _ in range(3):
            other.publish(channel, "x" * 600)
        taken: list[int] = []
        until(lambda: taken.append(len(person.take())) or sum(taken) == 3)
        assert max(taken) == 1

    def test_a_queue_that_ends_its_session(self, server: Server, joe: str, channel: str) -> None:
        person = Quiet(server).be(f"{joe}/1", queue={"maxEntries": 2, "onOverflow": "disconnect"})
        person.subscribe(channel)
        other = Client(server).start()

        def ends() -> bool:
            for number in range(4):
                other.publish(channel, number)
            replies = person.connect()  # the first messages of another node may come with it
            return not next(each for each in replies if each["channel"] == "/meta/connect")["successful"]

        until(ends)


@pytest.mark.parametrize("end", ["terminate", "kill"])
@one_lane
def test_names_and_their_secrets_survive_the_server(serve: Serve, end: str) -> None:
    server = serve("bayeux.timeout_ms=300")
    person = Person(server).be("joe/1", persistent=True, queue={"maxEntries": 50})
    numbered = Person(server).be("ann")
    person.subscribe("/a")
    Client(server).start().publish("/a", 1, **PERSISTENT)
    getattr(server, end)()
    server = serve("bayeux.timeout_ms=300", *server.store_sets, port=server.port)
    assert refusal(Person(server).shake(name="joe/1", resume="wrong"))[1] == IDENTICAL
    again = Person(server).be(resume=numbered.login["resume"])
    assert again.login["name"] == numbered.login["name"]
    again = Person(server)
    again.shake(name="joe/1", resume=person.login["resume"])
    assert (again.login["reconnected"], again.login["queued"]) == (True, 1)
    assert data(again.take_all()) == [1]
    person.forget_connections()
    person.server = server
    assert connect_of(person)["error"] == f"402:client/joe/1:{IDENTICAL}"


@one_lane
def test_after_a_restart_a_name_alone_finds_a_session_whose_client_has_not_come_back(serve: Serve) -> None:
    server = serve()
    person = Person(server).be("joe/1")
    person.subscribe("/a")
    Client(server).start().publish("/a", 1, **PERSISTENT)
    server.kill()
    server = serve(*server.store_sets)
    again = Person(server).be("joe/1")
    assert again.login["reconnected"] is True


@one_lane
def test_without_a_store_sessions_have_names_in_memory_and_none_that_last(serve: Serve) -> None:
    server = serve("storage.enabled=false")
    person = Person(server).be("joe/1")
    assert person.login["durable"] is False
    person.subscribe("/a")
    Client(server).start().publish("/a", 1)
    assert data(person.take()) == [1]
    again = Person(server)
    again.shake(name="joe/1", resume=person.login["resume"])
    assert data(again.take_all()) == [1]
    reply = Person(server).shake(name="joe/2", persistent=True)
    assert reply["error"] == "503:client/joe/2:resource.unavailable"


def test_no_value_of_any_field_breaks_the_server(server: Server, joe: str) -> None:
    """Each field with each kind of value, in a session of its own: granted or refused, and never a failure."""
    flags = ("update", "ptp", "persistent", "clearSessions")
    numbers = ("ackWait", "maxOpen", "pingInterval", "timeout", "maxSessions")
    fields = ("name", "token", "resume", "settle", "burst", "dispatcher", "queue", *flags, *numbers)
    odd: list[Any] = [
        None,
        True,
        -1,
        0,
        1.5,
        2**60,
        "",
        "\u0000",
        "x" * 9000,
        [],
        [1],
        {},
        {"a": {}},
        {"maxEntries": []},
    ]
    person = Person(server)
    answers = [person.shake(**{field: value}) for field in fields for value in odd]
    assert all(reply["successful"] or refusal(reply)[2] == "none" for reply in answers)
    other = Client(server).start()
    published = [
        other.send(other.message("/odd", data=1, ext={"publish": {field: value}}))[-1]
        for field in ("persistent", "key", "clientProperties", "destination", "history", "priority", "replyTo")
        for value in odd
    ]
    errors = {reply["error"].rpartition(":")[2] for reply in published if not reply["successful"]}
    assert errors == {"user.illegalArgument"}


@one_lane
def test_secrets_are_not_logged(serve: Serve) -> None:
    server = serve("log.level=debug", "admin.token=very-secret-indeed")
    person = Person(server).be("joe/1", token="very-secret-indeed")
    Person(server).shake(name="joe/1", resume="wrong-secret")
    Person(server).be("joe/1", resume=person.login["resume"])
    server.terminate()
    for secret in ("very-secret", "wrong-secret", person.login["resume"], person.id or ""):
        assert secret not in server.stderr


PATHS = ("/nowhere", "/cometd", "/admin/api/sessions", "/api/publish", "/chat/")


def test_what_stands_in_the_query_of_an_address_is_not_logged(serve: Serve) -> None:
    server = serve("log.level=debug")
    others = [("/chat/", {"Origin": "http://evil.example"}), ("/cometd", {"Host": "evil.example"})]
    for path, headers in [*((path, {}) for path in PATHS), *others]:
        with Connection(server) as connection:
            connection.get(f"{path}?token=very-secret", headers)
    for path in PATHS:
        with Connection(server) as connection:
            connection.post(f"{path}?token=very-secret", [])
    server.terminate()
    assert "very-secret" not in server.stderr
