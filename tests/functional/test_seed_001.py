"""xmlBlaster's page engine.qos.publish.destination.offline, statement by statement: what becomes of a message to somebody by
name who is here, who is away, and whom nobody knows.

`TestRow1` to `TestRow4` are the rows of its table. What the page calls an exception is the refusal of the publish here. A
callback that is ALIVE is a client that connects; in POLLING it is gone and its session lives.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from crewel.client import Client, DestinationDenied, UnknownDestination, UnknownDestinationSession
from tests.admin.desk import TOKEN, Receiver
from tests.functional.bayeux import Message, data
from tests.functional.conftest import Serve, one_lane
from tests.functional.people import Person
from tests.functional.post import BOX, MARK, SETS, Keeper, Office, comes
from tests.functional.wire import until

pytestmark = one_lane

UNKNOWN, UNKNOWN_SESSION, DENIED = (
    f"user.ptp.{code}" for code in ("unknownDestination", "unknownDestinationSession", "denied")
)
STORED = pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])


@pytest.fixture
def office(shared: Serve) -> Office:
    """A subject of its own on a server that other tests use too."""
    return Office(shared(*SETS))


class TestWithoutForceQueuing:
    """The page: "if you send a message to a named destination, and there is no callback for this receiver, or the receiver
    is not logged in and the forceQueuing attribute is not set, you get an exception"."""

    @STORED
    def test_a_receiver_who_is_not_logged_in(self, office: Office, persistent: bool) -> None:
        assert office.refused("hi", office.joe, persistent=persistent) == UNKNOWN
        assert office.refused("hi", office.name(2), persistent=persistent) == UNKNOWN_SESSION
        joe = office.login(2)
        assert joe.take_all() == []

    @STORED
    def test_a_receiver_without_a_callback(self, office: Office, persistent: bool) -> None:
        """Who takes no messages that are addressed to it has none."""
        joe = office.login(2, ptp=False)
        assert office.refused("hi", office.name(2), persistent=persistent) == DENIED
        assert joe.take_all() == []

    @STORED
    def test_a_receiver_who_is_logged_in(self, office: Office, persistent: bool) -> None:
        joe = office.login()
        message_id = office.send("hi", office.joe, persistent=persistent)
        (message,) = comes(joe)
        assert (message["channel"], message["data"]) == (BOX, "hi")
        assert message["ext"]["update"]["id"] == message_id
        assert message["ext"]["update"]["subscription"] == MARK
        joe.accept([message])
        assert joe.take_all() == []

    def test_the_example_of_the_page(self, office: Office) -> None:
        """Michelle/2 is not logged in: "exception is correct"."""
        reply = office.ask("Hi Michelle", {"to": "client/Michelle/2", "forceQueuing": False})
        assert (reply["successful"], reply["error"]) == (False, f"404:client/Michelle/2:{UNKNOWN_SESSION}")


class TestInPython:
    """The exceptions are exceptions, each of a type of its own."""

    async def test_the_example_of_the_page_in_python(self, office: Office) -> None:
        async with Client(office.server.url) as client:
            with pytest.raises(UnknownDestinationSession) as raised:
                await client.publish(BOX, "Hi Michelle", to="client/Michelle/2", force_queuing=False)
        assert raised.value.error_code == UNKNOWN_SESSION
        assert [(each.to, each.is_ok) for each in raised.value.destinations] == [("client/Michelle/2", False)]

    async def test_each_refusal_has_its_exception(self, office: Office) -> None:
        closed = f"{office.joe}closed/1"
        async with Client(office.server.url) as client, Client(office.server.url, name=closed, session={"ptp": False}):
            with pytest.raises(UnknownDestination):
                await client.publish(BOX, "hi", to=office.joe)
            with pytest.raises(DestinationDenied):
                await client.publish(BOX, "hi", to=closed)
            reply = await client.publish(BOX, "hi", to=office.joe, force_queuing=True)
        assert [(each.to, each.is_ok) for each in reply.destinations] == [(office.joe, True)]


