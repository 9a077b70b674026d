"""What an heir does with the sessions of a dead node, in each order in which the steps may come; with the real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from crewel.broker.dead_letters.redrive import Limits, Report
from crewel.broker.durability import inheritance
from crewel.broker.durability.inheritance import IN_ONE_TURN, Gap
from crewel.delivery.records import Commit, Logged, LogId, SessionName
from crewel.errors import StoreError, StoreUnavailable
from crewel.nodes.node_registry import NodeRegistry
from crewel.storage import log
from crewel.storage.keys import Keys
from crewel.storage.log import Committed
from crewel.storage.script_step import Step
from tests.broker.stored_world import Receiver, StoredWorld, failed, store
from tests.broker.world import Request

NODE = "cluster.enabled=true"
MANY = 40
STORED = {"publish": {"persistent": True}}


def pair(make_stored: Callable[..., StoredWorld]) -> tuple[StoredWorld, StoredWorld]:
    """Two nodes on one store, the first of which will die."""
    dead = make_stored(NODE)
    return dead, make_stored(NODE, prefix=dead.prefix)


def data(world: StoredWorld, receiver: Receiver) -> list[object]:
    """What this client gets when it comes to another node."""
    client = Receiver(world, browser=receiver.browser)
    client.id, client.ack = receiver.id, receiver.ack
    world.settle()
    return [each["data"] for each in client.take()]


def test_a_slice_looks_at_its_own_entries_of_the_log_only() -> None:
    """The log may be long, and there may be many slices."""
    gap = Gap(LogId(10), LogId(10))
    gap.add(Logged(LogId(10 + number), f"/room/{number}", b"{}") for number in range(1, 100))
    gap.add([Logged(LogId(200), "/a", b"{}", addressed=b'{"client/joe/1":"0:2:/a"}')])
    gap.add(
        [Logged(LogId(201), "/b", b"{}", addressed=b"{}", changed_by="token"), Logged(LogId(202), "/room/7", b"{}")]
    )
    assert [each.id for each in gap.entries([], ["/room/7", "/none"])] == [17, 201, 202]
    assert [each.id for each in gap.entries([SessionName("client/joe/1")], ["/room/98"])] == [108, 200, 201]
    assert len(gap.entries([], ["/room/7", "/**"])) == 101
    gap.begin(LogId(5))
    assert (gap.entries([SessionName("client/joe/1")], ["/**"]), gap.until) == ([], 5)


def test_sessions_that_come_while_a_message_is_handed_over_get_it_too(make_stored: Callable[..., StoredWorld]) -> None:
    """The message is taken for those who were there when it came, a few in each turn, and the cursor moves with the last."""
    dead, heir = pair(make_stored)
    receiver = Receiver(dead).started("/news")
    for _ in range(MANY):
        Receiver(heir).started("/news")
    publisher = Receiver(heir).started()
    dead.commit()
    heir.commit()
    token = dead.access.token
    dead.crash()
    fan_outs = heir.broker.mailboxes.outbound.fan_outs
    fan_outs.looked_up = fan_outs.at_once = 1
    fan_outs.slice_s = 0.0
    persistent = {"publish": {"persistent": True, "lifeTime": 60000, "forceDestroy": True}}  # handed over one by one
    publisher.send(publisher.message("/news", data="before", ext=persistent))

    async def both() -> int:
        """Both steps go to the store together, so that its answers come together too."""
        adopting = heir.loop.create_task(heir.durability.inheritance.take_over_dead([token]))
        meanwhile = publisher.message("/news", data="meanwhile", ext=persistent)
        heir.loop.call_soon(heir.broker.inbound.receive, Request(publisher.browser), [meanwhile])
        return await adopting

    assert heir.wait(both()) == 1
    heir.settle()
    assert data(heir, receiver) == ["before", "meanwhile"]


def test_a_dead_letter_that_is_redriven_while_its_session_comes_reaches_it(
    make_stored: Callable[..., StoredWorld],
) -> None:
    """In the store the session is the heir's by then. The heir does not know it yet, and its record lacks the message."""
    dead, heir = pair(make_stored)
    receivers = [Receiver(dead).started("/a", name=f"joe{number}/1", settle="message") for number in range(MANY)]
    store(dead, "/a", "again")
    for each in receivers:
        (message,) = each.take()
        each.tell(failed(message, "user.no"))
    letters = dead.letters()
    assert len(letters) == MANY
    token = dead.access.token
    dead.crash()

    async def both() -> int:
        """All steps go to the store together, so that it moves the dead letters when it has given the sessions away."""
        adopting = heir.loop.create_task(heir.durability.inheritance.take_over_dead([token]))
        await asyncio.sleep(0)
        report = Report()
        await heir.broker.dead_letters.redrive._send(letters, "", report, Limits(), to_channel=False)
        assert report.done == MANY
        return await adopting

    assert heir.wait(both()) == MANY
    heir.settle()
    assert [data(heir, each) for each in receivers] == [["again"]] * MANY


