"""The sessions that may have a message pending are found without a look at all others."""

from crewel.delivery.durable_session import DurableSession
from crewel.delivery.log_consumer import LogConsumer
from crewel.delivery.records import LogId, PendingMessage
from tests.delivery.test_fan_out_buffer import acknowledge, served, subscriber_set, take
from tests.delivery.test_log_consumer import A, adopted, session


def commit(node: LogConsumer) -> None:
    """Commit until there is nothing more to say."""
    while (each := node.commit()) is not None:
        node.committed(each)


def holders(node: LogConsumer, log_id: int) -> set[DurableSession]:
    return set(node.holders(LogId(log_id)))


def test_a_session_with_nothing_pending_is_no_holder() -> None:
    joe, ann = session(a=3), session("client/ann/1", b=3)
    node = served(joe, ann)
    node.take(LogId(11), A, PendingMessage(), [joe])
    commit(node)
    assert holders(node, 11) == {joe}
    joe.end_message(LogId(11))
    node.mark_dirty(joe)
    commit(node)
    assert holders(node, 11) == set()


def test_a_session_that_needs_only_newer_messages_is_no_holder() -> None:
    joe, ann = session(a=3), session("client/ann/1", a=11)
    node = served(joe, ann)
    for each in (11, 12):
        node.take(LogId(each), A, PendingMessage(), [joe, ann])
    commit(node)
    assert holders(node, 11) == {joe}
    assert holders(node, 12) == {joe, ann}


def test_a_session_that_has_changed_since_the_last_commit_may_be_a_holder() -> None:
    joe, ann = session(a=3), session("client/ann/1", a=3)
    node = served(joe, ann)
    node.take(LogId(11), A, PendingMessage(), [joe])
    assert holders(node, 11) == {joe}


def test_who_has_not_acknowledged_a_message_for_many_is_a_holder() -> None:
    joe, ann, eve = session(a=3), session("client/ann/1", a=3), session("client/eve/1", b=3)
    node = served(joe, ann, eve)
    take(node, subscriber_set(node, joe, ann), 11, 12)
    acknowledge(node, joe, 11)
    assert holders(node, 11) == {ann}
    assert list(joe.pending) == [12]  # it has applied both now
    assert holders(node, 12) == {joe, ann}


def test_what_lies_outside_the_log_has_a_holder_until_it_ends() -> None:
    joe, ann = session(a=3), session("client/ann/1", a=3)
    node = served(joe, ann)
    joe.arrived(LogId(5), PendingMessage())
    node.mark_dirty(joe)
    ann.notice(LogId(6), "/a")
    node.mark_dirty(ann)
    commit(node)
    assert holders(node, 5) == {joe, ann}
    joe.end_message(LogId(5))
    node.mark_dirty(joe)
    commit(node)
    assert holders(node, 5) == {ann}
    node.drop(ann)
    assert holders(node, 5) == set()


def test_while_a_commit_is_divided_those_in_later_parts_are_holders() -> None:
    durables = [session(f"client/joe/{number}", a=3) for number in range(4)]
    node = served(*durables)
    node.max_changes = 1
    node.take(LogId(11), A, PendingMessage(), durables)
    first = node.commit()
    assert first is not None
    assert node.is_divided
    assert holders(node, 11) == set(durables)


def test_an_adopted_session_is_a_holder_before_the_first_commit() -> None:
    joe = adopted(10, [7, 9], a=3)
    node = LogConsumer(LogId(10))
    node.add(joe)
    assert holders(node, 9) == {joe}
    commit(node)
    assert holders(node, 9) == {joe}
    assert holders(node, 6) == set()
