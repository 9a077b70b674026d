"""What `bench/concepts.py` counts is there, and nothing of the same name."""

from __future__ import annotations

from pathlib import Path

from bench.concepts import hooks, thin_protocols

PLANTED = '''
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Hook(Protocol):
    def __call__(self) -> None: ...


class Part:
    def __init__(self, given: Callable[[], None]) -> None:
        self.hook: Callable[[], None] | None = None
        self.given = given
        self.many: dict[str, Callable[[], None]] = {}
        self.typed: Hook = given
        self.hook = given

    def method(self) -> None: ...


@dataclass
class Value:
    """Attributes of the same names that are plain values."""

    hook: int = 3
    given: str = ""

    @property
    def many(self) -> int:
        return self.hook

    @many.setter
    def many(self, value: int) -> None:
        self.hook = value


def assign(value: Value, run: Callable[[], None], unknown: Any, parts: list[Part]) -> None:
    value.hook, value.given = 4, "new"
    value.many = 5
    Part(run).hook = run
    parts[0].given = run
    parts[0].many = {}
    parts[0].typed = run
    for each in parts:
        each.method, value.hook = run, 5
    unknown.hook = run
'''


def test_hooks_are_found_by_their_types_and_not_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("")
    (tmp_path / "planted" / "parts.py").write_text(PLANTED)
    found = [place.rpartition(" ")[2] for place in hooks(tmp_path)]
    assert sorted(found) == ["each.method", "unknown.hook", "….given", "….hook", "….many", "….typed"]


PLANTED_PROTOCOLS = """
from typing import Protocol


class Thin(Protocol):
    size: int

    def run(self) -> int: ...


class OfTwo(Protocol):
    def stop(self) -> None: ...


class ForTwo(Protocol):
    def start(self) -> None: ...


class OfNone(Protocol):
    def leave(self) -> None: ...


class Engine:
    def __init__(self) -> None:
        self.size = 3

    def run(self) -> int:
        return self.size

    def stop(self) -> None: ...

    def start(self) -> None: ...


class Other:
    def stop(self) -> None: ...


class User:
    def __init__(self, thin: Thin, of_two: OfTwo, for_two: ForTwo, of_none: OfNone) -> None:
        self._thin, self._of_two, self._for_two, self._of_none = thin, of_two, for_two, of_none

    def use(self) -> int:
        self._of_two.stop()
        self._for_two.start()
        self._of_none.leave()
        return self._thin.run()


def start(each: ForTwo) -> None:
    each.start()


def pass_on(thin: Thin) -> User | None:
    return None if thin is None else User(thin, Other(), Engine(), thin)  # type: ignore[arg-type]
"""


def test_protocols_of_one_class_for_one_user_are_found(tmp_path: Path) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "__init__.py").write_text("")
    (tmp_path / "planted" / "parts.py").write_text(PLANTED_PROTOCOLS)
    assert thin_protocols(tmp_path) == ["parts.py:5 Thin of Engine for planted.parts.User"]
