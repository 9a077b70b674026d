"""Where Crewel is not what xmlBlaster's pages describe: the caveats of docs/reference/xmlblaster.md, as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.conftest import StartServer
from tests.functional.bayeux import Client, Message, data
from tests.functional.people import Person
from tests.functional.test_dead_letters_live import QUICK, Operator, Receiver
from tests.functional.wire import until
from tests.server_process import Server

PERSISTENT: dict[str, Any] = {"ext": {"publish": {"persistent": True}}}


@pytest.fixture
def server(start_server: StartServer) -> Server:
    """One server for the test."""
    return start_server(*QUICK)


def test_the_end_of_an_anonymous_session_leaves_no_letter(server: Server) -> None:
    operator = Operator(server).listen()
    for name in (None, "joe/1"):
        receiver = Person(server).be(name)
        receiver.subscribe("/a")
        Client(server).start().publish("/a", name, **PERSISTENT)
        receiver.disconnect()
    assert data(operator.letters(1)) == ["joe/1"]


def test_the_failure_that_an_anonymous_session_reports_leaves_a_letter(server: Server) -> None:
    operator = Operator(server).listen()
    receiver = Receiver(server)
    receiver.be(update=True, settle="message")
    receiver.subscribe("/a")
    Client(server).start().publish("/a", 1)
    receiver.refuse(1)
    assert data(operator.letters(1)) == [1]


@pytest.mark.parametrize(("qos", "known"), [({}, []), ({"history": {"maxEntries": 10}}, [1])], ids=["default", "10"])
def test_a_topic_keeps_no_history_unless_asked(server: Server, qos: Message, known: list[int]) -> None:
    Client(server).start().publish("/h", 1, ext={"publish": {"persistent": True, **qos}})
    late = Person(server).be("joe/1")
    late.send(late.message("/meta/subscribe", subscription="/h", ext={"subscribe": {"history": {"numEntries": 10}}}))
    assert data(late.take_all()) == known


def test_a_receiver_that_has_never_connected_is_accepted(server: Server) -> None:
    receiver = Person(server)
    assert receiver.shake(name="joe/2")["successful"]
    to = {"publish": {"destination": {"to": "client/joe/2"}}}
    (reply,) = Client(server).start().publish("/service/mail", 1, ext=to)
    assert reply["successful"], reply
    assert data(receiver.take_all()) == [1]


def test_a_time_out_is_a_letter_and_the_session_stays(server: Server) -> None:
    operator = Operator(server).listen()
    receiver = Person(server)
    receiver.be("joe/1", update=True, settle="message", ackWait=50)
    receiver.subscribe("/a")
    publisher = Client(server).start()
    publisher.publish("/a", 1)
    assert data(until(receiver.take)) == [1]
    letters = until(partial(operator.take, timeout=100))
    assert letters[0]["ext"]["update"]["clientProperties"]["__errorCode"] == "communication.responseTimeout"
    publisher.publish("/a", 2)
    assert data(until(receiver.take)) == [2]


@pytest.mark.parametrize(("asked", "ahead"), [({}, 3), ({"maxOpen": 1}, 1)], ids=["default", "maxOpen"])
def test_messages_come_ahead_unless_the_login_asks_for_one_at_a_time(
    server: Server, asked: Message, ahead: int
) -> None:
    receiver = Receiver(server)
    receiver.be("joe/1", update=True, settle="message", **asked)
    receiver.subscribe("/a")
    publisher = Client(server).start()
    for number in (1, 2, 3):
        publisher.publish("/a", number, **PERSISTENT)
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


def test_commands_are_no_channels(server: Server) -> None:
    operator = Operator(server).listen()
    command = "__cmd:?sessionList"
    refused = operator.send(operator.message(command, data=None))[0]
    assert (refused["successful"], refused["error"].partition(":")[0]) == (False, "405")
