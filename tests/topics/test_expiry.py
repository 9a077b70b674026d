"""How long a message lives, and where it is gone when its life is over."""

from itertools import product

import pytest

from crewel.delivery.names import Name
from crewel.delivery.publish_qos import FOR_EVER, Destination, PublishQos
from crewel.topics.expiry import MESSAGE_STATES, MessageState, ends_at, leaves_history_at, message_state

ACCEPTED = 1_000_000_000_000_000


@pytest.mark.parametrize(("is_over", "force_destroy", "is_referenced"), list(product((False, True), repeat=3)))
def test_each_cell_of_the_states_of_a_message(is_over: bool, force_destroy: bool, is_referenced: bool) -> None:
    expected = MessageState.ALIVE
    if is_over:
        expected = MessageState.DESTROYED if force_destroy else MessageState.EXPIRED
    if not is_referenced:
        expected = MessageState.DESTROYED
    assert MESSAGE_STATES[is_over, force_destroy, is_referenced] is expected
    qos = PublishQos(life_time_ms=10, force_destroy=force_destroy)
    now = ACCEPTED + (10_000 if is_over else 9_999)
    assert message_state(qos, ACCEPTED, now, is_referenced=is_referenced) is expected


def test_a_message_for_ever_is_alive_as_long_as_something_refers_to_it() -> None:
    qos = PublishQos(force_destroy=True)
    assert message_state(qos, ACCEPTED, ACCEPTED * 2, is_referenced=True) is MessageState.ALIVE
    assert message_state(qos, ACCEPTED, ACCEPTED, is_referenced=False) is MessageState.DESTROYED


@pytest.mark.parametrize(
    ("life_time_ms", "ends"), [(FOR_EVER, 0), (0, ACCEPTED), (1, ACCEPTED + 1000), (60_000, ACCEPTED + 60_000_000)]
)
def test_life_begins_when_the_server_accepts_it(life_time_ms: int, ends: int) -> None:
    assert ends_at(PublishQos(life_time_ms=life_time_ms), ACCEPTED) == ends


def test_what_is_volatile_does_not_leave_a_history_for_it_never_was_in_one() -> None:
    joe = Destination(Name("joe", 0))
    assert leaves_history_at(PublishQos(life_time_ms=5), ACCEPTED) == ACCEPTED + 5000
    assert leaves_history_at(PublishQos(life_time_ms=0), ACCEPTED) == 0
    assert leaves_history_at(PublishQos(), ACCEPTED) == 0
    assert leaves_history_at(PublishQos(destinations=(joe,)), ACCEPTED) == 0
    assert leaves_history_at(PublishQos(destinations=(joe,), life_time_ms=5), ACCEPTED) == ACCEPTED + 5000
