"""The session's table, cell by cell."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crewel.client.states import ENDING, TRANSITIONS, USABLE, Event, ImpossibleTransitionError, Life, State, next_state

LIVE = (State.CONNECTING, State.CONNECTED, State.RECONNECTING)

EXPECTED = {
    (State.NEW, Event.OPENED): State.HANDSHAKING,
    (State.NEW, Event.CLOSING): State.CLOSED,
    (State.HANDSHAKING, Event.HANDSHAKEN): State.CONNECTING,
    (State.HANDSHAKING, Event.ENDED): State.CLOSED,
    (State.HANDSHAKING, Event.CLOSING): State.CLOSED,
    **{(state, Event.ANSWERED): State.CONNECTED for state in LIVE},
    **{(state, Event.CONNECTION_LOST): State.RECONNECTING for state in LIVE},
    **{(state, Event.SESSION_LOST): State.HANDSHAKING for state in LIVE},
    (State.CONNECTED, Event.RENEWING): State.HANDSHAKING,
    **{(state, Event.ENDED): State.CLOSED for state in LIVE},
    **{(state, Event.CLOSING): State.DISCONNECTING for state in LIVE},
    (State.DISCONNECTING, Event.DONE): State.CLOSED,
}
CELLS = [(state, event) for state in State for event in Event]


@pytest.mark.parametrize(("state", "event"), [cell for cell in CELLS if cell in EXPECTED])
def test_possible_cells_lead_where_the_table_says(state: State, event: Event) -> None:
    assert next_state(state, event) is EXPECTED[state, event]


@pytest.mark.parametrize(("state", "event"), [cell for cell in CELLS if cell not in EXPECTED])
def test_impossible_cells_are_errors(state: State, event: Event) -> None:
    with pytest.raises(ImpossibleTransitionError, match=state.value):
        next_state(state, event)


def test_every_state_has_a_row() -> None:
    assert set(TRANSITIONS) == set(State)


def test_closed_is_the_only_end() -> None:
    assert [state for state, row in TRANSITIONS.items() if not row] == [State.CLOSED]
    assert not USABLE & ENDING


@given(st.lists(st.sampled_from(Event), max_size=40))
def test_whatever_happens_a_session_can_still_be_closed(events: list[Event]) -> None:
    state = State.NEW
    for event in events:
        state = TRANSITIONS[state].get(event, state)
    if state not in ENDING:
        state = next_state(state, Event.CLOSING)
    assert state in ENDING


async def test_a_call_does_not_overtake_those_that_wait_for_the_session() -> None:
    life, begun = Life(lambda: None), Begun()
    life.begin()
    waiting = [asyncio.create_task(begun.note(life, number)) for number in range(3)]
    await asyncio.sleep(0)
    # Both are in the same turn of the loop: the session, and a call that finds it.
    asyncio.get_running_loop().call_soon(life.move, Event.HANDSHAKEN)
    waiting += [asyncio.create_task(begun.note(life, number)) for number in range(3, 6)]
    await asyncio.gather(*waiting)
    assert begun.numbers == list(range(6))


async def test_calls_keep_their_order_when_the_session_is_lost_while_they_wait() -> None:
    life, begun = Life(lambda: None), Begun()
    life.begin()
    life.move(Event.HANDSHAKEN)
    life.move(Event.CONNECTION_LOST)
    waiting = [asyncio.create_task(begun.note(life, number)) for number in range(3)]
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    loop.call_soon(life.move, Event.SESSION_LOST)  # a change, and no session yet
    waiting += [asyncio.create_task(begun.note(life, number)) for number in range(3, 6)]
    await asyncio.sleep(0)
    # A session that is lost before those that waited for it could go on.
    for event in (Event.HANDSHAKEN, Event.CONNECTION_LOST):
        loop.call_soon(life.move, event)
    await asyncio.sleep(0)
    waiting += [asyncio.create_task(begun.note(life, number)) for number in range(6, 9)]
    await asyncio.sleep(0)
    loop.call_soon(life.move, Event.ANSWERED)
    await asyncio.gather(*waiting)
    assert begun.numbers == list(range(9))


class Begun:
    """The calls that continue, in their order."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def note(self, life: Life, number: int) -> None:
        """Wait for the session, as each request does."""
        await life.ready(10)
        self.numbers.append(number)
