"""A webhook, for dead letters or for notices of the feed: JSON lists POSTed to one address, each tried several times."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from crewel.bayeux.codec import encode
from crewel.metrics import Metrics

log = logging.getLogger(__name__)

ATTEMPTS: Final = 6
_FIRST_PAUSE_S: Final = (
    0.5  # doubled after each attempt: all of them take about a quarter of a minute and the time-outs
)
_MOST_BYTES: Final = 1_048_576
_MAY_PASS: Final = frozenset((408, 425, 429))  # as does what is a fault of the server


@dataclass(eq=False)
class Webhook:
    """One address that is notified."""

    _address: str
    _token: str | None
    """A bearer token; None if it asks for none."""
    _timeout_s: Callable[[], float]
    """Seconds that one attempt may take."""
    _metrics: Metrics
    _http: ClientSession | None = field(default=None, init=False)

    async def post(self, told: Sequence[Any]) -> int:
        """POST these as JSON lists, and try again what fails, up to `ATTEMPTS` times; returns how many were taken. Raises
        nothing."""
        taken = 0
        for portion in _portions([encode(each) for each in told]):
            if await self._retry(b"[" + b",".join(portion) + b"]"):
                taken += len(portion)
        return taken

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()

    async def _retry(self, body: bytes) -> bool:
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1))
            failure = await self._try(body)
            if failure is None:
                return True
            self._metrics.webhook_failures += 1
            why, may_pass = failure
            log.warning("the webhook failed: %s", why)  # the address may hold a secret
            if not may_pass:
                break
        return False

    async def _try(self, body: bytes) -> tuple[str, bool] | None:
        """Why it failed, and whether another attempt may help; None if it is done."""
        limit = ClientTimeout(total=self._timeout_s())
        headers = {"Content-Type": "application/json", "User-Agent": "Crewel"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            # A redirection is none of ours: it might take the token elsewhere.
            async with self._opened().post(
                self._address, data=body, headers=headers, allow_redirects=False, timeout=limit
            ) as response:
                status = response.status
        except (ClientError, OSError, TimeoutError) as error:
            return type(error).__name__, True
        if 200 <= status < 300:
            return None
        return f"it answered {status}", status >= 500 or status in _MAY_PASS

    def _opened(self) -> ClientSession:
        if self._http is None:
            self._http = ClientSession()
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
