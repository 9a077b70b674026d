"""Writes what a job of Spark has found out into the store, each batch once.

Spark repeats a batch after a crash, also one whose commands had been done. So the store keeps a ledger, the number of the
newest batch by job, and a batch goes there in one atomic step with its number. Numbers begin again with each checkpoint: a job
is to have another name then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import redis

from crewel.errors import StoreError
from crewel.pipeline.connection import PATIENCE_S, Address, is_away, patiently
from crewel.pipeline.steps import run

Command = tuple[str | bytes | int, ...]
"""The words of one command of the store: `("HSET", key, field, value)`."""

COMMANDS: Final = frozenset({"DEL", "EXPIRE", "HDEL", "HINCRBY", "HSET", "INCRBY", "SET", "XADD", "ZADD", "ZREM"})
"""What may be asked for: commands of one key, which is their second word."""

MOST_WORDS: Final = 7_000
"""Most words of one command: the script unpacks them, and `unpack` of Lua has a limit near 8,000."""

MOST_COMMANDS: Final = 50_000
"""Most commands of one batch: no one else is served meanwhile. Figures, not messages, are written here."""


class Sink:
    """One job's way into the store. It writes under `pipeline:` only."""

    def __init__(self, address: Address, job: str, patience_s: float = PATIENCE_S) -> None:
        """`job` names the job together with its checkpoint, such as `live.3`."""
        self._address = address
        self._job = job
        self._patience_s = patience_s

    def write(self, batch: int, commands: Iterable[Command]) -> bool:
        """Do the commands of a batch, all or none; return whether they were done now, and not before.

        Raises StoreUnavailable, ValueError for what must not be written, and StoreError for what the store refuses: then
        none of it counts, but for what came before the command that was refused.
        """
        asked = self._checked(commands)
        keys = [self._address.keys.ledger, *dict.fromkeys(str(command[1]) for command in asked)]
        words = [word for command in asked for word in (len(command), *command)]

        def step() -> bool:
            # A client of its own: batches are rare, and where a sink is pickled there is nothing to take along.
            with self._address.client() as client:
                try:
                    return bool(run(client, "apply", keys, [self._job, batch, *words]))
                except redis.ResponseError as error:
                    if is_away(error):
                        raise
                    raise StoreError(f"the store refuses batch {batch} of {self._job}: {error}") from error

        return patiently(step, self._patience_s)

    def _checked(self, commands: Iterable[Command]) -> Sequence[Command]:
        asked = list(commands)
        own = f"{self._address.keys.base}pipeline:"
        for command in asked:
            if command[0] not in COMMANDS or len(command) < 2:
                raise ValueError(f"{command[0]!r}: not among the commands of the sink")
            key = command[1]
            if not isinstance(key, str) or not key.startswith(own):
                raise ValueError(f"{key!r}: the sink does not write this key")
            if len(command) > MOST_WORDS:
                raise ValueError(f"{command[0]}: {len(command)} words in one command; at most {MOST_WORDS} may be")
        if len(asked) > MOST_COMMANDS:
            raise ValueError(f"{len(asked)} commands in one batch; at most {MOST_COMMANDS} may be")
        return asked
