"""Which messages a refused payload is refused for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crewel.bayeux.codec import decode
from crewel.errors import Fault, PayloadError

FINE = '{"channel":"/a","id":"1","data":1}'
HALF = r'{"channel":"/a","id":"2","clientId":"c","data":["\ud83d"],"ext":{"publish":{"key":"k"},"x":1}}'
NAN = '{"channel":"/a","id":"3","ext":{"subscribe":-Infinity}}'


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def deep(levels: int) -> str:
    return f'{{"channel":"/a","id":"4","data":{nested(levels)}}}'


def refused(body: str | bytes, max_depth: int = 8) -> PayloadError:
    with pytest.raises(PayloadError) as caught:
        decode(body, max_messages=100, max_depth=max_depth)
    return caught.value


@pytest.mark.parametrize("encode", [str, str.encode])
@pytest.mark.parametrize("template", ["[%s,%s,%s,%s]", " [ %s ,\n%s, %s\t,%s ]\r\n "])
def test_messages_that_are_not_json_are_told_from_those_that_are(encode: Any, template: str) -> None:
    error = refused(encode(template % (HALF, FINE, NAN, deep(8))))
    assert error.fault is Fault.MALFORMED
    assert error.others == [json.loads(FINE)]
    assert [(flaw.index, flaw.fields, flaw.refusal.error) for flaw in error.flaws] == [
        (
            0,
            {"channel": "/a", "id": "2", "clientId": "c", "ext": {"publish": {}}},
            "400:data:user.illegalArgument",
        ),
        (2, {"channel": "/a", "id": "3", "ext": {"subscribe": {}}}, "400:ext:user.illegalArgument"),
        (3, {"channel": "/a", "id": "4"}, "400:data:user.illegalArgument"),
    ]
    assert [flaw.refusal.message for flaw in error.flaws] == [
        "data: half of a surrogate pair, character 49",
        "ext: Infinity is no number of JSON, character 45",
        "data: nested deeper than bayeux.max_depth, which is 8",
    ]
    assert str(error).startswith("message 1 of 4: not a JSON object or array of objects in UTF-8 (half of a surrogate")
    assert error.is_answerable


def test_a_message_alone_is_one_of_one() -> None:
    error = refused(HALF)
    assert str(error).startswith("message 1 of 1: ")
    assert (len(error.flaws), error.others) == (1, [])


def test_messages_that_are_nested_too_deeply_are_told_from_those_that_are_not() -> None:
    error = refused(f"[{FINE},{deep(7)},{deep(6)}]")
    assert error.fault is Fault.TOO_DEEP
    assert [flaw.index for flaw in error.flaws] == [1]
    assert error.others == [json.loads(FINE), json.loads(deep(6))]


@pytest.mark.parametrize(
    "element",
    [
        r'["\ud83d"]',
        r'{"channel":"/\ud83d","id":"1","data":1}',
        r'{"channel":"/a","id":"\ud83d","data":"\ud83d"}',
        r'{"channel":"/a","id":"1","other":NaN}',
        r'{"channel":"/a","id":"1","\ud83d":1,"data":NaN}',
        nested(10),
        f'{{"channel":"/a","id":"1","other":{nested(10)}}}',
    ],
)
def test_a_flaw_that_the_reply_would_repeat_is_that_of_the_payload(element: str) -> None:
    error = refused(f"[{FINE},{element}]")
    assert not error.flaws
    assert not error.is_answerable


@pytest.mark.parametrize(
    "body",
    [
        b'[{"data":"\\ud800"},\xff]',
        f"[{HALF}",
        f"[{HALF},",
        f"[{HALF} {FINE}]",
        f"[{HALF}]x",
        f"{HALF},",
        "[",
        nested(100_000),
    ],
)
def test_what_is_no_json_otherwise_is_not_taken_apart(body: str | bytes) -> None:
    error = refused(body)
    assert (error.fault, list(error.flaws)) == (Fault.MALFORMED, [])


def test_a_payload_is_checked_as_a_whole_before_its_messages() -> None:
    assert refused("[" + ",".join([HALF] * 101) + "]").fault is Fault.TOO_MANY
    assert refused(f'[{{"channel":"/meta/handshake"}},{HALF}]').fault is Fault.HANDSHAKE_IN_BATCH


def test_more_than_a_few_messages_are_the_fault_of_the_payload() -> None:
    for flawed in (HALF, deep(8)):
        assert len(refused("[" + ",".join([flawed] * 20) + "]").flaws) == 20
        assert not refused("[" + ",".join([flawed] * 21) + "]").flaws


def test_a_reply_needs_a_channel_and_an_id() -> None:
    assert not refused('[{"channel":"/a","data":NaN}]').is_answerable
    assert not refused('[{"id":"1","data":NaN}]').is_answerable
    assert refused("[]").is_answerable  # in a way: there is nothing to answer
