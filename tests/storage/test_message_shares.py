"""What each account has in the store, counted from what is there."""

from __future__ import annotations

import pytest

from crewel.delivery.records import SessionName, Submission
from crewel.storage import message_shares, shared_queue_store
from crewel.storage.account_shares import Share, largest
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, Owner, change, started

COST = 100
"""Of an entry beside its texts."""
FACTS_MAX = 1000
BODY = b"x" * 1000
TO_AMY = shared_queue_store.Delivery("client/amy", "", "client/amy")


def submission(sender: str = "", account: str = "", **fields: object) -> Submission:
    return Submission("/a", BODY, sender, account=account)._replace(**fields)  # type: ignore[arg-type]


async def counted(store: Store) -> dict[str, tuple[int, int]]:
    """Messages and bytes by account."""
    found = await message_shares.count(store)
    return {each.account: (each.entries, each.bytes) for each in found.accounts}


async def test_a_message_is_charged_to_its_account_or_else_to_the_subject_of_its_sender(store: Store) -> None:
    owner = await started(store)
    sent = ("", "client/anonymous/-7", ANN, "client/ann/2")
    await owner.append([*map(submission, sent), submission(JOE, "address 192.0.2.7"), submission("", "subject joe")])
    found = await counted(store)
    assert {account: messages for account, (messages, _) in found.items()} == {
        "": 2,
        "subject ann": 2,
        "address 192.0.2.7": 1,
        "subject joe": 1,
    }
    size = len("/a") + len(BODY) + COST
    assert found["subject ann"][1] == 2 * (size + len(ANN))
    assert found["subject joe"][1] == size + len("subject joe")


async def test_histories_and_queues_count_beside_the_log(store: Store) -> None:
    owner = await started(store)
    groups = ("group:/a workers",)
    await owner.append([submission(ANN, history_max=9, groups=groups), submission(ANN, history_max=9)])
    message = shared_queue_store.Addressed("/a", BODY, ANN, account="subject eve")
    await owner.do(shared_queue_store.send(owner.keys, owner.token, message, [TO_AMY], FACTS_MAX))
    found = await counted(store)
    assert {account: messages for account, (messages, _) in found.items()} == {"subject ann": 5, "subject eve": 1}
    assert all(size >= messages * len(BODY) for messages, size in found.values())


@pytest.mark.parametrize(("receiver", "account"), [(JOE, "subject joe"), ("client/anonymous/-7", "")])
async def test_what_an_inbox_has_instead_of_the_log_is_its_receivers(store: Store, receiver: str, account: str) -> None:
    """And what was addressed to it, or leased to it as a member of a group, is not."""
    owner = await started(store)
    await owner.login(receiver)
    ids = (await owner.append([submission(ANN), submission("", "subject eve"), submission(ANN, "subject eve")])).ids
    await owner.commit(ids[-1], change(receiver, opened=ids))
    await owner.spill(*ids, name=receiver)
    message = shared_queue_store.Addressed("/a", BODY, ANN)
    to_receiver = shared_queue_store.Delivery(receiver, receiver)
    await owner.do(shared_queue_store.send(owner.keys, owner.token, message, [to_receiver], FACTS_MAX))
    queue = "group:/a workers"
    await owner.append([submission(ANN, groups=(queue,)), submission("", "subject eve", groups=(queue,))])
    member = shared_queue_store.Member(SessionName(receiver), 10)
    lease = await owner.do(shared_queue_store.lease(owner.keys, owner.token, queue, [member], FACTS_MAX))
    assert len(lease.leased) == 2
    await store.reader.delete(store.keys.log)
    found = await counted(store)
    wanted = {account: 3, "subject ann": 2, "subject eve": 1}
    assert {account: messages for account, (messages, _) in found.items()} == wanted


@pytest.mark.parametrize("most", [1, 3, 1000])
async def test_all_is_counted_once_in_parts_of_any_size(
    store: Store, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(message_shares, "_LEAST", most)
    monkeypatch.setattr(message_shares, "_MOST", most)
    monkeypatch.setattr(message_shares, "_KEYS_AT_ONCE", 2)
    owner = await started(store)
    channels = [f"/c/{number}" for number in range(5)]
    sent = [submission(ANN, channel=channel, history_max=9) for channel in channels for _ in range(7)]
    await owner.append(sent)
    found = await message_shares.count(store)
    assert [(each.account, each.entries) for each in found.accounts] == [("subject ann", 2 * len(sent))]


async def test_what_was_counted_last_is_what_all_know(store: Store) -> None:
    owner: Owner = await started(store)
    for accounts in ([Share("subject a", 2, 10), Share("", 1, 99)], [Share("address b", 1, 2**40)]):
        await owner.do(message_shares.charge(store.keys, accounts))
        known = await largest(store.reader, store.keys.message_shares)
        assert known == sorted(accounts, key=lambda each: -each.bytes)
    assert await message_shares.times_counted(store) == 2


async def test_the_first_server_of_a_store_counts(store: Store) -> None:
    owner = await started(store)
    assert await message_shares.counters(store) == [owner.token]
