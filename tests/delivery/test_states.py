"""The states of a dispatcher, cell by cell, the empty ones too; and what is stored of a holdback."""

import pytest

from crewel.delivery.dispatcher_states import TRANSITIONS, DispatcherEvent, DispatcherState, Holdback

ALIVE, POLLING, DEAD = DispatcherState
FAILED, RESUMED, GONE, CONNECTED, DIED, REVIVED = DispatcherEvent

CELLS = {
    (ALIVE, FAILED): POLLING,
    (ALIVE, RESUMED): ALIVE,
    (ALIVE, GONE): POLLING,
    (ALIVE, CONNECTED): ALIVE,
    (ALIVE, DIED): DEAD,
    (ALIVE, REVIVED): ALIVE,
    (POLLING, FAILED): POLLING,
    (POLLING, RESUMED): ALIVE,
    (POLLING, GONE): POLLING,
    (POLLING, CONNECTED): ALIVE,
    (POLLING, DIED): DEAD,
    (POLLING, REVIVED): ALIVE,
    (DEAD, FAILED): None,
    (DEAD, RESUMED): None,
    (DEAD, GONE): None,
    (DEAD, CONNECTED): None,
    (DEAD, DIED): None,
    (DEAD, REVIVED): ALIVE,
}


@pytest.mark.parametrize("event", DispatcherEvent, ids=lambda event: event.name)
@pytest.mark.parametrize("state", DispatcherState)
def test_an_event_leads_where_the_table_says_or_nowhere(state: DispatcherState, event: DispatcherEvent) -> None:
    assert TRANSITIONS[state].get(event) is CELLS[state, event]


@pytest.mark.parametrize("state", DispatcherState)
def test_each_state_says_what_it_means(state: DispatcherState) -> None:
    assert state.meaning.endswith(".")
    assert state == state.name


class TestHoldback:
    def test_holdback_is_stored_as_operators_are_shown_it(self) -> None:
        assert Holdback("client/joe/1", 1_700_000_000_000, "user.update.holdback", "17", "lunch").as_json() == {
            "active": False,
            "who": "client/joe/1",
            "since": 1_700_000_000_000,
            "code": "user.update.holdback",
            "id": "17",
            "reason": "lunch",
        }

    def test_the_cause_is_code_and_reason_or_who_it_was(self) -> None:
        assert Holdback("client/joe/1", 5, "user.update.holdback", "17", "lunch").cause == "user.update.holdback: lunch"
        assert Holdback("admin", 5, reason="lunch").cause == "lunch"
        assert Holdback("admin", 5).cause == "held by admin"

    @pytest.mark.parametrize("held", [Holdback("admin", 5), Holdback("client/joe/1", 5, "user.x", "7-0-ab", "why")])
    def test_what_is_stored_is_read_back(self, held: Holdback) -> None:
        assert Holdback.from_json(held.as_json()) == held