class TestRow1:
    """Row 1. Destination without pubSessionId (e.g. 'client/joe'); connected (callback is ALIVE or POLLING)."""

    def test_joe_is_connected_once(self, office: Office) -> None:
        """The page: "all connected sessions receive the message"."""
        joe = office.login()
        office.send("hi", office.joe, queue=True)
        assert data(comes(joe)) == ["hi"]

    def test_joe_is_connected_several_times(self, office: Office) -> None:
        """The page: "one or multiple times": each hears it once, with one id."""
        sessions = [office.login(number) for number in (1, 2, 3)]
        message_id = office.send("hi", office.joe, queue=True)
        for joe in sessions:
            (message,) = comes(joe)
            assert (message["data"], message["ext"]["update"]["id"]) == ("hi", message_id)
            joe.accept([message])
        assert [joe.take_all() for joe in sessions] == [[], [], []]
        assert office.queued() == 0

    def test_a_client_that_holds_a_connect_is_told_at_once(self, office: Office) -> None:
        joe = office.login()
        held = joe.hold(ext={"ack": joe.batch})
        office.send("hi", office.joe, queue=True)
        assert data(held.response().messages) == ["hi"]

    def test_joe_is_polling(self, office: Office) -> None:
        """What is for a session whose client is gone waits for it to come back; one that is here has it at once."""
        away, here = office.login(1), office.login(2)
        until(lambda: here.take() == [] and office.state(1) == "POLLING")
        office.send("hi", office.joe, queue=True)
        assert data(comes(here)) == ["hi"]
        assert data(comes(away)) == ["hi"]

    def test_a_session_that_takes_no_addressed_messages_is_left_out(self, office: Office) -> None:
        closed, open_ = office.login(1, ptp=False), office.login(2)
        office.send("hi", office.joe, queue=True)
        assert data(comes(open_)) == ["hi"]
        assert closed.take_all() == []

    @pytest.mark.parametrize("end", ["disconnect", "kill", "timeout", "communication"])
    @pytest.mark.parametrize("sent", [False, True], ids=["not sent", "sent and not settled"])
    def test_the_session_ends_before_the_message_is_delivered(self, office: Office, end: str, sent: bool) -> None:
        """The page: "it is put back to the subject queue of joe"; and from there it goes to the next who is joe."""
        joe = office.login(1, timeout=2000 if end == "timeout" else 60_000)
        message_id = office.send("hi", office.joe, queue=True)
        messages = comes(joe) if sent or end == "communication" else []
        _END[end](office, joe, messages)
        until(lambda: office.queued() == 1)
        again = office.login(1)
        (message,) = comes(again)
        assert (message["data"], message["ext"]["update"]["id"]) == ("hi", message_id)
        if messages:
            assert message["ext"]["update"]["redeliver"] > 0
        again.accept([message])
        until(lambda: office.queued() == 0)
        again.disconnect()
        assert office.letters() == []
        assert office.login(1).take_all() == []

    def test_the_message_is_put_back_in_its_place(self, office: Office) -> None:
        """Before what was published later, for a session that ended with it open."""
        joe = office.login()
        for number in (1, 2):
            office.send(number, office.joe, queue=True)
        comes(joe, 2)
        joe.disconnect()
        until(lambda: office.queued() == 2)
        office.send(3, office.joe, queue=True)
        assert data(comes(office.login(2), 3)) == [1, 2, 3]

    def test_the_message_is_put_back_once_when_all_sessions_have_ended(self, office: Office) -> None:
        first, second = office.login(1), office.login(2)
        office.send("hi", office.joe, queue=True)
        comes(first)
        first.disconnect()
        assert office.queued() == 0  # the second may still settle it
        comes(second)
        second.disconnect()
        until(lambda: office.queued() == 1)
        assert office.letters(1) == office.letters(2) == []

    def test_the_message_is_not_put_back_if_another_session_has_settled_it(self, office: Office) -> None:
        first, second = office.login(1), office.login(2)
        office.send("hi", office.joe, queue=True)
        comes(first)
        second.accept(comes(second))
        first.disconnect()
        second.disconnect()
        assert office.login(3).take_all() == []
        assert office.queued() == 0