def test_others_have_a_turn_between_the_portions_of_a_slice(make_stored: Callable[..., StoredWorld]) -> None:
    """A message that is published there is for those who have come, and for those who come after it."""
    dead, heir = pair(make_stored)
    receivers = [Receiver(dead).started("/news") for _ in range(2 * IN_ONE_TURN + 1)]
    publisher = Receiver(heir).started()
    dead.commit()
    token = dead.access.token
    dead.crash()
    adoption = heir.durability.inheritance
    between = [publisher.message("/news", data="between", ext=STORED)]

    def publish(_names: Iterable[SessionName]) -> None:
        if between:
            heir.broker.inbound.receive(Request(publisher.browser), [between.pop()])

    heir.broker.runtime.cluster.sessions_came = publish  # type: ignore[method-assign]

    async def adopt() -> list[int]:
        """How many sessions were there in each turn."""
        adopting = heir.loop.create_task(adoption.take_over_dead([token]))
        counts = []
        while not adopting.done():
            counts.append(len(heir.broker.sessions.by_id))
            await asyncio.sleep(0)
        return [*counts, len(heir.broker.sessions.by_id)]

    counts = heir.wait(adopt())
    assert counts[-1] - counts[0] == len(receivers)
    assert max(after - before for before, after in pairwise(counts)) == IN_ONE_TURN
    heir.settle()
    assert [data(heir, each) for each in receivers] == [["between"]] * len(receivers)


def test_the_sessions_of_each_slice_are_committed_at_once(
    make_stored: Callable[..., StoredWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit of all that have come until the next regular one would keep the store from publishes."""
    dead, heir = pair(make_stored)
    monkeypatch.setattr(inheritance, "_AT_ONCE", 10)
    for _ in range(MANY):
        Receiver(dead).started("/news")
    publisher = Receiver(heir).started()
    dead.commit()
    token = dead.access.token
    dead.crash()
    publisher.send(publisher.message("/news", data="missed", ext=STORED))
    heir.settle()
    sizes, steps_of = list[int](), log.commit

    def commit(keys: Keys, token: str, made: Commit, *bounds: int) -> list[Step[Committed]]:
        sizes.append(len(made.changes))
        return steps_of(keys, token, made, *bounds)

    monkeypatch.setattr(log, "commit", commit)
    assert heir.wait(heir.durability.inheritance.take_over_dead([token])) == MANY
    assert sum(sizes) >= MANY
    assert max(sizes) <= 2 * 10


def test_what_a_dead_node_has_appended_last_reaches_the_clients_of_the_only_one_left(
    make_stored: Callable[..., StoredWorld],
) -> None:
    """Nothing else would be read of the log before this node appends something itself."""
    dead, heir = pair(make_stored)
    receiver = Receiver(heir).started("/news")
    publisher = Receiver(dead).started()
    publisher.send(publisher.message("/news", data="last", ext=STORED))
    token = dead.access.token
    dead.crash()
    heir.wait(heir.store.reader.delete(heir.store.keys.lease(token)))
    registry = NodeRegistry(heir.access, heir.durability, heir.broker.metrics, lease_s=3)
    heir.wait(registry.refresh())
    heir.settle()
    assert [each["data"] for each in receiver.take()] == ["last"]


def test_sessions_whose_messages_cannot_be_read_when_they_come_are_read_again(
    make_stored: Callable[..., StoredWorld],
) -> None:
    """The store has given them to the heir: nothing but a new start would ever bring them to their clients."""
    dead, heir = pair(make_stored)
    receiver = Receiver(dead).started("/news")
    dead.commit()
    token = dead.access.token
    publisher = Receiver(heir).started()
    publisher.send(publisher.message("/news", data="missed", ext=STORED))
    dead.crash()
    log = heir.store.keys.log
    aside = log + ":aside"

    async def adopt() -> None:
        """The log is of another kind for the time of the adoption, so that it cannot be read."""
        await heir.store.reader.rename(log, aside)
        await heir.store.reader.set(log, "nothing that can be read")
        try:
            with pytest.raises(StoreError):
                await heir.durability.inheritance.take_over_dead([token])
        finally:
            await heir.store.reader.rename(aside, log)

    heir.wait(adopt())
    heir.settle()
    while heir.access.phase.is_reloading:
        heir.wait(heir.store.reader.ping())
    heir.settle()
    assert data(heir, receiver) == ["missed"]


@pytest.mark.parametrize("waits", [False, True], ids=["ends first", "waits for a commit first"])
def test_a_node_that_ends_without_a_commit_leaves_what_keeps_the_log_to_the_next_heir(
    make_stored: Callable[..., StoredWorld], monkeypatch: pytest.MonkeyPatch, waits: bool
) -> None:
    """Its own record does not keep what the sessions need of the log: they are in no commit of it."""
    dead, heir = pair(make_stored)
    next_heir = make_stored(NODE, prefix=dead.prefix)
    receiver = Receiver(dead).started("/news")
    publisher = Receiver(heir).started()
    dead.commit()
    token = dead.access.token
    dead.crash()
    publisher.send(publisher.message("/news", data="missed", ext=STORED))
    heir.commit()
    next_heir.access.writing.probe()
    next_heir.commit()

    def refuse(*_: object) -> list[Step[Committed]]:
        raise StoreUnavailable("the store does not answer")

    async def adopt_and_end() -> None:
        durability, came = heir.durability, asyncio.Event()
        heir.broker.runtime.cluster.sessions_came = lambda _: came.set()  # type: ignore[method-assign]
        adopting = heir.loop.create_task(durability.inheritance.take_over_dead([token]))
        await came.wait()
        while waits and not durability._awaiting_commit:
            await asyncio.sleep(0)
        await asyncio.gather(durability.close(), adopting)

    with monkeypatch.context() as patched:
        patched.setattr(log, "commit", refuse)
        heir.wait(adopt_and_end())
    token = heir.access.token
    heir.crash()
    next_heir.wait(next_heir.durability.trimmer._trim())
    assert next_heir.wait(next_heir.durability.inheritance.take_over_dead([token])) == 2
    next_heir.settle()
    assert data(next_heir, receiver) == ["missed"]
