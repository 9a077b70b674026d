"""Who is who: names, the secrets that take sessions over, and who was taken over."""

import re

import pytest

from crewel.broker.addressing import session_names as names_module
from crewel.broker.addressing.session_names import Names, digest, new_resume
from crewel.broker.session import Session
from tests.broker.world import World


@pytest.fixture
def names() -> Names:
    return Names(-1)


def session(world: World, name: str) -> Session:
    made = Session(world.broker, name)
    made.name = name
    return made


def test_a_secret_has_128_bits_and_is_kept_as_what_recognises_it() -> None:
    secret = new_resume()
    assert re.fullmatch("[0-9a-f]{32}", secret)
    assert secret != new_resume()
    assert re.fullmatch("[0-9a-f]{64}", digest(secret))
    assert digest("\udc80") != digest("x")


def test_a_session_is_found_by_its_name_its_secret_and_its_subject(world: World, names: Names) -> None:
    first, second = session(world, "client/joe/1"), session(world, "client/joe/-2")
    names.add(first, digest("one"))
    names.add(second)
    assert names.find("client/joe/1") is names.shown("one") is first
    assert names.of_subject("joe") == [first, second]
    assert names.find("client/joe/2") is names.shown("two") is None
    assert names.of_subject("ann") == []
    assert len(names) == 2


def test_only_the_newest_secret_counts(world: World, names: Names) -> None:
    first = session(world, "client/joe/1")
    names.add(first, digest("one"))
    names.add(first, digest("two"))
    assert names.shown("one") is None
    assert names.shown("two") is first
    names.add(first)
    assert names.shown("two") is None
    assert names.of_subject("joe") == [first]


def test_the_secret_that_was_shown_counts_until_the_client_has_the_new_one(world: World, names: Names) -> None:
    first = session(world, "client/joe/1")
    names.add(first, digest("new"), digest("shown"))
    assert names.shown("new") is names.shown("shown") is first
    names.prove(first)
    names.prove(first)
    assert names.shown("new") is first
    assert names.shown("shown") is None
    names.prove(session(world, "client/ann/1"))
    names.forget(first)
    assert names.shown("new") is None


def test_a_session_without_a_secret_proves_nothing(world: World, names: Names) -> None:
    first = session(world, "client/anonymous/-1")
    names.add(first)
    names.prove(first)
    assert names.find("client/anonymous/-1") is first


def test_who_has_ended_is_not_found_any_more(world: World, names: Names) -> None:
    first = session(world, "client/joe/1")
    names.add(first, digest("one"))
    names.forget(first)
    names.forget(first)
    assert names.find("client/joe/1") is names.shown("one") is None
    assert names.of_subject("joe") == []


def test_a_session_that_never_had_the_name_takes_it_from_nobody(world: World, names: Names) -> None:
    first = session(world, "client/joe/1")
    names.add(first)
    names.forget(session(world, "client/joe/1"))
    assert names.find("client/joe/1") is first


def test_numbers_go_down(names: Names) -> None:
    assert [names.number("joe"), names.number("ann")] == ["client/joe/-1", "client/ann/-2"]
    assert Names(-1_000_000_001).number("joe") == "client/joe/-1000000001"


def test_who_was_taken_over_is_remembered_for_a_while(names: Names) -> None:
    names.supersede("id", "client/joe/1", now=100.0)
    assert names.superseded("id", now=100.0) == "client/joe/1"
    assert names.superseded("other", now=100.0) is None
    assert names.superseded("id", now=100.0 + names_module.REMEMBERED_S) is None
    assert names.superseded("id", now=100.0) is None


def test_no_more_of_them_are_remembered_than_there_is_room_for(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names_module, "REMEMBERED", 3)
    for number in range(5):
        names.supersede(str(number), "client/joe/1", now=0.0)
    assert [names.superseded(str(number), now=0.0) is not None for number in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]