class TestRow2:
    """Row 2. Destination without pubSessionId (e.g. 'client/joe'); not connected."""

    def test_the_message_waits_in_the_queue_of_the_subject(self, office: Office) -> None:
        """The page: "if joe connects, the queued message is delivered automatically to its callback address"."""
        message_id = office.send("hi", office.joe, queue=True)
        assert office.queued() == 1
        joe = office.login(7)
        (message,) = comes(joe)
        assert (message["data"], message["ext"]["update"]["id"]) == ("hi", message_id)
        assert message["ext"]["update"]["subscription"] == MARK
        joe.accept([message])
        until(lambda: office.queued() == 0)

    def test_in_the_order_of_priority_and_then_of_age(self, office: Office) -> None:
        for number, priority in enumerate((5, 0, "HIGH", 9, 5, "HIGH")):
            office.send(number, office.joe, queue=True, priority=priority)
        assert office.queued() == 6
        assert data(comes(office.login(), 6)) == [3, 2, 5, 0, 4, 1]

    def test_whoever_comes_first_has_them(self, office: Office) -> None:
        office.send("hi", office.joe, queue=True)
        first = office.login(1)
        (message,) = comes(first)
        second = office.login(2)
        assert second.take_all() == []
        first.accept([message])

    def test_not_who_takes_no_addressed_messages(self, office: Office) -> None:
        office.send("hi", office.joe, queue=True)
        assert office.login(1, ptp=False).take_all() == []
        assert office.queued() == 1
        assert data(comes(office.login(2))) == ["hi"]

    def test_the_queue_survives_the_server(self, serve: Serve) -> None:
        server = serve(*SETS)
        office = Office(server)
        for number, persistent in enumerate((True, False, True)):
            office.send(number, office.joe, queue=True, persistent=persistent)
        server.kill()
        again = serve(*SETS, *server.store_sets, port=server.port)
        office.desk.server = office.server = again
        assert office.queued() == 3
        assert data(comes(office.login(), 3)) == [0, 1, 2]

    def test_the_queue_has_a_bound_which_the_publisher_is_told(self, shared: Serve) -> None:
        office = Office(shared(*SETS, "ptp.subject_queue_max_entries=2"))
        for number in range(2):
            office.send(number, office.joe, queue=True)
        reply = office.ask(2, {"to": office.joe, "forceQueuing": True})
        assert reply["successful"] is False
        assert reply["error"] == f"413:{office.joe}:resource.overflow.queue.entries"
        assert office.queued() == 2
        assert data(comes(office.login(), 2)) == [0, 1]

    def test_the_queue_ends_when_nobody_comes_for_long(self, shared: Serve) -> None:
        office = Office(shared(*SETS, "ptp.subject_idle_ms=300"))
        office.send("hi", office.joe, queue=True)
        until(lambda: office.queued() == 0)
        assert office.login().take_all() == []


