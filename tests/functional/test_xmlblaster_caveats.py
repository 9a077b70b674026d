"""Where Crewel is not what xmlBlaster's pages describe: the caveats of docs/reference/xmlblaster.md, as they are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.functional.bayeux import Client, Message, data
from tests.functional.people import Person
from tests.functional.test_dead_letters_live import QUICK, Operator, Receiver
from tests.functional.wire import until
from tests.server_process import Server, serving

PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all of this."""
    with serving(tmp_path_factory.mktemp("caveats"), *QUICK) as server:
        yield server


@pytest.fixture
def operator(server: Server) -> Iterator[Operator]:
    """Who hears of dead letters, until the test ends."""
    operator = Operator(server).listen()
    yield operator
    operator.disconnect()


@pytest.fixture
def name() -> str:
    """A session that no other test uses."""
    return f"joe{next(_numbers)}/1"


@pytest.fixture
def channel() -> str:
    """A channel that no other test uses."""
    return f"/caveats/{next(_numbers)}"


def test_the_end_of_an_anonymous_session_leaves_no_letter(
    server: Server, operator: Operator, name: str, channel: str
) -> None:
    for receivers_name in (None, name):
        receiver = Person(server).be(receivers_name)
        receiver.subscribe(channel)
        Client(server).start().publish(channel, receivers_name, **PERSISTENT)
        receiver.disconnect()
    assert data(operator.letters(1, channel)) == [name]


def test_the_failure_that_an_anonymous_session_reports_leaves_a_letter(
    server: Server, operator: Operator, channel: str
) -> None:
    receiver = Receiver(server)
    receiver.be(update=True, settle="message")
    receiver.subscribe(channel)
    Client(server).start().publish(channel, 1)
    receiver.refuse(1)
    assert data(operator.letters(1, channel)) == [1]


@pytest.mark.parametrize(("qos", "known"), [({}, []), ({"history": {"maxEntries": 10}}, [1])], ids=["default", "10"])
def test_a_topic_keeps_no_history_unless_asked(
    server: Server, name: str, channel: str, qos: Message, known: list[int]
) -> None:
    Client(server).start().publish(channel, 1, ext={"publish": {"persistent": True, **qos}})
    late = Person(server).be(name)
    late.send(late.message("/meta/subscribe", subscription=channel, ext={"subscribe": {"history": {"numEntries": 10}}}))
    assert data(late.take_all()) == known


def test_a_receiver_that_has_never_connected_is_accepted(server: Server, name: str) -> None:
    receiver = Person(server)
    assert receiver.shake(name=name)["successful"]
    to = {"publish": {"destination": {"to": f"client/{name}"}}}
    (reply,) = Client(server).start().publish("/service/mail", 1, ext=to)
    assert reply["successful"], reply
    assert data(receiver.take_all()) == [1]


def test_a_time_out_is_a_letter_and_the_session_stays(
    server: Server, operator: Operator, name: str, channel: str
) -> None:
    receiver = Person(server)
    receiver.be(name, update=True, settle="message", ackWait=50)
    receiver.subscribe(channel)
    publisher = Client(server).start()
    publisher.publish(channel, 1)
    assert data(until(receiver.take)) == [1]
    (letter,) = operator.letters(1, channel)
    assert letter["ext"]["update"]["clientProperties"]["__errorCode"] == "communication.responseTimeout"
    publisher.publish(channel, 2)
    assert data(until(receiver.take)) == [2]


@pytest.mark.parametrize(("asked", "ahead"), [({}, 3), ({"maxOpen": 1}, 1)], ids=["default", "maxOpen"])
def test_messages_come_ahead_unless_the_login_asks_for_one_at_a_time(
    server: Server, name: str, channel: str, asked: Message, ahead: int
) -> None:
    receiver = Receiver(server)
    receiver.be(name, update=True, settle="message", **asked)
    receiver.subscribe(channel)
    publisher = Client(server).start()
    for number in (1, 2, 3):
        publisher.publish(channel, number, **PERSISTENT)
    come: list[Message] = []

    def is_there() -> bool:
        come.extend(receiver.take())
        return len(come) - settled >= ahead

    for settled in range(0, 3, ahead):
        until(is_there)
        assert receiver.take() == []
        opened = come[settled:]
        assert len(opened) == ahead
        receiver.publish("/service/update", [{"id": each["ext"]["update"]["id"], "state": "OK"} for each in opened])
    assert data(come) == [1, 2, 3]


def test_commands_are_no_channels(operator: Operator) -> None:
    command = "__cmd:?sessionList"
    refused = operator.send(operator.message(command, data=None))[-1]
    assert (refused["successful"], refused["error"].partition(":")[0]) == (False, "405")
