"""commit.lua and open.lua: a server's next durable state, applied once."""

import pytest

from crewel.delivery.records import (
    Change,
    Disposition,
    EndReason,
    LogId,
    PendingDeadLetter,
    PendingMessage,
    SessionName,
    Transient,
)
from crewel.errors import Behind, Fenced, StoreUnavailable
from crewel.storage import node_leases
from crewel.storage.store import Store
from tests.storage.owner import ANN, JOE, LETTERS_MAX, PROCESS, Owner, change, owner_of, started


async def open_ids(owner: Owner, name: str = JOE) -> set[int]:
    return {int(field[2:]) for field in await owner.record(name) if field.startswith("o:")}


async def test_commit_moves_the_cursor_of_the_server(store: Store) -> None:
    owner = await owner_of(store)
    assert await owner.commit(20, low=10) == []
    node = await owner.node()
    assert (node["cursor"], node["low"], node["seq"]) == ("20", "10", "1")
    await owner.commit(30)
    node = await owner.node()
    assert (node["cursor"], node["low"], node["seq"]) == ("30", "30", "2")


async def test_commit_changes_the_open_messages(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    first = Change(JOE, {LogId(5): PendingMessage(0, 100), LogId(7): PendingMessage(2, 0)}, (), (), (), False)
    await owner.commit(10, first, change(ANN, opened=[6]))
    record = await owner.record()
    assert (record["o:5"], record["o:7"]) == ("0:100", "2:0")
    assert await open_ids(owner, ANN) == {6}
    await owner.commit(20, change(opened=[12], settled=[5, 7]))
    assert await open_ids(owner) == {12}
    assert await open_ids(owner, ANN) == {6}


async def test_commit_reserves_batch_numbers(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.commit(1, change(batch=3000))
    assert (await owner.record())["batch"] == "3000"
    await owner.commit(2, change(opened=[2]))
    assert (await owner.record())["batch"] == "3000"


async def test_commit_keeps_the_batch_numbers_that_a_login_reserved(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.login()
    await owner.commit(1, change(batch=1500))
    assert (await owner.record())["batch"] == "2000"


async def test_a_session_in_step_has_no_cursor_of_its_own_any_more(store: Store) -> None:
    await (await owner_of(store, JOE, ANN)).commit(5)
    owner = await started(store, "b")  # further behind: nothing was published
    await owner.adopt_all()
    await owner.commit(6, change(JOE, opened=[6], caught_up=True), change(ANN, opened=[6]))
    assert "at" not in await owner.record(JOE)
    assert (await owner.record(ANN))["at"] == "5"


async def test_intervals_are_forgotten_when_the_cursor_has_passed_them(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.subscribe("/a b", "/c")
    (newest,) = await owner.publish("/a b")
    await owner.unsubscribe("/a b", "/c")
    await owner.commit(newest, change(forgotten=[("/a b", 0)]))
    record = await owner.record()
    assert "c:/a b 0" not in record
    assert record["c:/c 0"] == str(newest)


async def test_a_repeated_commit_changes_nothing(store: Store) -> None:
    owner = await owner_of(store, JOE)
    owner.number = 1
    letter = PendingDeadLetter(JOE, LogId(5), "user.x", "why")
    ended = [Disposition(JOE, EndReason.DEAD, (LogId(5),))]
    commit = owner.next_commit(10, change(opened=[9], settled=[5]), ended=ended, letters=[letter])
    assert await owner.apply(commit) == []
    before = await owner.record(), await owner.node(), await owner.facts("ended"), await owner.letters()
    assert await owner.apply(commit) == []
    assert (await owner.record(), await owner.node(), await owner.facts("ended"), await owner.letters()) == before
    assert len(before[3]) == 1


@pytest.mark.parametrize("number", [1, 4, 9])
async def test_a_store_that_has_lost_a_commit_is_noticed(store: Store, number: int) -> None:
    owner = await owner_of(store, JOE)
    await owner.commit(10)
    await owner.commit(20)
    before = await owner.node()
    owner.number = number
    with pytest.raises(Behind):
        await owner.apply(owner.next_commit(30, change(opened=[25])))
    assert await owner.node() == before
    assert await open_ids(owner) == set()


async def test_the_last_commit_that_was_applied_is_known(store: Store) -> None:
    owner = await owner_of(store, JOE)
    assert await node_leases.last_commit(store, owner.token) == 0
    await owner.commit(10)
    await owner.commit(20)
    assert await node_leases.last_commit(store, owner.token) == 2
    assert await node_leases.last_commit(store, "unknown") == 0


async def test_a_superseded_server_commits_nothing(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await (await started(store, "b")).adopt_all()
    before = await owner.record()
    with pytest.raises(Fenced):
        await owner.commit(10, change(opened=[5]))
    assert await owner.record() == before
    assert await owner.node() == {}


async def test_sessions_of_others_are_named_and_left_alone(store: Store) -> None:
    owner, other = await owner_of(store, JOE), await started(store, "b")
    await other.login(ANN)
    gone = SessionName("client/gone/1")
    ended = [Disposition(name, EndReason.SETTLED, (LogId(3),)) for name in (ANN, JOE)]
    letters = [PendingDeadLetter(name, LogId(4), "user.x", "why") for name in (ANN, JOE, gone)]
    changes = [change(name, opened=[5], batch=9000) for name in (ANN, JOE, gone)]
    assert await owner.commit(10, *changes, ended=ended, letters=letters) == [ANN, gone]
    assert await other.record(ANN) == {"owner": "b", "r": "{}", "batch": "1000"}
    assert await other.record(gone) == {}
    assert await open_ids(owner) == {5}
    assert [each["receiver"] for each in await owner.letters()] == [JOE]
    assert await owner.facts("ended") == [{"ended": [{"session": JOE, "reason": "settled", "ids": [3]}]}]


async def test_a_repeated_commit_names_the_sessions_of_others_again(store: Store) -> None:
    """Its first answer may have been lost: without them, the server would take batch numbers of them for reserved."""
    owner, other = await owner_of(store, JOE), await started(store, "b")
    await other.login(ANN)
    owner.number = 1
    commit = owner.next_commit(10, change(JOE, batch=9000), change(ANN, batch=9000))
    assert await owner.apply(commit) == [ANN]
    assert await owner.apply(commit) == [ANN]
    owner.number += 1
    commit = owner.next_commit(20, change(JOE, opened=[15]))
    assert await owner.apply(commit) == []
    assert await owner.apply(commit) == []


async def test_commit_writes_one_fact_about_the_ended_messages(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    ids = [LogId(number) for number in range(6)]
    ended = [
        Disposition(JOE, EndReason.SETTLED, (ids[1], ids[2])),
        Disposition(ANN, EndReason.DROPPED, (ids[1],)),
        Disposition(JOE, EndReason.DEAD, (ids[3], ids[4], ids[5])),
    ]
    codes = {3: "user.x", 4: "communication.y", 5: "user.x"}
    letters = [PendingDeadLetter(JOE, LogId(each), code, "why") for each, code in codes.items()]
    await owner.commit(10, ended=ended, letters=letters)
    assert await owner.facts("ended") == [
        {
            "ended": [
                {"session": JOE, "reason": "settled", "ids": [1, 2]},
                {"session": ANN, "reason": "dropped", "ids": [1]},
                {"session": JOE, "reason": "dead", "code": "communication.y", "ids": [4]},
                {"session": JOE, "reason": "dead", "code": "user.x", "ids": [3, 5]},
            ]
        }
    ]
    await owner.commit(20, change(opened=[15]))
    assert len(await owner.facts("ended")) == 1


async def test_sessions_that_have_settled_the_same_are_told_of_together(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    gone, lost = SessionName("client/gone/1"), SessionName("client/lost/1")
    other = await started(store, "b")
    await other.login(lost)
    ids = (LogId(3), LogId(4))
    ended = [Disposition(name, EndReason.SETTLED, ids) for name in (JOE, gone, ANN, lost)]
    ended += [Disposition(ANN, EndReason.SETTLED, (LogId(5),)), Disposition(JOE, EndReason.EXPIRED, (LogId(6),))]
    assert await owner.commit(10, ended=ended) == [gone, lost]
    assert await owner.facts("ended") == [
        {
            "ended": [
                {"session": JOE, "reason": "settled", "ids": [3, 4]},
                {"session": ANN, "reason": "settled", "ids": [3, 4]},
                {"session": ANN, "reason": "settled", "ids": [5]},
                {"session": JOE, "reason": "expired", "ids": [6]},
            ]
        }
    ]


async def joined(store: Store, token: str) -> Owner:
    """A node that shares the store."""
    owner, membership = Owner(store, token), node_leases.Membership(token * 6, "127.0.0.1:1")
    await owner.do(node_leases.claim(store.keys, token, "heron", PROCESS, 60_000, (), membership))
    return owner


async def looks(store: Store) -> int:
    """How often the store has read a field of a hash."""
    return int((await store.reader.info("commandstats"))["cmdstat_hget"]["calls"])


async def test_a_node_tells_what_its_sessions_have_settled_without_a_look_at_each(store: Store) -> None:
    node = await joined(store, "n")
    names = [SessionName(f"client/joe/{number}") for number in range(1, 101)]
    for name in names:
        await node.login(name)
    before = await looks(store)
    assert await node.commit(10, ended=[Disposition(name, EndReason.SETTLED, (LogId(3),)) for name in names]) == []
    assert await looks(store) - before < 10
    (fact,) = await node.facts("ended")
    assert [each["session"] for each in fact["ended"]] == names


async def test_a_node_whose_sessions_move_in_slices_is_asked_for_the_owner_of_each(store: Store) -> None:
    """To a server without others, which removes the record of the node only after the last of them."""
    node = await joined(store, "n")
    for name in (JOE, ANN):
        await node.login(name)
    heir = await started(store, "b")
    (moved,) = await heir.adopt(1)
    ended = [Disposition(name, EndReason.SETTLED, (LogId(3),)) for name in (JOE, ANN)]
    assert await node.commit(10, ended=ended) == [moved.name]
    (fact,) = await node.facts("ended")
    assert moved.name not in [each["session"] for each in fact["ended"]]


async def test_a_node_changes_no_session_of_another_one(store: Store) -> None:
    node, other = await joined(store, "n"), await joined(store, "m")
    await other.login(ANN)
    assert await node.commit(10, change(ANN, opened=[5])) == [ANN]
    assert await open_ids(other, ANN) == set()


async def test_a_letter_copies_the_message_from_the_log(store: Store) -> None:
    owner = await owner_of(store, JOE)
    (log_id,) = await owner.publish("/a b", sender=ANN, qos=b'{"priority":9}')
    await owner.commit(log_id, change(opened=[log_id]))
    await owner.commit(
        log_id, change(settled=[log_id]), letters=[PendingDeadLetter(JOE, log_id, "user.x", "it said so", 3)]
    )
    assert await owner.letters() == [
        {
            "id": str(log_id),
            "received": f"{log_id}000",
            "receiver": JOE,
            "code": "user.x",
            "reason": "it said so",
            "attempts": "3",
            "channel": "/a b",
            "body": '{"channel":"/a b"}',
            "sender": ANN,
            "qos": '{"priority":9}',
            "z": "276",
            "p": "1",
        }
    ]


async def test_a_letter_copies_the_message_from_the_inbox(store: Store) -> None:
    owner = await owner_of(store, JOE)
    (log_id,) = await owner.publish("/a:b", sender=ANN, qos=b'{"priority":9}')
    await owner.commit(log_id, change(opened=[log_id]))
    await owner.spill(log_id)
    await owner.trim()
    assert await owner.log_ids() == []
    await owner.commit(log_id + 1, change(removed=[log_id]), letters=[PendingDeadLetter(JOE, log_id, "user.x", "why")])
    (letter,) = await owner.letters()
    assert (letter["channel"], letter["body"]) == ("/a:b", '{"channel":"/a:b"}')
    assert (letter["sender"], letter["qos"]) == (ANN, '{"priority":9}')
    assert await store.reader.exists(store.keys.inbox(JOE)) == 0
    assert f"i:{log_id}" not in await owner.record()


async def test_message_spilled_during_its_settlement_is_settled(store: Store) -> None:
    owner = await owner_of(store, JOE)
    ids = await owner.publish("/a", "/a", "/a")
    await owner.commit(ids[-1], change(opened=ids), low=0)
    await owner.spill(ids[1], ids[2])
    await owner.commit(ids[-1], change(settled=ids[:2]), letters=[PendingDeadLetter(JOE, ids[1], "user.x", "why")])
    assert [field for field in await owner.record() if field[:2] in ("o:", "i:")] == [f"i:{ids[2]}"]
    assert await store.reader.hkeys(store.keys.inbox(JOE)) == [b"%d" % ids[2]]
    assert [each["channel"] for each in await owner.letters()] == ["/a"]


async def test_a_letter_holds_a_message_that_was_never_stored(store: Store) -> None:
    owner = await owner_of(store, JOE)
    message = Transient("1795-3-ab", "1795000000", "/live", b'{"channel":"/live"}', ANN, b'{"priority":9}')
    await owner.commit(
        1, letters=[PendingDeadLetter(JOE, LogId(0), "resource.overflow.queue.entries", "full", 0, message)]
    )
    (letter,) = await owner.letters()
    assert (letter["id"], letter["received"]) == ("1795-3-ab", "1795000000")
    assert (letter["channel"], letter["body"]) == ("/live", '{"channel":"/live"}')
    assert (letter["sender"], letter["qos"]) == (ANN, '{"priority":9}')
    assert "p" not in letter


async def test_a_letter_of_a_message_that_has_gone_is_empty(store: Store) -> None:
    owner = await owner_of(store, JOE)
    await owner.commit(1, letters=[PendingDeadLetter(JOE, LogId(77), "user.x", "why", 1)])
    (letter,) = await owner.letters()
    assert (letter["id"], letter["code"], letter["attempts"]) == ("77", "user.x", "1")
    assert (letter["channel"], letter["body"], letter["sender"], letter["qos"]) == ("", "", "", "")


async def test_letters_are_bounded(store: Store) -> None:
    owner = await owner_of(store, JOE)
    letters = [PendingDeadLetter(JOE, LogId(each), "user.x", "why") for each in range(LETTERS_MAX + 30)]
    await owner.commit(1, letters=letters)
    kept = await owner.letters()
    assert len(kept) == LETTERS_MAX
    assert kept[-1]["id"] == str(LETTERS_MAX + 29)


async def test_a_thousand_sessions_change_at_once(store: Store) -> None:
    names = [SessionName(f"client/u{number}/1") for number in range(1000)]
    owner = await owner_of(store, *names)
    ended = [Disposition(name, EndReason.SETTLED, (LogId(1),)) for name in names]
    owner.number = 1
    commit = owner.next_commit(10, *(change(name, opened=[2, 3]) for name in names), ended=ended)
    assert len(owner.steps(commit)) == 1
    assert await owner.apply(commit) == []
    for name in (names[0], names[500], names[-1]):
        assert await open_ids(owner, name) == {2, 3}
    (fact,) = await owner.facts("ended")
    assert len(fact["ended"]) == 1000


async def test_more_is_settled_at_once_than_lua_can_unpack(store: Store) -> None:
    owner = await owner_of(store, JOE)
    many = range(1, 20_001)
    await owner.commit(30_000, change(opened=many))
    assert len(await open_ids(owner)) == 20_000
    await owner.commit(30_000, change(settled=many, opened=[25_000]))
    assert await open_ids(owner) == {25_000}


# A commit that is written in parts


def large(owner: Owner) -> tuple[list[int], list[int], Change, Change]:
    joes, anns = list(range(1, 3001)), list(range(1, 2001))
    return joes, anns, change(JOE, opened=joes, batch=2000), change(ANN, opened=anns)


async def test_large_commit_is_written_in_parts(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    joes, anns, *changes = large(owner)
    owner.number = 1
    commit = owner.next_commit(5000, *changes, ended=[Disposition(JOE, EndReason.SETTLED, (LogId(1),))])
    assert [step.script for step in owner.steps(commit)] == ["open", "open", "open", "commit"]
    assert await owner.apply(commit) == []
    assert await open_ids(owner, JOE) == set(joes)
    assert await open_ids(owner, ANN) == set(anns)
    assert (await owner.record())["batch"] == "2000"
    assert (await owner.node())["seq"] == "1"
    assert len(await owner.facts("ended")) == 1


async def test_its_steps_may_be_repeated(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    joes, _, *changes = large(owner)
    owner.number = 1
    first, second, third, last = owner.steps(owner.next_commit(5000, *changes))
    for step in (first, first, second, first, third, third, last, second, last):
        assert (await owner.do(step)).fenced == []
    await owner.commit(6000, change(JOE, settled=joes))
    for late in (first, third):
        await owner.do(late)
    assert await open_ids(owner) == set()


async def test_no_part_is_left_out(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    _, _, *changes = large(owner)
    owner.number = 1
    first, second, third, last = owner.steps(owner.next_commit(5000, *changes))
    before = await owner.node()
    for too_early in (second, third, last):
        with pytest.raises(StoreUnavailable):
            await owner.do(too_early)
    assert await owner.node() == before
    await owner.do(first)
    for too_early in (third, last):
        with pytest.raises(StoreUnavailable):
            await owner.do(too_early)
    for step in (second, third, last):
        await owner.do(step)
    assert (await owner.node())["cursor"] == "5000"


async def test_the_parts_of_one_commit_do_not_count_for_the_next(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    _, _, *changes = large(owner)
    await owner.commit(5000, *changes)
    owner.number = 2
    second = owner.next_commit(9000, change(opened=range(5001, 8001)))
    *_, last = owner.steps(second)
    with pytest.raises(StoreUnavailable):
        await owner.do(last)
    await owner.apply(second)
    assert await open_ids(owner) == {*range(1, 3001), *range(5001, 8001)}


async def test_its_parts_are_fenced_as_it_is(store: Store) -> None:
    owner, other = await owner_of(store, JOE), await started(store, "b")
    await other.login(ANN)
    _, _, *changes = large(owner)
    assert set(await owner.commit(5000, *changes)) == {ANN}
    assert await open_ids(other, ANN) == set()
    await other.adopt_all()
    owner.number = 2
    with pytest.raises(Fenced):
        await owner.do(owner.steps(owner.next_commit(9000, *changes))[0])


async def test_a_part_notices_a_lost_commit(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    _, _, *changes = large(owner)
    owner.number = 3
    with pytest.raises(Behind):
        await owner.do(owner.steps(owner.next_commit(5000, *changes))[0])


async def test_adoption_takes_back_an_unfinished_commit_in_parts(store: Store) -> None:
    owner = await owner_of(store, JOE, ANN)
    await owner.commit(100, change(JOE, opened=[99, 100]))
    _, _, *changes = large(owner)
    owner.number += 1
    first, *_ = owner.steps(owner.next_commit(5000, *changes))
    await owner.do(first)
    assert len(await open_ids(owner)) == 2000
    heir = await started(store, "b")
    records = await heir.adopt_all()
    assert set(records[JOE].pending) == set(range(1, 101))
    assert await open_ids(heir) == set(range(1, 101))
    assert records[JOE].own_cursor == 100
