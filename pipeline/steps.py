"""The atomic steps that the pipeline asks of the store, one Lua file each. The store learns each when it does not know it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import redis

_DIRECTORY = Path(__file__).parent / "scripts"


def run(client: redis.Redis, name: str, keys: Sequence[str], arguments: Sequence[str | bytes | int] = ()) -> Any:
    """Run a script and return its answer. Raises what the client library raises."""
    return client.register_script(_script(name))(keys, arguments)


@cache
def _script(name: str) -> str:
    return (_DIRECTORY / f"{name}.lua").read_text("utf-8")
