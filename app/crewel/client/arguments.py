"""What an application gives to the client, checked at the call. A wrong type that is found later ends a session in the first
outage, far from the line that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from inspect import iscoroutinefunction
from os import PathLike
from typing import Any, Final

_SECRETS: Final = frozenset({"token", "resume", "proxy"})


def check_kind(name: str, value: object, expected: str, *kinds: type) -> None:
    """Raises TypeError, which names the argument and what was expected, for a value of another type. True is no number."""
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise wrong_type(name, value, expected)


def wrong_type(name: str, value: object, expected: str, verb: str = "is") -> TypeError:
    """The error for this argument; it does not say a secret."""
    shown = type(value).__name__ if name in _SECRETS else f"{value!r:.200}"
    return TypeError(f"{name} {verb} {expected}, not {shown}")


def check_function(name: str, value: object) -> None:
    """Raises TypeError for what cannot be called."""
    if not callable(value):
        raise wrong_type(name, value, "a function")


def check_plain_function(name: str, value: object) -> None:
    """Raises TypeError for what cannot be called, and for a coroutine function: no code awaits what it returns."""
    check_function(name, value)
    if iscoroutinefunction(value):
        raise TypeError(f"{name} is a plain function, not a coroutine function")


def check_text(name: str, value: object) -> None:
    """Raises TypeError for anything but a string."""
    check_kind(name, value, "a string", str)


def check_path(name: str, value: object) -> None:
    """Raises TypeError for what is not the path of a file."""
    check_kind(name, value, "a path", str, PathLike)


def check_number(name: str, value: object) -> None:
    """Raises TypeError for anything but a number."""
    check_kind(name, value, "a number", int, float)


def check_time(name: str, value: object) -> None:
    """Raises TypeError for anything but a number of seconds."""
    check_kind(name, value, "a number of seconds", int, float)


def check_whole(name: str, value: object) -> None:
    """Raises TypeError for anything but a whole number."""
    check_kind(name, value, "a whole number", int)


def check_count(name: str, value: object) -> None:
    """Raises ValueError, which names the argument, for anything but a whole number from 1."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} is a whole number from 1, not {value!r}")


def check_seconds(name: str, value: float) -> None:
    """Raises ValueError, which names the argument, for anything but a number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise ValueError(f"{name} is a number of seconds from 0, not {value!r}")


def check_wait(name: str, value: object) -> None:
    """Raises TypeError for anything but a number of seconds, and ValueError for a negative one."""
    check_time(name, value)
    if not float(value) >= 0:  # type: ignore[arg-type] # which NaN is not
        raise ValueError(f"{name} is a number of seconds from 0, not {value!r}")


def check_fields(name: str, value: object) -> None:
    """Raises TypeError for anything but a dict."""
    check_kind(name, value, "a dict", Mapping)


def check_texts(name: str, value: object) -> None:
    """Raises TypeError for anything but a dict of strings."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for item in value.items() for each in item):
        raise wrong_type(name, value, "a dict of strings")


def check_methods(name: str, value: object, expected: str, *methods: str, verb: str = "is") -> None:
    """Raises TypeError for what is not an object with these methods; a class is none."""
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise wrong_type(name, value, expected, verb)


def check_names(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError, which names the function and the nearest argument, for an argument that it does not have."""
    known = list(known)
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise TypeError(f"{function}() has no argument {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))


def items(name: str, value: Any, expected: str) -> tuple[Any, ...]:
    """The items of a list or of another iterable. Raises TypeError for what is none, and for a string."""
    if isinstance(value, str):
        raise TypeError(f"{name} is {expected}, not the string {value!r}")
    try:
        return tuple(value)
    except TypeError:
        raise wrong_type(name, value, expected) from None
