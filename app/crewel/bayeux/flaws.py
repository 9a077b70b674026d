"""Which messages of a payload are to blame for its refusal, and in which of their fields: read only after a refusal.

A message can be refused alone if the flaw is in `data` or `ext`, which its reply does not echo.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import orjson

from crewel.bayeux.numbers import parse
from crewel.errors import Fault, Flaw, IllegalArgument, PayloadError

_MAY_BE_FLAWED: Final = ("data", "ext")
_NESTING: Final = frozenset((dict, list))
_ASKED: Final = ("publish", "subscribe")
_NO_NUMBER = re.compile(r"NaN|Infinity")
_OPENING = re.compile(r"[ \t\r\n]*\[[ \t\r\n]*")
_DELIMITER = re.compile(r"[ \t\r\n]*(?:(,)[ \t\r\n]*|\][ \t\r\n]*\Z)")
_MOST: Final = 20
"""Flaws of so many messages at most are looked for: more of them are the fault of the payload."""
_Checked = tuple[Any, str, Callable[[Any], bool]]
"""An element; what is wrong with it, if anything is; and whether a part of it is fine."""
_read: Final = json.JSONDecoder().raw_decode
"""Takes what JSON does not have: halves of surrogate pairs, NaN and Infinity."""


def depth_of(values: Iterable[Any]) -> int:
    """Levels of arrays and objects, that of `values` included."""
    depth = 0
    level: list[Any] = [values]
    while level:
        depth += 1
        below = (parent.values() if type(parent) is dict else parent for parent in level)
        level = [child for children in below for child in children if type(child) in _NESTING]
    return depth


def too_deep(elements: list[Any], max_depth: int) -> PayloadError:
    """The refusal of a payload that is nested too deeply."""
    checked = (_with_depth(element, max_depth) for element in elements)
    return _told_apart(Fault.TOO_DEEP, f"deeper than bayeux.max_depth, which is {max_depth}", checked)


def taken_apart(body: bytes | str) -> list[tuple[Any, str]]:
    """The elements of what the parser did not take, each with its text; empty if Python's does not take it either."""
    try:
        text = body if isinstance(body, str) else body.decode()
        opening = _OPENING.match(text)
        if opening is None:
            return [(json.loads(text), text)]
        parts: list[tuple[Any, str]] = []
        before: re.Match[str] | None = opening
        while before is not None:
            element, end = _read(text, before.end())
            parts.append((element, text[before.end() : end]))
            before = _DELIMITER.match(text, end)
            if before is not None and before[1] is None:
                return parts
    except (ValueError, RecursionError):
        pass
    return []


def malformed(parts: list[tuple[Any, str]], reason: str, max_depth: int) -> PayloadError:
    """The refusal of a payload that is not JSON; `parts` is what `taken_apart` makes of it."""
    return _told_apart(Fault.MALFORMED, reason, (_parsed(element, text, max_depth) for element, text in parts))


def where(error: orjson.JSONDecodeError, body: bytes | str) -> str:
    """What the parser did not take, and where. Numbers that are none are named: many writers of JSON make them."""
    text = body if isinstance(body, str) else body.decode(errors="replace")
    word = _NO_NUMBER.match(text, error.pos)
    words = f"{word[0]} is no number of JSON" if word else error.msg
    return f"{'half of a surrogate pair' if 'surrogate' in words else words}, character {error.pos}"


def _parsed(element: Any, text: str, max_depth: int) -> _Checked:
    try:
        return _with_depth(parse(text), max_depth)
    except orjson.JSONDecodeError as error:
        return element, where(error, text), _is_json


def _with_depth(element: Any, max_depth: int) -> _Checked:
    is_deep = depth_of([element]) > max_depth
    wrong = f"nested deeper than bayeux.max_depth, which is {max_depth}" if is_deep else ""
    return element, wrong, lambda value: depth_of([[value]]) <= max_depth


def _told_apart(fault: Fault, reason: str, elements: Iterable[_Checked]) -> PayloadError:
    flaws: list[Flaw] = []
    others: list[Any] = []
    for index, (element, wrong, is_fine) in enumerate(elements):
        if not wrong:
            others.append(element)
            continue
        flaw = _flaw(index, element, wrong, is_fine)
        if flaw is None or len(flaws) == _MOST:
            return PayloadError(fault, reason)
        flaws.append(flaw)
    return PayloadError(fault, reason, flaws, others)


def _flaw(index: int, element: Any, reason: str, is_fine: Callable[[Any], bool]) -> Flaw | None:
    """The flaw of this element; None if it is no message, or its reply would have the flaw too."""
    if type(element) is not dict:
        return None
    field = next((name for name in _MAY_BE_FLAWED if name in element and not is_fine(element[name])), None)
    fields = {name: value for name, value in element.items() if name not in _MAY_BE_FLAWED}
    if field is None or not is_fine(fields):
        return None
    if type(ext := element.get("ext")) is dict:
        fields["ext"] = {name: {} for name in _ASKED if name in ext}
    return Flaw(index, fields, IllegalArgument(field, reason))


def _is_json(value: Any) -> bool:
    try:
        orjson.loads(json.dumps(value))
    except (ValueError, RecursionError):
        return False
    return True