class TestRow3:
    """Row 3. Destination with pubSessionId (e.g. 'client/joe/2'); joe/2 is online (callback is ALIVE or POLLING)."""

    @STORED
    def test_the_session_is_alive(self, office: Office, persistent: bool) -> None:
        """The page: "the message is delivered directly (ALIVE)"; to that session and to no other of joe's."""
        other, joe = office.login(1), office.login(2)
        held = joe.hold(ext={"ack": joe.batch})
        office.send("hi", office.name(2), queue=True, persistent=persistent)
        messages = held.response().messages
        assert data(messages) == ["hi"]
        assert messages[0]["ext"]["update"]["subscription"] == MARK
        assert other.take_all() == []

    @STORED
    def test_the_session_is_polling(self, office: Office, persistent: bool) -> None:
        """The page: "or queued in the callback queue of joe's session number 2 (POLLING)"."""
        other, joe = office.login(1), office.login(2)
        until(lambda: other.take() == [] and office.state(2) == "POLLING")
        office.send("hi", office.name(2), queue=True, persistent=persistent)
        until(lambda: office.desk.cmd(f"__cmd:{office.name(2)}/?cbQueueNumMsgs") == 1)
        assert other.take_all() == []
        (message,) = comes(joe)
        assert message["data"] == "hi"
        joe.accept([message])

    @STORED
    @pytest.mark.parametrize("code", ["communication.timeout", "user.security.authentication.accessDenied"])
    def test_the_callback_goes_to_dead(self, office: Office, persistent: bool, code: str) -> None:
        """The page: "if the callback goes to DEAD ... the message will be published as DEAD MESSAGE"."""
        # It connects when the dead letters are there, which may be later than the server waits for others.
        watcher = Person(office.server).be(f"{office.joe}watcher/1", token=TOKEN, timeout=60_000)
        watcher.subscribe("/__sys__deadMessage")
        joe = office.login(2, burst={"maxEntries": 1})
        for number in (1, 2):
            office.send(number, office.name(2), queue=True, persistent=persistent)
        until(lambda: office.desk.cmd(f"__cmd:{office.name(2)}/?cbQueueNumMsgs") == 2)  # of several nodes, at its own
        _fail(joe, comes(joe)[:1], code)
        until(lambda: len(office.letters(2)) == 2)
        assert [letter["data"] for letter in office.letters(2)] == [1, 2]
        assert {letter["errorCode"] for letter in office.letters(2)} >= {code}
        letters = [each for each in comes(watcher, 2) if _receiver(each).endswith(office.name(2))]
        assert data(letters) == [1, 2]
        assert office.refused(3, office.name(2)) == UNKNOWN_SESSION

    @STORED
    def test_the_session_times_out(self, office: Office, persistent: bool) -> None:
        """The page: "or the session times out before the message was delivered"."""
        office.login(2, timeout=1500)
        office.send("hi", office.name(2), queue=True, persistent=persistent)
        until(lambda: office.letters(2))
        (letter,) = office.letters(2)
        assert (letter["data"], letter["channel"]) == ("hi", BOX)
        assert letter["errorCode"] == "communication.noConnection.dead"
        assert office.login(2).take_all() == []


class TestRow4:
    """Row 4. Destination with pubSessionId (e.g. 'client/joe/2'); not connected."""

    @STORED
    @pytest.mark.parametrize("queue", [True, False], ids=["force queuing", "not"])
    def test_the_session_is_not_connected(self, office: Office, persistent: bool, queue: bool) -> None:
        """The page: "the publisher gets an exception, the message is not delivered"."""
        other = office.login(1)
        assert office.refused("hi", office.name(2), queue=queue, persistent=persistent) == UNKNOWN_SESSION
        assert other.take_all() == []
        assert office.login(2).take_all() == []
        assert office.queued() == 0


class TestSeveralDestinations:
    """All are tried, and the reply tells each."""

    def test_one_failure_makes_the_publish_fail_and_the_others_have_it(self, office: Office) -> None:
        joe = office.login(1)
        to = [office.name(1), office.name(2), f"{office.joe}x", f"{office.joe}y"]
        reply = office.ask("hi", *({"to": each, "forceQueuing": each.endswith("y")} for each in to))
        assert reply["successful"] is False
        assert reply["error"] == f"404:{to[1]}:{UNKNOWN_SESSION}"  # the first that failed
        told = reply["ext"]["publish"]["destinations"]
        assert [each["to"] for each in told] == to
        assert [each.get("errorCode") for each in told] == [None, UNKNOWN_SESSION, UNKNOWN, None]
        assert [each["state"] == "OK" for each in told] == [True, False, False, True]
        assert data(comes(joe)) == ["hi"]
        assert data(comes(Keeper(office.server).be(f"{to[3]}/1"))) == ["hi"]

    def test_messages_to_several_destinations_have_one_id(self, office: Office) -> None:
        sessions = [office.login(number) for number in (1, 2)]
        reply = office.ask("hi", *({"to": office.name(number)} for number in (1, 2)), persistent=True)
        message_id = reply["ext"]["publish"]["id"]
        assert [comes(joe)[0]["ext"]["update"]["id"] for joe in sessions] == [message_id, message_id]


