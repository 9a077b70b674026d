"""What tests of dead letters share: letters to make, and a look at whether everything about them agrees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from hashlib import sha1
from typing import Any

from crewel.bayeux.channel import matches
from crewel.delivery.records import LogId, PendingDeadLetter, SessionName, Transient
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter, StoredDeadLetter
from tests.storage.owner import JOE, Owner

KINDS = ("code", "receiver", "channel")
TEXT_COST = 150
"""Bytes that a shared text counts beside its own."""


def letter(
    code: str = "user.x",
    receiver: str = JOE,
    channel: str = "/a",
    body: bytes = b'{"data":1}',
    message_id: str = "7-1-t",
) -> PendingDeadLetter:
    """A letter of a message that was never stored."""
    message = Transient(message_id, "1795000000123", channel, body, "client/ann/1", b'{"priority":9}')
    return PendingDeadLetter(SessionName(receiver), LogId(0), code, "why", 2, message)


async def all_letters(owner: Owner) -> list[StoredDeadLetter]:
    """Every letter, oldest first, read past the indexes."""
    found: Any = await owner.store.reader.xrange(owner.keys.dead)
    return await dead_letter_store.get(owner.store, [place.decode() for place, _ in found])


async def assert_indexes_agree(owner: Owner) -> None:
    """Each index knows exactly the letters that there are, and nothing else lies beside them."""
    reader, keys = owner.store.reader, owner.keys
    expected: dict[str, dict[str, list[str]]] = {kind: {} for kind in KINDS}
    for each in await all_letters(owner):
        for kind in KINDS:
            if value := getattr(each, kind):
                expected[kind].setdefault(value, []).append(each.dead_id)
    known = {keys.dead, keys.dropped, keys.returned, keys.letter_texts, keys.letter_uses, keys.letter_bytes}
    known |= {keys.bin, keys.binned_at, keys.letter_shares.charged, keys.letter_shares.texts}
    await _assert_texts_agree(owner)
    known |= await _assert_shares_agree(owner)
    for kind in KINDS:
        members: Any = await reader.zrange(keys.dead_letter_values(kind), 0, -1)
        assert [member.decode() for member in members] == sorted(expected[kind])
        known.add(keys.dead_letter_values(kind))
        for value, places in expected[kind].items():
            entries: Any = await reader.xrange(keys.dead_letters_by(kind, value))
            assert [place.decode() for place, _ in entries] == places, (kind, value)
            known.add(keys.dead_letters_by(kind, value))
    pattern = f"{keys.base}dead*"
    there = {key.decode() async for key in reader.scan_iter(match=pattern, count=1000)}
    assert there - known == set(), there - known


async def _assert_texts_agree(owner: Owner) -> None:
    """The texts that letters share are those that some letter refers to, counted by letter, and the bytes add up."""
    reader, keys = owner.store.reader, owner.keys
    uses: Counter[str] = Counter()
    total = 0
    for each in [*await owner.letters(), *await _binned(owner)]:
        uses.update(each[name] for name in ("bh", "qh") if name in each)
        total += int(each.get("z", 0))
    texts = await owner.hash(keys.letter_texts)
    assert await owner.hash(keys.letter_uses) == {name: str(count) for name, count in uses.items()}
    assert texts.keys() == uses.keys()
    assert {name: sha1(text.encode()).hexdigest() for name, text in texts.items()} == {name: name for name in texts}
    total += sum(len(text.encode()) + TEXT_COST for text in texts.values())
    assert int(await reader.get(keys.letter_bytes) or 0) == total


async def _assert_shares_agree(owner: Owner) -> set[str]:
    """The accounts have the dead letters of their receivers, and bytes of these, with each text once. Returns their keys."""
    reader, keys, shares = owner.store.reader, owner.keys, owner.keys.letter_shares
    texts, found = await owner.hash(keys.letter_texts), await reader.xrange(keys.dead)
    places: dict[str, list[str]] = {}
    weights: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    for place, raw in found:
        fields = {name.decode(): value.decode() for name, value in raw.items()}
        account = (
            "/".join(fields["receiver"].split("/")[:2]) if fields["receiver"][:7] == "client/" else fields["receiver"]
        )
        if not await reader.xrange(shares.of_account + account, place, place):
            continue  # a server of 1.0 has written it, or it was restored
        places.setdefault(account, []).append(place.decode())
        weights[account] += int(fields.get("z", 0))
        for name in (fields[field] for field in ("bh", "qh") if field in fields):
            weights[account] += 0 if uses[f"{account} {name}"] else len(texts[name].encode()) + TEXT_COST
            uses[f"{account} {name}"] += 1
    for key, expected in (
        (shares.entries, {account: len(of) for account, of in places.items()}),
        (shares.bytes, weights),
    ):
        scores: Any = await reader.zrange(key, 0, -1, withscores=True)
        assert {account.decode(): int(score) for account, score in scores} == dict(expected)
    for account, of in places.items():
        assert [each.decode() for each, _ in await reader.xrange(shares.of_account + account)] == of
    assert await owner.hash(shares.texts) == {name: str(count) for name, count in uses.items()}
    return {shares.entries, shares.bytes, *(shares.of_account + account for account in places)}


async def _binned(owner: Owner) -> list[dict[str, str]]:
    """The fields of what is in the bin."""
    found = []
    for text in (await owner.hash(owner.keys.bin)).values():
        words, rest = list[str](), text
        while rest:
            size, _, rest = rest.partition(":")
            words.append(rest[: int(size)])
            rest = rest[int(size) :]
        found.append(dict(zip(words[::2], words[1::2], strict=True)))
    return found


def wanted_of(every: Iterable[StoredDeadLetter], wanted: DeadLetterFilter) -> list[str]:
    """The dead ids that a filter means, found the plain way; oldest first."""

    def fits(each: StoredDeadLetter) -> bool:
        code = not wanted.code or f"{each.code}.".startswith(f"{wanted.code}.")
        receiver = not wanted.receiver or f"{each.receiver}/".startswith(f"{wanted.receiver}/")
        channel = not wanted.channel or matches(wanted.channel, each.channel)
        since = place(each.dead_id) >= (wanted.since_ms, 0)
        until = not wanted.until or place(each.dead_id) <= place(wanted.until)
        return code and receiver and channel and since and until

    return [each.dead_id for each in every if fits(each)]


def place(dead_id: str) -> tuple[int, int]:
    """What dead ids are ordered by."""
    milliseconds, number = dead_id.split("-")
    return int(milliseconds), int(number)
