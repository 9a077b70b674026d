"""Messages to sessions and subjects by name, from one node to receivers at another."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import StartServer
from tests.functional.bayeux import Client, Message
from tests.functional.cluster import LONG, NODE, OPERATED, PATIENT
from tests.functional.people import Person
from tests.functional.test_names_across_nodes import Forgetful
from tests.functional.test_nodes import move, values, wait_for
from tests.server_process import Server

KINDS = pytest.mark.parametrize("kind", [Person, Forgetful])
STORED = pytest.mark.parametrize("persistent", [False, True], ids=["transient", "persistent"])


def send(server: Server, to: str, value: Any, *, persistent: bool = False, **destination: Any) -> Message:
    """The reply to a message to this destination."""
    client = Client(server).start()
    publish: Message = {"destination": [{"to": to, **destination}], "persistent": persistent}
    return client.send(client.message("/box", data=value, ext={"publish": publish}))[-1]


def code(reply: Message) -> str:
    assert reply["successful"] is False, reply
    return str(reply["ext"]["publish"]["errorCode"])


@KINDS
@STORED
def test_a_message_reaches_a_session_and_a_subject_of_the_other_node(
    pair: list[Server], kind: type[Person], persistent: bool
) -> None:
    subject = f"client/to{kind.__name__}{persistent}"
    here, there = (kind(server).be(f"{subject}/{number}") for number, server in enumerate(pair, 1))
    for sender in pair:
        reply = send(sender, f"{subject}/2", "to one", persistent=persistent)
        assert reply["successful"] is True, reply
        (message,) = wait_for(there, 1)
        assert (message["data"], message["channel"]) == ("to one", "/box")
        assert send(sender, subject, "to both", persistent=persistent)["successful"] is True
        assert [values(wait_for(each, 1)) for each in (here, there)] == [["to both"], ["to both"]]
    assert here.take() == there.take() == []


def test_destinations_at_several_nodes_have_one_id(pair: list[Server]) -> None:
    kinds = ((Person, 0), (Person, 1), (Forgetful, 0), (Forgetful, 1))
    people = [kind(pair[at]).be(f"client/several{number}/1", update=True) for number, (kind, at) in enumerate(kinds)]
    client = Client(pair[0]).start()
    to = [{"to": f"client/several{number}"} for number in range(4)]
    reply = client.publish("/box", "x", ext={"publish": {"destination": to, "persistent": True}})[-1]
    assert reply["successful"] is True, reply
    assert len({wait_for(each, 1)[0]["ext"]["update"]["id"] for each in people}) == 1


@KINDS
@STORED
def test_what_nobody_at_any_node_takes_is_refused(pair: list[Server], kind: type[Person], persistent: bool) -> None:
    subject = f"client/no{kind.__name__}{persistent}"
    kind(pair[1]).be(f"{subject}/1", ptp=False)
    refusals = [code(send(pair[0], to, 1, persistent=persistent)) for to in (f"{subject}/1", subject, f"{subject}/2")]
    assert refusals == [f"user.ptp.{why}" for why in ("denied", "denied", "unknownDestinationSession")]


def test_a_message_waits_for_a_subject_until_it_is_at_any_node(pair: list[Server]) -> None:
    for number in range(3):
        assert send(pair[0], "client/later", number, persistent=True, forceQueuing=True)["successful"] is True
    joe = Person(pair[1])
    assert joe.shake(name="client/later/1")["successful"] is True
    early = joe.take()  # the first connect is answered at once, with or without them
    assert values([*early, *wait_for(joe, 3 - len(early))]) == [0, 1, 2]


@KINDS
def test_one_of_the_sessions_of_both_nodes_has_it(pair: list[Server], kind: type[Person]) -> None:
    subject = f"client/one{kind.__name__}"
    people = [kind(server).be(f"{subject}/{number}") for number, server in enumerate(pair, 1)]
    for number in range(20):
        asked = {"distribute": "one"} | ({"forceQueuing": True} if kind is Person else {})
        assert send(pair[number % 2], subject, number, persistent=kind is Person, **asked)["successful"] is True
    taken: list[Any] = []
    while len(taken) < 20:
        found = [values(person.take(timeout=200)) for person in people]
        taken += [each for some in found for each in some]
    assert sorted(taken) == list(range(20))


def test_what_was_sent_to_a_session_survives_the_death_of_its_node(start_server: StartServer) -> None:
    first = start_server(NODE, LONG, OPERATED, PATIENT)
    second = start_server(*first.store_sets, NODE, LONG, OPERATED, PATIENT)
    joe = Person(second).be("client/joe/1")
    assert send(first, "client/joe/1", "before", persistent=True)["successful"] is True
    (before,) = wait_for(joe, 1)
    second.kill()
    # Nobody has the session at first, and then the heir: the message is for it either way.
    assert send(first, "client/joe/1", "meanwhile", persistent=True)["successful"] is True
    move(joe, first)
    found = {each["id"]: each["data"] for each in wait_for(joe, 2)}
    assert list(found.values()) == ["before", "meanwhile"]
    assert found[before["id"]] == "before"
    assert send(first, "client/joe", "after", persistent=True)["successful"] is True
    assert values(wait_for(joe, 1)) == ["after"]