class TestLoadBalancing:
    """What the page wishes for, "load balancing delivery of PtP messages to exactly one receiver": `distribute: "one"`."""

    def test_exactly_one_session_has_each_message(self, office: Office) -> None:
        sessions = [office.login(number) for number in (1, 2, 3)]
        for number in range(9):
            office.ask(number, _one(office))
        heard = [data(joe.take_all()) for joe in sessions]
        assert sorted(itertools.chain(*heard)) == list(range(9))
        assert [len(each) for each in heard] == [3, 3, 3]  # the one with the fewest has the next

    def test_another_one_has_it_when_one_fails(self, office: Office) -> None:
        sessions = [office.login(number) for number in (1, 2)]
        reply = office.ask("hi", _one(office))
        first, second = _who_hears(sessions)
        first[0].reject([first[1]], "user.update.error")
        (message,) = comes(second)
        assert message["data"] == "hi"
        assert message["ext"]["update"]["id"] == reply["ext"]["publish"]["id"]
        second.accept([message])
        assert office.letters(1) == office.letters(2) == []

    def test_a_letter_when_all_have_failed(self, office: Office) -> None:
        sessions = [office.login(number) for number in (1, 2)]
        office.ask("hi", _one(office))
        first, second = _who_hears(sessions)
        first[0].reject([first[1]], "user.update.error")
        second.reject(comes(second), "user.update.error")
        until(lambda: len(office.letters(1)) + len(office.letters(2)) == 1)

    def test_another_one_has_it_when_one_goes(self, office: Office) -> None:
        sessions = [office.login(number) for number in (1, 2)]
        office.ask("hi", _one(office))
        first, second = _who_hears(sessions)
        first[0].disconnect()
        assert data(comes(second)) == ["hi"]


class TestSubscribersBeside:
    """A publish on a broadcast channel is heard by its subscribers too, unless its publisher says otherwise."""

    @pytest.mark.parametrize("subscribable", [True, False])
    def test_subscribers_hear_it_if_it_is_subscribable(self, office: Office, channel: str, subscribable: bool) -> None:
        joe, other = office.login(1), office.login(2)
        other.subscribe(channel)
        office.send("hi", office.name(1), channel=channel, subscribable=subscribable)
        assert data(comes(joe)) == ["hi"]
        assert data(other.take_all()) == (["hi"] if subscribable else [])

    def test_who_is_addressed_and_subscribed_has_two_entries(self, office: Office, channel: str) -> None:
        joe = office.login(1)
        joe.subscribe(channel)
        office.send("hi", office.name(1), channel=channel)
        messages = comes(joe, 2)
        assert data(messages) == ["hi", "hi"]
        marks = [message["ext"]["update"].get("subscription") for message in messages]
        assert sorted(marks, key=str) == [None, MARK]
        assert len({message["ext"]["update"]["id"] for message in messages}) == 2


def _fail(joe: Receiver, messages: list[Message], code: str) -> None:
    """Report these with a code that ends the session; the connect that says so may be refused already."""
    ids = [message["ext"]["update"]["id"] for message in messages]
    joe.connect(
        advice={"timeout": 0}, ext={"ack": joe.batch, "update": [{"id": each, "errorCode": code} for each in ids]}
    )


def _kill(office: Office, joe: Receiver, messages: list[Message]) -> None:
    office.desk.cmd(f"__cmd:{office.name(1)}/?killSession")


def _reject(office: Office, joe: Receiver, messages: list[Message]) -> None:
    _fail(joe, messages, "communication.timeout")  # without retries this is the end


_END: dict[str, Callable[[Office, Receiver, list[Message]], Any]] = {
    "disconnect": lambda office, joe, messages: joe.disconnect(),
    "kill": _kill,
    "timeout": lambda office, joe, messages: None,
    "communication": _reject,
}


def _one(office: Office) -> Message:
    return {"to": office.joe, "forceQueuing": True, "distribute": "one"}


def _who_hears(sessions: list[Receiver]) -> tuple[tuple[Receiver, Message], Receiver]:
    """Of two, the one that hears a message, with the message; and the other, who hears nothing."""
    heard: dict[int, list[Message]] = {}

    def somebody() -> bool:
        heard.update((number, found) for number, joe in enumerate(sessions) if (found := joe.take()))
        return bool(heard)

    until(somebody)
    ((number, (message,)),) = heard.items()
    return (sessions[number], message), sessions[1 - number]


def _receiver(letter: Message) -> str:
    receiver: str = letter["ext"]["update"]["clientProperties"]["__receiver"]
    return receiver
