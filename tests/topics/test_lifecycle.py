"""The life of a topic: the seed's table of internal conditions, cell by cell, and every change from state to state."""

from itertools import product

import pytest

from crewel.topics import STATES, TRANSITIONS, Event, Facts, State, joined, state_of, word_of

T, F = True, False

# Seed 002, "Internal conditions of a topic": visible, history, callback queue, exact subscription. As it stands there.
SEED = [
    ("alive", T, T, T, T),
    ("alive", T, T, T, F),
    ("alive", T, T, F, T),
    ("alive", T, T, F, F),
    ("alive", T, F, T, T),
    ("alive", T, F, T, F),
    ("alive", T, F, F, T),
    ("unreferenced", T, F, F, F),
    ("invalid", F, T, T, T),
    ("invalid", F, T, T, F),
    ("invalid", F, T, F, T),
    ("invalid", F, T, F, F),
    ("invalid", F, F, T, T),
    ("softErased", F, F, T, F),
    ("unconfigured", F, F, F, T),
    ("start/dead", F, F, F, F),
]
NAMES = {
    "alive": State.ALIVE,
    "unreferenced": State.UNREFERENCED,
    "softErased": State.SOFTERASED,
    "unconfigured": State.UNCONFIGURED,
    "start/dead": State.DEAD,
    "invalid": None,
}


@pytest.mark.parametrize(("name", "visible", "history", "queued", "subscribed"), SEED)
def test_each_row_of_the_seed_is_a_row_of_the_table(
    name: str, visible: bool, history: bool, queued: bool, subscribed: bool
) -> None:
    facts = Facts(visible, history, queued, subscribed)
    state = NAMES[name]
    if state is None:
        with pytest.raises(ValueError, match="no topic can be like this"):
            state_of(facts)
    else:
        assert state_of(facts) is state


def test_the_table_has_the_rows_of_the_seed_in_its_order_and_no_other() -> None:
    assert list(STATES) == [row[1:] for row in SEED]
    assert len(STATES) == 16


# xmlBlaster's state chart, by the numbers of its arrows.
ARROWS = [
    ("1", State.DEAD, Event.SUBSCRIBED, State.UNCONFIGURED),
    ("2", State.DEAD, Event.PUBLISHED, State.ALIVE),
    ("2", State.DEAD, Event.PUBLISHED, State.UNREFERENCED),
    ("2", State.DEAD, Event.RECOVERED, State.ALIVE),
    ("2", State.DEAD, Event.RECOVERED, State.UNREFERENCED),
    ("2", State.DEAD, Event.CONFIGURED, State.UNREFERENCED),
    ("4", State.UNCONFIGURED, Event.CONFIGURED, State.UNREFERENCED),
    ("4'", State.UNCONFIGURED, Event.PUBLISHED, State.ALIVE),
    ("5", State.UNREFERENCED, Event.PUBLISHED, State.ALIVE),
    ("5", State.UNREFERENCED, Event.CONFIGURED, State.ALIVE),
    ("5", State.UNREFERENCED, Event.SUBSCRIBED, State.ALIVE),
    ("6", State.ALIVE, Event.RELEASED, State.UNREFERENCED),
    ("6", State.ALIVE, Event.UNSUBSCRIBED, State.UNREFERENCED),
    ("7", State.ALIVE, Event.ERASED, State.SOFTERASED),
    ("8", State.SOFTERASED, Event.PUBLISHED, State.ALIVE),
    ("8", State.SOFTERASED, Event.CONFIGURED, State.ALIVE),
    ("8", State.SOFTERASED, Event.SUBSCRIBED, State.ALIVE),
    ("9", State.UNCONFIGURED, Event.UNSUBSCRIBED, State.DEAD),
    ("9", State.UNCONFIGURED, Event.ERASED, State.DEAD),
    ("9'", State.UNCONFIGURED, Event.ERASED, State.SOFTERASED),
    ("10", State.ALIVE, Event.FORCED, State.DEAD),
    ("10", State.ALIVE, Event.ERASED, State.DEAD),
    ("11", State.UNREFERENCED, Event.DELAY_EXPIRED, State.DEAD),
    ("11", State.UNREFERENCED, Event.ERASED, State.DEAD),
    ("11", State.UNREFERENCED, Event.FORCED, State.DEAD),
    ("12", State.SOFTERASED, Event.RELEASED, State.DEAD),
]


@pytest.mark.parametrize(("number", "before", "event", "then"), ARROWS)
def test_each_arrow_of_the_state_chart_is_in_the_table(number: str, before: State, event: Event, then: State) -> None:
    assert then in TRANSITIONS[before][event]


# What each event leaves behind, whatever was before: which facts it can be followed by.
def facts_after(event: Event, facts: Facts) -> bool:
    """Whether these facts may be the case just after this event."""
    visible, history, queued, subscribed = facts
    match event:
        case Event.SUBSCRIBED:
            return subscribed
        case Event.PUBLISHED | Event.CONFIGURED | Event.RECOVERED:
            return visible
        case Event.ERASED:
            return not (visible or history or subscribed)
        case Event.FORCED | Event.DELAY_EXPIRED:
            return not (visible or history or queued or subscribed)
        case Event.UNSUBSCRIBED | Event.RELEASED:
            return True


POSSIBLE = [Facts(*row) for row, state in STATES.items() if state is not None]


@pytest.mark.parametrize(("before", "event"), list(product(State, Event)))
def test_what_a_cell_allows_is_what_the_event_can_leave(before: State, event: Event) -> None:
    reachable = {state_of(facts) for facts in POSSIBLE if facts_after(event, facts)}
    assert set(TRANSITIONS[before].get(event, ())) <= reachable


@pytest.mark.parametrize(("one", "other"), list(product(POSSIBLE, POSSIBLE)))
def test_a_topic_at_two_nodes_is_as_if_one_knew_all(one: Facts, other: Facts) -> None:
    both = Facts(*map(max, one, other))
    # A subscription to the name of a topic that was erased gently brings it back, as on one node.
    expected = STATES[both] or State.ALIVE
    assert joined([state_of(one), state_of(other)]) is expected
    assert joined([state_of(one)]) is state_of(one)


def test_a_state_reads_as_on_the_wire() -> None:
    assert [state.value for state in State] == ["UNCONFIGURED", "ALIVE", "UNREFERENCED", "SOFTERASED", "DEAD"]


def test_a_topic_that_somebody_hears_is_in_use_whether_or_not_that_keeps_it() -> None:
    assert word_of(State.UNREFERENCED, is_heard=True) == word_of(State.ALIVE, is_heard=False) == "in use"
    assert word_of(State.UNREFERENCED, is_heard=False) == "no subscribers"
