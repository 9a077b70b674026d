"""The webhook: dead letters, POSTed to somebody's HTTP server as JSON (`delivery.dead_letter_webhook`).

It is told at least once what it takes in time. Letters that it does not take after some attempts are counted and left to the
store, so that a receiver that is broken holds nothing up for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from crewel.bayeux.codec import encode
from crewel.broker.letters.dead_letter import DeadLetter
from crewel.metrics import Metrics

if TYPE_CHECKING:
    from crewel.settings.storage import Delivery

log = logging.getLogger(__name__)

ATTEMPTS: Final = 6
_FIRST_PAUSE_S: Final = (
    0.5  # doubled after each attempt: all of them take about a quarter of a minute and the time-outs
)
_MOST_BYTES: Final = 1_048_576
_MAY_PASS: Final = frozenset((408, 425, 429))  # as does what is a fault of the server


class Webhook:
    """One address that is told."""

    def __init__(self, address: str, settings: Delivery, metrics: Metrics) -> None:
        self._address = address
        self._settings = settings
        self._metrics = metrics
        self._http: ClientSession | None = None

    async def post(self, letters: list[DeadLetter]) -> None:
        """Tell these letters, and try again what fails, up to `ATTEMPTS` times. Raises nothing."""
        for told in _portions([encode(letter.as_json()) for letter in letters]):
            if await self._insist(b"[" + b",".join(told) + b"]"):
                self._metrics.letters_posted += len(told)
            else:
                self._metrics.letters_not_posted += len(told)

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def _insist(self, body: bytes) -> bool:
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
            failure = await self._try(body)
            if failure is None:
                return True
            self._metrics.webhook_failures += 1
            why, may_pass = failure
            log.warning("the webhook of dead letters failed: %s", why)  # the address may hold a secret
            if not may_pass:
                break
        return False

    async def _try(self, body: bytes) -> tuple[str, bool] | None:
        """Why it failed, and whether another attempt may help; None if it is done."""
        headers = {"Content-Type": "application/json", "User-Agent": "Crewel"}
        if self._settings.dead_letter_webhook_token:
            headers["Authorization"] = f"Bearer {self._settings.dead_letter_webhook_token}"
        try:
            # A redirection is none of ours: it might take the token elsewhere.
            async with self._opened().post(
                self._address, data=body, headers=headers, allow_redirects=False
            ) as response:
                status = response.status
        except (ClientError, OSError, TimeoutError) as error:
            return type(error).__name__, True
        if 200 <= status < 300:
            return None
        return f"it answered {status}", status >= 500 or status in _MAY_PASS

    def _opened(self) -> ClientSession:
        if self._http is None:
            limit = self._settings.dead_letter_webhook_timeout_ms / 1000
            self._http = ClientSession(timeout=ClientTimeout(total=limit))
        return self._http


def _portions(encoded: list[bytes]) -> Iterator[list[bytes]]:
    """As many at a time as make a body of a size that receivers take; at least one."""
    portion: list[bytes] = []
    size = 0
    for each in encoded:
        if portion and size + len(each) > _MOST_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += len(each) + 1
    if portion:
        yield portion
