"""The trace of one session: its messages as they pass, for a while, without its secrets.

A session that is traced has a part more, which sees its messages; all others cost nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from time import time
from typing import Any, Final

import orjson

from crewel.bayeux.message import Fields, Message
from crewel.bayeux.numbers import ExactNumber, fragment
from crewel.broker.session import Session, SessionPart
from crewel.delivery.entry import Entry
from crewel.security.masks import masked, masked_message

MOST_WAITING: Final = 1000
"""Records that wait for a reader at most; what is beyond is counted."""
_SECRETS: Final = frozenset(("clientid", "resume", "token", "secret", "cookie", "authentication", "replyid"))
"""Fields that are left out at any depth: they are enough to take over the session."""
_SILENCE_S: Final = 5.0
"""After so long without a record an empty line is sent, so that all between see that the answer lives."""


def _shown(value: Any) -> Any:
    return fragment(value) if type(value) is ExactNumber else str(value)


class TracePart(SessionPart):
    """Notes what passes."""

    def __init__(self, masks: Collection[str]) -> None:
        self._masks = masks
        self.records: asyncio.Queue[bytes] = asyncio.Queue(MOST_WAITING)
        self.lost = 0

    def rcv(self, session: Session, message: Message) -> bool:
        """A publish comes in."""
        self._note("in", message.fields)
        return True

    def rcv_meta(self, session: Session, message: Message) -> bool:
        """A meta message comes in."""
        self._note("in", message.fields)
        return True

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """Messages go out."""
        for entry in entries:
            self._note("out", entry.fields)
        return entries

    def send_meta(self, session: Session, reply: Fields, message: Message) -> bool:
        """A reply goes out."""
        self._note("out", reply)
        return True

    def _note(self, way: str, fields: Fields) -> None:
        shown = masked_message(masked(fields, _SECRETS), self._masks)
        record: dict[str, Any] = {"at": int(time() * 1000), "way": way, "message": shown}
        if self.lost:
            record["lost"] = self.lost
        try:
            self.records.put_nowait(orjson.dumps(record, default=_shown) + b"\n")
        except asyncio.QueueFull:
            self.lost += 1
        else:
            self.lost = 0


async def trace(session: Session, seconds: float, masks: Collection[str]) -> AsyncGenerator[bytes, None]:
    """Lines of JSON, one a message, until the time has passed, the session has ended, or the reader leaves."""
    part, loop = TracePart(masks), asyncio.get_running_loop()
    until = loop.time() + seconds
    session.add_part(part)
    try:
        # No time-out around a yield: it would strike the reader, who may be writing just then.
        while (left := until - loop.time()) > 0 and (session.is_live or not part.records.empty()):
            try:
                async with asyncio.timeout(min(left, _SILENCE_S)):
                    line = await part.records.get()
            except TimeoutError:
                line = b"\n"
            yield line
    finally:
        session.remove_part(part)
