"""Sessions: the table of their states, and what leaves their queue at once."""

from math import inf
from typing import Any

import pytest

from crewel.broker.mailboxes.offers import LEAVES, NOTHING
from crewel.broker.session import TRANSITIONS, Event, Session, State
from crewel.delivery.entry import Entry
from tests.broker.world import World

LIFE = {
    (State.NEW, Event.GRANTED): State.HANDSHAKEN,
    (State.HANDSHAKEN, Event.CONNECT): State.CONNECTED,
    (State.HANDSHAKEN, Event.TAKEN_OVER): State.HANDSHAKEN,
    (State.HANDSHAKEN, Event.DISCONNECT): State.DISCONNECTED,
    (State.HANDSHAKEN, Event.ENDED): State.DISCONNECTED,
    (State.HANDSHAKEN, Event.SILENCE): State.EXPIRED,
    (State.HANDSHAKEN, Event.FAILED): State.EXPIRED,
    (State.CONNECTED, Event.CONNECT): State.CONNECTED,
    (State.CONNECTED, Event.TAKEN_OVER): State.HANDSHAKEN,
    (State.CONNECTED, Event.DISCONNECT): State.DISCONNECTED,
    (State.CONNECTED, Event.ENDED): State.DISCONNECTED,
    (State.CONNECTED, Event.SILENCE): State.EXPIRED,
    (State.CONNECTED, Event.FAILED): State.EXPIRED,
}


@pytest.fixture
def session(world: World) -> Session:
    return Session(world.broker, "secret")


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_each_cell_of_the_table(session: Session, state: State, event: Event) -> None:
    session.state = state
    if (state, event) in LIFE:
        session.move(event)
        assert session.state is LIFE[state, event]
        assert session.is_live is (session.state in (State.HANDSHAKEN, State.CONNECTED))
    else:
        with pytest.raises(KeyError):
            session.move(event)
        assert session.state is state


def test_the_table_has_a_row_for_each_state() -> None:
    assert set(TRANSITIONS) == set(State)


def test_a_session_is_live_from_the_handshake_to_its_end(session: Session) -> None:
    seen = [session.is_live]
    for event in (Event.GRANTED, Event.CONNECT, Event.SILENCE):
        session.move(event)
        seen.append(session.is_live)
    assert seen == [False, True, True, False]


def test_a_session_never_shows_its_id(session: Session) -> None:
    assert "secret" not in repr(session)


def test_attributes_are_its_own(session: Session, world: World) -> None:
    session.attributes["user"] = "joe"
    assert session.attributes == {"user": "joe"}
    assert Session(world.broker, "other").attributes == {}


class TestTake:
    def entries(self, *data: Any) -> list[Entry]:
        return [Entry({"channel": "/a", "data": each}) for each in data]

    @pytest.mark.parametrize(
        ("count", "limit", "taken"),
        [(0, 100, 0), (1, 0, 1), (3, 1, 1), (3, 52, 2), (3, 51, 1), (3, 78, 3), (3, 77, 2)],
    )
    def test_as_many_as_fit_and_at_least_one(self, session: Session, count: int, limit: int, taken: int) -> None:
        session.mailbox._queue = queue = self.entries(*range(count))
        session.mailbox.news, session.mailbox._lazy_at = LEAVES, 5.0
        assert all(len(entry.wire) == 25 for entry in queue)  # and a comma
        assert session.mailbox.take(limit) == queue[:taken]
        assert session.mailbox._queue == queue[taken:]
        is_rest = taken < count
        assert session.mailbox.news == (LEAVES if is_rest or count == 0 else NOTHING)
        assert session.mailbox._lazy_at == (5.0 if is_rest or count == 0 else inf)

    def test_what_is_left_of_lazy_messages_waits_no_longer(self, session: Session) -> None:
        session.mailbox._queue = self.entries(1, 2)
        session.mailbox.take(1)
        assert session.mailbox.news == LEAVES
