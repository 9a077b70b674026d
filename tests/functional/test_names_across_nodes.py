"""Names of sessions are one name at all nodes, whether or not the store has the session."""

from __future__ import annotations

import json

import pytest

from tests.functional.cluster import TOKEN
from tests.functional.people import IDENTICAL, Person, refusal
from tests.server_process import Server


class Forgetful(Person):
    """Acknowledges nothing, so the store has nothing of its session."""

    acknowledges = False


@pytest.mark.parametrize("kind", [Person, Forgetful])
def test_a_name_that_is_in_use_at_another_node_is_refused(pair: list[Server], kind: type[Person]) -> None:
    name = f"client/{kind.__name__}/1"
    first = kind(pair[0]).be(name)
    assert refusal(kind(pair[1]).shake(name=name))[1] == IDENTICAL
    # Its own client comes back with the secret, by whichever node.
    again = kind(pair[1]).shake(name=name, resume=first.login["resume"])
    assert again["ext"]["session"]["reconnected"] is True
    assert again["clientId"] != first.id


def test_names_that_the_nodes_number_are_different(pair: list[Server]) -> None:
    logins = [Forgetful(server).be("client/many").login["name"] for server in (*pair, *pair)]
    assert len({name.partition("/client/")[2] for name in logins}) == 4


def test_a_name_is_free_for_both_nodes_when_its_session_has_ended(pair: list[Server]) -> None:
    for server in (*pair, *pair):
        person = Forgetful(server).be("client/free/1")
        assert person.send(person.message("/meta/disconnect"))[0]["successful"] is True


def test_a_name_is_free_again_after_another_node_has_sent_past_the_log(pair: list[Server]) -> None:
    """What a node sends to a session of its own has an id, and is not in the log that the other node follows."""
    first = Person(pair[0]).be("client/past/1")
    publisher = Person(pair[1]).be("client/past/2")
    to = {"publish": {"persistent": True, "destination": [{"to": "client/past/2"}]}}
    reply = publisher.send(publisher.message("/service/post", data=1, ext=to))[-1]
    assert reply["successful"] is True, reply
    first.disconnect()
    again = Person(pair[0]).shake(name="client/past/1")
    assert again["successful"] is True, json.dumps(again)


@pytest.mark.parametrize("kinds", [(Person, Person), (Forgetful, Forgetful), (Person, Forgetful), (Forgetful, Person)])
def test_the_sessions_of_a_subject_are_counted_at_all_nodes(
    pair: list[Server], kinds: tuple[type[Person], ...]
) -> None:
    name = "client/count" + "".join(kind.__name__[0] for kind in kinds)
    first, second = kinds
    first(pair[0]).be(name, maxSessions=2)
    second(pair[1]).be(name, maxSessions=2)
    assert refusal(second(pair[0]).shake(name=name, maxSessions=2))[1] == "user.configuration.maxSession"
    assert refusal(first(pair[1]).shake(name=name, maxSessions=2))[1] == "user.configuration.maxSession"
    other = second(pair[1]).shake(name=name, maxSessions=3)
    assert other["successful"] is True, json.dumps(other)


@pytest.mark.parametrize("kind", [Person, Forgetful])
def test_a_login_that_clears_the_sessions_of_its_subject_clears_those_of_all_nodes(
    pair: list[Server], kind: type[Person]
) -> None:
    name = f"client/clear{kind.__name__}"
    before = [kind(server).be(f"{name}/{number}") for number, server in enumerate(pair, 1)]
    # A name alone proves nothing: it ends no session whose client is there.
    code = "user.security.authorization.notAuthorized"
    for server in pair:
        refused = refusal(kind(server).shake(name=f"{name}/3", clearSessions=True, maxSessions=1))
        assert refused == (f"403:{name}/3:{code}", code, "none")
    before[0].disconnect()  # then the one that is alive is at the other node
    refused = refusal(kind(pair[0]).shake(name=f"{name}/3", clearSessions=True))
    assert refused[1] == code
    before[0] = kind(pair[0]).be(f"{name}/1")
    kind(pair[0]).be(f"{name}/3", token=TOKEN, clearSessions=True, maxSessions=1)
    for each in before:
        assert each.connect(advice={"timeout": 0})[-1]["error"].startswith("402")
