"""Messages that are handed to their sessions after a commit: what ends then is settled by the next commit."""

from __future__ import annotations

import pytest

from crewel.bayeux.channel import parse
from crewel.broker.subscriptions.options import MatchResult
from crewel.delivery.entry import Entry
from crewel.delivery.records import LogId, PendingMessage
from tests.broker.stored_world import Receiver, StoredWorld


@pytest.mark.parametrize("end", ["excluded", MatchResult.NO, MatchResult.ONEWAY], ids=str)
def test_what_ends_after_a_commit_is_settled_by_the_next_one(
    stored: StoredWorld, monkeypatch: pytest.MonkeyPatch, end: str | MatchResult
) -> None:
    joe = Receiver(stored).started("/a", name="joe/1")
    durable, node, deliverer = joe.session.durable, stored.access.node, stored.durability.appender._deliverer
    assert durable is not None
    place, wire = LogId(int(node.cursor) + 1), b'{"channel":"/a","data":1}'
    for _ in node.take_in_steps(place, ["/a"], PendingMessage(0, len(wire), "/a"), [durable], 256):
        pass
    stored.commit()
    assert str(int(place)) in "".join(stored.record(joe.session)), "it is stored as pending"
    entry = Entry.logged("/a", place, wire)
    if isinstance(end, MatchResult):
        monkeypatch.setattr(deliverer._options, "match", lambda *_: end)
        deliverer._choose(durable, (parse("/a"), entry, None, "", "", b""))
    else:
        deliverer.deliver(durable, entry, durable.name)
    assert str(int(place)) not in "".join(stored.record(joe.session))
