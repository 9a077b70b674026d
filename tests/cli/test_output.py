"""How commands print values for people."""

from __future__ import annotations

import json

import pytest

from crewel.bayeux.numbers import parse
from crewel.cli.output import readable
from crewel.cli.trace_command import _line

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[1,-2.5,null,true],"b":{},"c":[]}',
        r"""{"a,b":"c:\\","\"d\":,":["\\\",:",""]}""",
        r"""["café \u0007\n",1]""",
        "1.5",
        "null",
    ],
)
def test_json_has_spaces_between_its_parts_and_not_within_texts(text: str) -> None:
    assert readable(parse(text)) == json.dumps(json.loads(text), ensure_ascii=False)


def test_numbers_keep_their_digits() -> None:
    text = '{"n": 12345678901234567890123, "price": 0.10000000000000000001, "of": [1e-400]}'
    assert readable(parse(text)) == text
    record = parse(f'{{"at": 0, "way": "in", "message": {{"channel": "/a", "data": {text}}}}}')
    assert _line(record) == f'1970-01-01T00:00:00.000Z < /a {{"data": {text}}}'


def test_what_could_steer_a_terminal_is_escaped() -> None:
    assert readable({"a": "\x9b2J\x7f"}) == '{"a": "\\u009b2J\\u007f"}'
    assert readable("\x1b[2J") == '"\\u001b[2J"'
