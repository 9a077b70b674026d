"""The schema of the facts, and reading them."""

import orjson

from crewel.delivery.records import Disposition, EndReason, LogId, PendingDeadLetter, SessionName, Submission
from crewel.storage import (
    dead_letter_bin,
    dead_letter_store,
    facts,
    histories,
    losses,
    scheduled_messages,
    shared_queue_store,
)
from crewel.storage.store import Store
from tests.storage.dead_lettered import letter
from tests.storage.owner import FACTS_MAX, JOE, Owner, change, started
from tests.storage.reading import Fact, read_facts


async def do_everything(owner: Owner) -> None:
    await owner.login(JOE)
    await owner.subscribe("/a", "/b", options={"/b": b'[{"group":"x"}]'})
    (log_id,) = await owner.publish("/a", history_max=1, key="joe /a 5", publisher_key="5")
    await do_all_with_queues(owner)
    await owner.unsubscribe("/b")
    await owner.commit(log_id, change(opened=[log_id]), ended=[Disposition(JOE, EndReason.SETTLED, (LogId(1),))])
    about = '"who":"ann","since":5,"code":"user.x","id":"7","reason":"why"'
    for dispatch in (f'{{"active":false,{about}}}', f'{{"sink":true,"given":"x",{about}}}', ""):
        await owner.hold(dispatch.encode() or None)
    await do_all_with_letters(owner)
    await do_all_with_schedules(owner)
    await owner.close()
    await owner.do(losses.meet(owner.keys, "second"))
    loss = losses.Loss("heron", losses.Met(log_id, "1-0", 5), log_id, [(log_id, log_id)])
    await owner.do(losses.note(owner.keys, owner.token, "second", loss, FACTS_MAX))
    ended = [Disposition(JOE, EndReason.DEAD, (log_id,))]
    await owner.end(ended, [PendingDeadLetter(JOE, log_id, "user.x", "why", given="resource.x")])


async def do_all_with_queues(owner: Owner) -> None:
    keys, token = owner.keys, owner.token
    to_joe = shared_queue_store.Delivery("client/joe", JOE, source="client/joe")
    message = shared_queue_store.Addressed("/a", b"{}", publisher_key="5")
    sent = await owner.do(shared_queue_store.send(keys, token, message, [to_joe], FACTS_MAX))
    await owner.do(shared_queue_store.requeue(keys, token, JOE, {sent.id: 1}, FACTS_MAX, failed=False))
    await owner.do(shared_queue_store.lease(keys, token, "client/joe", [shared_queue_store.Member(JOE, 1)], FACTS_MAX))
    await owner.commit(sent.id, change(removed=[sent.id]))
    await owner.do(histories.erase(keys, token, "/a", FACTS_MAX))


async def do_all_with_letters(owner: Owner) -> None:
    made = await dead_letter_store.get(owner.store, await owner.dead_letter(letter(), letter(), letter()))
    for each, to_channel in zip(made[:2], (False, True), strict=True):
        step = dead_letter_store.redrive(owner.keys, owner.token, each, FACTS_MAX, to_channel=to_channel, job_id="5-7")
        await owner.do(step)
    discarded = dead_letter_store.discard(
        owner.keys, owner.token, [made[2].dead_id], FACTS_MAX, "ann", "5-7", keeps=True
    )
    await owner.do(discarded)
    restored = await owner.do(dead_letter_bin.restore(owner.keys, owner.token, [made[2].dead_id], FACTS_MAX, "ann"))
    await owner.do(
        dead_letter_store.discard(owner.keys, owner.token, list(restored.values()), FACTS_MAX, "ann", keeps=True)
    )
    again = await owner.do(dead_letter_bin.restore(owner.keys, owner.token, list(restored.values()), FACTS_MAX, "ann"))
    (last,) = await dead_letter_store.get(owner.store, list(again.values()))
    await owner.do(dead_letter_store.redrive(owner.keys, owner.token, last, FACTS_MAX, body=b"{}", who="ann"))


async def do_all_with_schedules(owner: Owner) -> None:
    keys, token = owner.keys, owner.token
    message = scheduled_messages.Waiting(5, "/a", b"{}", "", "", b"{}", "")
    first, second = [
        await owner.do(scheduled_messages.schedule(keys, token, message, 0, FACTS_MAX, key, "7")) for key in ("a", "b")
    ]
    await owner.append([Submission("/a", b"{}", key=str(first.id), is_due=True)])
    await owner.do(scheduled_messages.cancel(keys, token, [str(second.id)], FACTS_MAX, "ann"))


