"""Small scripts of the tests' own, which are known as long as a test runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from crewel.storage.script_step import Script, Step, scripts

TEXTS = {
    "test_count": b"#!lua\nreturn redis.call('INCR', KEYS[1])",
    "test_fill": b"#!lua\nreturn redis.call('RPUSH', KEYS[1], ARGV[1])",
    "test_relieve": b"#!lua flags=allow-oom\nreturn redis.call('RPUSH', KEYS[1], ARGV[1])",
    "test_fail": b"#!lua\nreturn redis.call('INCR', KEYS[1], 'one too many')",
    "test_slow": b"#!lua\nlocal last = redis.call('TIME')[1] + ARGV[1]\n"
    b"while tonumber(redis.call('TIME')[1]) < last do end\nreturn 1",
}


@contextmanager
def known() -> Iterator[None]:
    """Make the scripts of the tests known beside the real ones."""
    table = scripts()
    for name, text in TEXTS.items():
        table[name] = Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
    yield
    for name in TEXTS:
        del table[name]


def count(key: str, parse: Callable[[Any], Any] = int) -> Step[Any]:
    """Count one up and return the count."""
    return Step("test_count", (key,), (), parse)


def fill(key: str, size: int, *, relieving: bool = False) -> Step[int]:
    """Put `size` bytes into a list; refused when the store is full, unless they relieve it."""
    return Step("test_relieve" if relieving else "test_fill", (key,), (b"x" * size,), int)
