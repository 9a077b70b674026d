"""One atomic step of the store: a script with its keys and arguments, and how to read its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Step(NamedTuple, Generic[T]):
    """A call of one script. It is done as a whole or not at all; `Store.run` does several in the order given."""

    script: str
    """Name of the file in storage/scripts, less `.lua`."""
    keys: tuple[str, ...]
    arguments: tuple[bytes | str | int, ...]
    parse: Callable[[Any], T]
    """Turns the store's answer into the step's result; may raise a StoreError such as Fenced or Behind."""
    appends: bool = False
    """Whether it puts publishes into the log, which `storage.replicas` copies are waited for."""
