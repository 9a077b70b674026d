"""The shape of data, which groups dead letters that are alike."""

from __future__ import annotations

import pytest

from crewel.storage.data_shape import shape_of
from crewel.storage.dead_letter_groups import LIKENESS, count_by
from crewel.storage.dead_letter_matching import likeness_of
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.dead_letter_store import count
from crewel.storage.store import Store
from tests.storage.dead_lettered import letter
from tests.storage.owner import JOE, started


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        (b'{"data":{"b":[1,2.5,"x"],"a":true}}', "{a: boolean, b: [number | text]}"),
        (b'{"data":null}', "nothing"),
        (b'{"data":[]}', "[]"),
        (b'{"data":[{"sku":"a"},{"sku":"b"}]}', "[{sku: text}]"),
        (b"{}", "nothing"),
        (b"not JSON", "nothing"),
        (b'{"data":' + b"[" * 20 + b"1" + b"]" * 20 + b"}", "[[[[[[[[…]]]]]]]]"),
    ],
)
def test_shape(body: bytes, shape: str) -> None:
    assert shape_of(body) == shape


async def test_dead_letters_are_grouped_and_filtered_by_likeness(store: Store) -> None:
    owner = await started(store)
    await owner.login(JOE)
    bodies = (b'{"data":{"n":1}}', b'{"data":"x"}', b'{"data":{"n":2}}')
    ids = await owner.dead_letter(*(letter(body=body) for body in bodies))
    found = (await count_by(store, kinds=[LIKENESS])).groups[LIKENESS]
    assert [(group.value, group.letters, group.example) for group in found.largest] == [
        ("{n: number}", 2, ids[2]),
        ("text", 1, ids[1]),
    ]
    assert not found.is_partial
    like = found.largest[0].like
    assert like == likeness_of("{n: number}")
    assert await count(store, DeadLetterFilter(like=like)) == 2
    assert await count(store, DeadLetterFilter(like="0")) == 0
