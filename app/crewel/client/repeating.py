"""Publishing again, under one key, until the server has answered: what a repeat may follow, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import random
from typing import Final, TypeVar

from crewel.client.backoff import Backoff, BackoffRule
from crewel.client.errors import (
    ClientError,
    MessageTooLargeError,
    NotConnectedError,
    NotStored,
    PublishRefused,
    RequestTimeoutError,
    TransportError,
)
from crewel.client.subscriber import UNKNOWN_SESSION

LONGEST_S: Final = 100.0
"""How long a publish may be tried again: servers keep a key for 120 s, and the last attempt may take a while."""
PAUSES: Final = BackoffRule(initial=0.1, factor=2.0, maximum=2.0)
"""Between two attempts."""

T = TypeVar("T")


def checked(retry_for: float) -> float:
    """`retry_for`, in seconds. Raises ValueError beyond the time for which a key is good."""
    if not 0 <= retry_for <= LONGEST_S:
        raise ValueError(
            f"retry_for is 0 to {LONGEST_S:g} seconds, for servers forget a key after 120, not {retry_for:g}"
        )
    return retry_for


async def repeated(attempt: Callable[[], Awaitable[T]], retry_for: float) -> T:
    """What the first successful attempt returns. Raises the last failure when `retry_for` seconds have passed, and at once
    what no repeat can mend."""
    loop = asyncio.get_running_loop()
    deadline, pauses = loop.time() + retry_for, Backoff(PAUSES, random)
    failure: ClientError | None = None
    try:
        async with asyncio.timeout_at(deadline):
            while True:
                try:
                    return await attempt()
                except (TransportError, NotConnectedError, PublishRefused) as error:
                    if not _may_be_repeated(error):
                        raise
                    failure = error
                await asyncio.sleep(pauses.failed())
    except TimeoutError:
        raise failure or RequestTimeoutError(f"no answer within {retry_for:g} s") from None


def _may_be_repeated(error: ClientError) -> bool:
    """Whether it has not been stored, or the outcome is unknown. After a lost session the client makes another."""
    if isinstance(error, MessageTooLargeError):
        return False
    return not isinstance(error, PublishRefused) or isinstance(error, NotStored) or error.code in UNKNOWN_SESSION
