"""How many frames without a message one WebSocket may send: pings, pongs, small fragments, and texts with no message in them.

A client that keeps its connection alive sends one every few seconds. Each has a cost, and no other limit counts them.
"""

from __future__ import annotations

import asyncio
from typing import Final

from crewel.limits import Bucket, Rate
from crewel.metrics import Metrics
from crewel.settings.access import Limits

TOO_MANY: Final = "too many frames without a message (limits.control_frames_per_s)"


class ControlFrames:
    """The limit of the sockets of one server. A socket has a bucket from its first frame without a message on."""

    def __init__(self, settings: Limits, metrics: Metrics, loop: asyncio.AbstractEventLoop) -> None:
        self._settings = settings
        self._metrics = metrics
        self._loop = loop

    def bucket(self) -> Bucket:
        """The bucket of another socket."""
        return Bucket(self._rate, self._loop.time())

    def are_too_many(self, bucket: Bucket, count: int) -> bool:
        """Whether so many more are beyond the limit: then the socket has to be closed, and is counted as refused."""
        rate = self._rate
        if not rate.per_s or not bucket.take(rate, count, self._loop.time()):
            return False
        self._metrics.limited["control_frames_per_s"] += 1
        return True

    @property
    def _rate(self) -> Rate:
        return Rate(self._settings.control_frames_per_s, self._settings.control_frames_burst)
