"""Masks: fields of message bodies that operators do not see, by their names (`admin.mask`).

A name counts at any depth and in any case. What the server itself says of a message is never masked, only what its publisher
wrote: data, client properties, and further fields of `ext`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

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


def unmasked(edited: Any, original: Any, names: Collection[str]) -> Any:
    """What an operator made of a value that was shown with masks: each `***` in a field of one of these names is what the
    original has at its place. Raises ValueError for one that has no original."""
    if isinstance(edited, dict):
        before = original if isinstance(original, dict) else {}
        return {name: _unmasked_field(name, inner, before, names) for name, inner in edited.items()}
    if isinstance(edited, list):
        items = original if isinstance(original, list) else []
        return [unmasked(inner, items[at] if at < len(items) else None, names) for at, inner in enumerate(edited)]
    return edited


def _unmasked_field(name: str, value: Any, before: dict[str, Any], names: Collection[str]) -> Any:
    if name.lower() not in names or value != HIDDEN:
        return unmasked(value, before.get(name), names)
    if name not in before:
        raise ValueError(f"no {HIDDEN} in {name}: there is no masked value at this place of the original")
    return before[name]
