"""The texts of what waits: written here, by the scripts, and by older versions."""

import pytest

from crewel.delivery.records import Change, LogId, PendingMessage
from crewel.storage import log
from crewel.storage.store import Store
from tests.storage.owner import JOE, started

TEXTS = [
    (PendingMessage(), "0:0"),
    (PendingMessage(2, 100), "2:100"),
    (PendingMessage(2, 100, "/a b/c"), "2:100:/a b/c"),
    (PendingMessage(0, 1, "/a", 9), "0:1:/a:9"),
    (PendingMessage(0, 1, "/a", 0, 17), "0:1:/a:0:17"),
    (PendingMessage(0, 1, "/a", 5, 17), "0:1:/a:5:17"),
    (PendingMessage(0, 1, "/a", 5, 0, "client/joe"), "0:1:/a:5:0:client/joe"),
    (PendingMessage(1, 1, "/a", 3, 17, "group:/a/* x"), "1:1:/a:3:17:group:/a/* x"),
    (PendingMessage(1, 1, "", 3, 0), "1:1::3"),
]


@pytest.mark.parametrize(("known", "text"), TEXTS)
def test_defaults_at_the_end_are_left_out(known: PendingMessage, text: str) -> None:
    assert log.text_of(known) == text
    assert log.waiting_of(text.encode()) == known


async def test_adopted_session_has_its_open_messages(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    opened = {LogId(number): known for number, (known, _) in enumerate(TEXTS, 1)}
    await owner.commit(100, Change(JOE, opened, (), (), (), caught_up=False), low=0)
    heir = await started(store, "b")
    assert (await heir.adopt_all())[JOE].pending == opened


async def test_a_spilled_message_stays_as_it_is_known(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    ids = await owner.publish("/a", "/b")
    opened = {ids[0]: PendingMessage(1, 7, "/a", 9, 17), ids[1]: PendingMessage(0, 7)}
    await owner.commit(ids[1], Change(JOE, opened, (), (), (), caught_up=False), low=0)
    await owner.spill(*ids)
    heir = await started(store, "b")
    assert (await heir.adopt_all())[JOE].inbox == opened


async def test_texts_of_an_older_version_are_counted_and_read(store: Store) -> None:
    owner = await started(store)
    await owner.login()
    await store.reader.hset(store.keys.session(JOE), mapping={"o:5": "1:30", "o:6": "0:40:/a:9"})
    heir = await started(store, "b")
    assert (await heir.adopt_all())[JOE].pending == {5: PendingMessage(1, 30), 6: PendingMessage(0, 40, "/a", 9)}
