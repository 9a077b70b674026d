"""Masks: fields of message bodies that operators do not see, by their names (`admin.mask`).

A name counts at any depth and in any case. What the server itself says of a message is never masked, only what its publisher
wrote: data, client properties, and further fields of `ext`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any, Final

from crewel.bayeux.codec import encode

HIDDEN: Final = "***"
_OF_THE_SERVER: Final = "update"
_PROPERTIES: Final = "clientProperties"


def masked(value: Any, names: Collection[str]) -> Any:
    """The value, with `***` in place of each field that has one of these names, which are in lower case."""
    if isinstance(value, dict):
        return {name: HIDDEN if name.lower() in names else masked(inner, names) for name, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, names) for inner in value]
    return value


def masked_properties(value: Any, names: Collection[str]) -> Any:
    """The value, with the same done to the client properties in it and to nothing else."""
    if not isinstance(value, dict):
        return value
    return {
        name: masked(inner, names) if name == _PROPERTIES else masked_properties(inner, names)
        for name, inner in value.items()
    }


def masked_ext(ext: Any, names: Collection[str]) -> Any:
    """An `ext` of a message, with the same done to all that its publisher wrote there."""
    if not isinstance(ext, dict):
        return ext
    return {
        name: masked_properties(inner, names) if name == _OF_THE_SERVER else masked({name: inner}, names)[name]
        for name, inner in ext.items()
    }


def masked_message(fields: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """A message as it is delivered, with the same done to its data and its ext."""
    if not names:
        return fields
    shown = dict(fields)
    if "data" in shown:
        shown["data"] = masked(shown["data"], names)
    if "ext" in shown:
        shown["ext"] = masked_ext(shown["ext"], names)
    return shown


def unmasked(edited: Any, original: Any, names: Collection[str], at: str = "") -> Any:
    """What an operator made of a value that was shown with masks: each `***` in a field of one of these names is what the
    original has there. Raises ValueError for one that has no original, or of which the original is not clear."""
    if not names:
        return edited
    if isinstance(edited, dict):
        before = original if isinstance(original, dict) else {}
        return {name: _unmasked_field(name, inner, before, names, at) for name, inner in edited.items()}
    if isinstance(edited, list):
        items = _originals(edited, original if isinstance(original, list) else [], names)
        return [
            unmasked(inner, item, names, f"{at}{place}.")
            for place, (inner, item) in enumerate(zip(edited, items, strict=True))
        ]
    return edited


def _unmasked_field(name: str, value: Any, before: dict[str, Any], names: Collection[str], at: str) -> Any:
    if name.lower() not in names or value != HIDDEN:
        return unmasked(value, before.get(name), names, f"{at}{name}.")
    if name not in before:
        raise ValueError(f"no {HIDDEN} in {at}{name}: it is not clear which masked value this is; write the value")
    return before[name]


def _originals(edited: list[Any], items: list[Any], names: Collection[str]) -> list[Any]:
    """The original of each edited item: that of its place if none seems to be added, removed or moved, else the one that looks
    the same with masks. None: it is not clear which."""
    looks, before = list(map(_look, edited)), [_look(masked(item, names)) for item in items]
    known = set(before)
    if len(looks) == len(before) and all(
        new == old or new not in known for new, old in zip(looks, before, strict=True)
    ):
        return items
    twins: dict[Any, list[Any]] = {look: [] for look in looks}
    for look, item in zip(before, items, strict=True):
        if look in twins:
            twins[look].append(item)
    for look, count in Counter(looks).items():
        them = twins[look]
        if count > len(them) or (count < len(them) and len(set(map(encode, them))) > 1):
            twins[look] = [None] * count
    given = {look: iter(them) for look, them in twins.items()}
    return [next(given[look]) for look in looks]


def _look(value: Any) -> Any:
    """The value as one that can be hashed."""
    if isinstance(value, dict):
        return frozenset((name, _look(inner)) for name, inner in value.items())
    return tuple(map(_look, value)) if isinstance(value, list) else value