async def test_the_facts_hold_what_the_schema_says_and_nothing_else(store: Store) -> None:
    owner = await started(store)
    await do_everything(owner)
    known = {each.name: set(each.fields) for each in facts.FACTS}
    seen: dict[str, set[str]] = {}
    for fact in await read_facts(store):
        fields = seen.setdefault(fact.type, set())
        fields |= set(fact.fields)
        for kind in ("ended", "leases"):
            for each in fact.fields.get(kind, []):
                fields |= {f"{kind}[].{name}" for name in each}
    assert seen == known


async def test_each_field_has_the_type_that_the_schema_says(store: Store) -> None:
    owner = await started(store)
    await do_everything(owner)
    types = {each.name: each.fields for each in facts.FACTS}
    for fact in await read_facts(store):
        for name, value in fact.fields.items():
            assert fits(value, types[fact.type][name].type), (fact.type, name, value)
        for kind in ("ended", "leases"):
            for each in fact.fields.get(kind, []):
                for name, value in each.items():
                    assert fits(value, types[fact.type][f"{kind}[].{name}"].type), (fact.type, kind, name, value)


def fits(value: object, kind: str) -> bool:
    """Whether a value of JSON is of a type of the schema; an empty list of Lua is `{}`."""
    if kind.startswith("array<"):
        inner = kind.removeprefix("array<").removesuffix(">")
        return value == {} or (isinstance(value, list) and all(fits(each, inner) for each in value))
    python = {"bigint": int, "string": str, "boolean": bool, "struct": dict, "map<string, string>": dict}.get(
        kind, dict
    )
    return type(value) is python


async def test_facts_are_in_the_order_of_what_happened(store: Store) -> None:
    owner = await started(store)
    await do_everything(owner)
    assert [fact.type for fact in await read_facts(store)] == [
        "opened-session",
        "subscribed",
        "published",
        "addressed",
        "ended",
        "returned",
        "leased",
        "erased",
        "unsubscribed",
        "ended",
        "held",
        "held",
        "released",
        "redriven",
        "published",
        "redriven",
        "discarded",
        "restored",
        "discarded",
        "restored",
        "redriven",
        "scheduled",
        "scheduled",
        "published",
        "cancelled",
        "unsubscribed",
        "lost",
        "ended",
        "closed-session",
    ]


async def test_reading_goes_on_where_it_stopped(store: Store) -> None:
    owner = await started(store)
    await do_everything(owner)
    found: list[Fact] = []
    while more := await read_facts(store, found[-1].place if found else "0-0", 3):
        found += more
    assert found == await read_facts(store)


def test_a_dead_message_without_a_letter_has_no_code() -> None:
    (text,) = facts.ends([Disposition(JOE, EndReason.DEAD, (LogId(5),))], [])[JOE]
    assert text == b'{"session":"client/joe/1","reason":"dead","code":"","ids":[5]}'


def test_the_letters_of_others_tell_no_codes() -> None:
    letters = [
        PendingDeadLetter(SessionName("client/ann/1"), LogId(5), "user.ann", ""),
        PendingDeadLetter(JOE, LogId(5), "user.joe", ""),
    ]
    (text,) = facts.ends([Disposition(JOE, EndReason.DEAD, (LogId(5),))], letters)[JOE]
    assert b"user.joe" in text


def test_a_code_that_did_not_count_is_told_as_it_was_given() -> None:
    letters = [
        PendingDeadLetter(JOE, LogId(5), "user.update.internalError", "", given="resource.exhausted"),
        PendingDeadLetter(JOE, LogId(6), "user.update.internalError", ""),
    ]
    texts = facts.ends([Disposition(JOE, EndReason.DEAD, (LogId(5), LogId(6)))], letters)[JOE]
    assert [(told.get("given"), told["ids"]) for told in map(orjson.loads, texts)] == [
        (None, [6]),
        ("resource.exhausted", [5]),
    ]


def test_every_reason_is_documented() -> None:
    (ended,) = (each for each in facts.FACTS if each.name == "ended")
    assert all(f"`{reason.value}`" in ended.fields["ended[].reason"].meaning for reason in EndReason)
