"""Where a client's token comes from: the application gives it, or a function that is asked for another one in time.

A token that a function has returned is used until it is due, a little before it expires, or until the server refuses it. The
next one is asked for while the session continues with the last one.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from typing import Final

from crewel.bayeux.numbers import parse
from crewel.client.arguments import wrong_type
from crewel.client.callbacks import result_of
from crewel.client.errors import TokenUnavailableError, said
from crewel.client.threads import ProgramExit, in_thread

log = logging.getLogger("crewel.client")

TokenFunction = Callable[[], Awaitable[str | None] | str | None]
"""What returns a token, or None for none; it may be a coroutine function. Any other function is called in a thread."""

_EARLY: Final = 60.0
"""How many seconds before it expires a token is due, at most; one with a short life, when a quarter of it is left."""
_PAUSE: Final = 1.0
"""The shortest time between two questions for the next token, in seconds."""
_WAIT: Final = 1.0
"""For how many seconds a connect is held while the function is asked."""


def check_token(name: str, value: object) -> None:
    """Raises TypeError for what is neither a token nor a function that returns one."""
    if not isinstance(value, str) and not callable(value):
        raise wrong_type(name, value, "a string, or a function that returns one")


def expiry_of(token: str) -> float | None:
    """When a JSON Web Token expires, in seconds since 1970, as it says itself: that is a hint and nothing more, for only the
    server can verify it. None: it does not say."""
    _, *parts = token.split(".")
    if len(parts) != 2:
        return None
    try:
        claims = parse(base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
        return float(claims["exp"])
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


class Tokens:
    """The tokens of one client. Asking takes `limit` seconds at most."""

    def __init__(
        self,
        given: str | TokenFunction | None,
        limit: float,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._function = given if callable(given) else None
        self._token = None if callable(given) else given
        self._limit, self._clock, self._chance = limit, clock, chance
        self._is_known = self._function is None  # a token that the server has not refused; it may be none
        self._is_fresh = False  # the function has returned it for the last handshake
        self._expiry = self._due = math.inf
        self._has_failed = False  # the function, when it was last asked for the token after one that holds
        self._asking: asyncio.Task[None] | None = None
        self.is_renewed = False
        """Whether there is another token than that of the session, for a handshake that takes the session over."""

    async def take(self) -> str | None:
        """The token of a handshake. Raises TokenUnavailableError."""
        await self.stop()
        self._is_fresh = False
        now = self._clock()
        is_due = now >= self._due and not self.is_renewed
        if self._is_known and is_due and now < self._expiry:
            self._is_fresh = await self._ask_for_next()
        elif is_due or not self._is_known:
            self._keep(await self._ask())
            self._is_fresh = True
        self.is_renewed = False
        return self._token

    def refused(self) -> bool:
        """The server does not take the token. Whether asking may bring another: not if it has just been asked for."""
        if self._function is None:
            return False
        self._is_known = False
        return not self._is_fresh

    @property
    def may_change(self) -> bool:
        """Whether the next handshake may have another token."""
        return self._function is not None

    def renew(self) -> float:
        """Begin to ask for the next token if it is time to. Returns for how many seconds the session need not look again."""
        left = self._due - self._clock()
        if left > 0:
            return left
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_ahead(), name="crewel-client-token")
        return _WAIT

    async def stop(self) -> None:
        """Ask no more."""
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])

    async def _ask_ahead(self) -> None:
        before = self._token
        self.is_renewed = await self._ask_for_next() and self._token != before
        self._asking = None

    async def _ask_for_next(self) -> bool:
        """Ask for the token after one that holds. Whether the function has returned one; if it fails, the last one stays."""
        try:
            self._keep(await self._ask())
        except TokenUnavailableError as error:
            log.log(logging.INFO if self._has_failed else logging.WARNING, "%s: the last token stays in use", error)
            self._has_failed = True
            self._postpone()
            return False
        return True

    def _keep(self, token: str | None) -> None:
        self._token, self._is_known, self._has_failed = token, True, False
        expiry = None if token is None else expiry_of(token)
        self._expiry = math.inf if expiry is None else expiry
        self._postpone()

    def _postpone(self) -> None:
        """Decide when to ask next. Clients whose tokens were issued at one moment do not ask at one moment."""
        now = self._clock()
        left = self._expiry - now
        self._due = now + max(_PAUSE, left - min(_EARLY, left / 4) * (1 - self._chance() / 2))

    async def _ask(self) -> str | None:
        assert self._function is not None, "a token that was given is not asked for"
        limit = asyncio.timeout(self._limit)
        try:
            async with limit:
                token = await result_of(_call, self._function)
        except TokenUnavailableError:
            raise
        except (Exception, SystemExit, ProgramExit) as error:
            cause = error.error if isinstance(error, ProgramExit) else error
            why = f"took longer than {self._limit:g} s" if limit.expired() else f"failed: {said(cause)}"
            raise TokenUnavailableError(f"the function that gives the token {why}") from error
        if token is not None and not isinstance(token, str):
            raise TokenUnavailableError(
                f"the function that gives the token returned {type(token).__name__}, not a string"
            )
        return token


async def _call(function: TokenFunction) -> object:
    """What the function returns; one that is no coroutine function may wait for an answer, which must not stop the loop."""
    result = function() if inspect.iscoroutinefunction(function) else await in_thread(None, function)
    return await result if inspect.isawaitable(result) else result
