"""Three days of a shop: what the pages for analysts show. Facts, events and dead letters have fixed times, so all figures are
fixed too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.pipeline.conftest import Streams

BEGIN = datetime(2026, 11, 18, 8, tzinfo=UTC)
DAYS = ((20, 10), (30, 10), (45, 12))
"""How many messages each day has on each channel."""
CHANNELS = ("/orders/new", "/orders/paid")
KITCHEN, TILL, ARCHIVE = "client/kitchen/1", "client/till/1", "client/archive/1"
PATTERNS = {KITCHEN: "/orders/new", TILL: "/orders/*", ARCHIVE: "/orders/**"}
REJECTED: dict[tuple[int, str], tuple[int, str]] = {
    (0, TILL): (3, "user.update.error"),
    (1, TILL): (5, "user.update.error"),
    (1, KITCHEN): (1, "communication.timeout"),
    (2, KITCHEN): (2, "communication.timeout"),
}
"""How many messages a receiver rejects on a day, and with which code."""
LATENCIES = {"/orders/new": [0, 0, 90, 40, 20] + [0] * 4 + [1] + [0] * 8, "/orders/paid": [0, 60, 3] + [0] * 15}
"""Of the last day, by bucket."""


def fill(streams: Streams) -> None:
    """Write all of it."""
    for session, pattern in PATTERNS.items():
        streams.fact("subscribed", {"session": session, "patterns": [pattern], "from": 0}, _next(streams, BEGIN))
    letters: list[tuple[str, int]] = []
    for day in range(len(DAYS)):
        letters += list(_day(streams, day))
    _redriven(streams, [letter for letter in letters if _is_of_second_day(letter[0])][:5])


def _day(streams: Streams, day: int) -> Iterator[tuple[str, int]]:
    """Publish and acknowledge; yield the dead letters of the till, (place, log id). The archive leaves on the last day."""
    for channel, count in zip(CHANNELS, DAYS[day], strict=True):
        for number in range(count):
            at = BEGIN + timedelta(days=day, minutes=number, seconds=CHANNELS.index(channel))
            ms = round(at.timestamp() * 1000)
            log_id = ms * 1000
            streams.fact("published", {"first": log_id, "channels": [channel]}, _next(streams, at))
            receivers = [name for name in PATTERNS if name != KITCHEN or channel == CHANNELS[0]]
            for name in receivers:
                rejects, code = REJECTED.get((day, name), (0, ""))
                if name == ARCHIVE and day == 2 and number >= 10:
                    continue
                if channel == CHANNELS[0] and number < rejects:
                    place = _dead(streams, log_id, name, code, channel, ms)
                    if name == TILL:
                        yield place, log_id
                else:
                    _end(streams, log_id, name, "settled")
        event = {"type": "settled", "channel": channel, "count": sum(LATENCIES[channel]), "sum": 900}
        streams.group(
            [{**event, "buckets": LATENCIES[channel]}], _next(streams, BEGIN + timedelta(days=day, hours=1), "events")
        )


def _dead(streams: Streams, log_id: int, name: str, code: str, channel: str, ms: int) -> str:
    place = _end(streams, log_id, name, "dead", code=code)
    fields: dict[str, Any] = {
        "id": log_id, "received": ms * 1_000_000, "receiver": name, "code": code, "reason": "no price", "attempts": 1,
        "channel": channel, "body": '{"data":{"order":17}}', "sender": "client/shop/1", "qos": "", "p": 1,
    }  # fmt: skip
    return streams.add("dead", fields, place)


def _end(streams: Streams, log_id: int, name: str, reason: str, **more: str) -> str:
    ended = [{"session": name, "reason": reason, "ids": [log_id], **more}]
    at = datetime.fromtimestamp(log_id / 1_000_000 + 0.02, UTC)
    return streams.fact("ended", {"ended": ended}, _next(streams, at))


def _redriven(streams: Streams, letters: list[tuple[str, int]]) -> None:
    """Redrive dead letters of the second day on the third one: some are acknowledged, one dies again, one is pending."""
    at = BEGIN + timedelta(days=2, hours=2)
    for number, (place, log_id) in enumerate(letters):
        again = round(at.timestamp() * 1_000_000) + number
        streams.client.xdel(streams.keys.dead, place)
        fields = {"letter": place, "message": str(log_id), "id": again, "session": TILL, "code": "user.update.error"}
        streams.fact("redriven", fields, _next(streams, at))
        if number < 3:
            _end(streams, again, TILL, "settled")
        elif number == 3:
            _dead(streams, again, TILL, "user.update.error", CHANNELS[0], round(at.timestamp() * 1000))


def _is_of_second_day(place: str) -> bool:
    return datetime.fromtimestamp(int(place.partition("-")[0]) / 1000, UTC).day == (BEGIN + timedelta(days=1)).day


def _next(streams: Streams, at: datetime, stream: str = "facts") -> str:
    """Return a place at this time, or just after the newest entry."""
    newest = streams.client.xrevrange(f"{streams.keys.base}{stream}", count=1)
    ms, seq = (int(half) for half in newest[0][0].decode().split("-")) if newest else (0, 0)  # type: ignore[index,union-attr]
    wanted = round(at.timestamp() * 1000)
    return f"{wanted}-0" if wanted > ms else f"{ms}-{seq + 1}"
