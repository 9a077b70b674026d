"""Which receivers reject messages: since when, how many, of which channels, with which codes; and how many they take meanwhile.

A record begins with a rejection. What receivers take is counted only while there is a record (`follow`), so a server whose
receivers reject nothing spends nothing on it. Channels are counted apart: an operator of some channels sees what is of these.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from crewel.broker.session import Session
    from crewel.delivery.entry import Entry

MOST_RECEIVERS: Final = 2000
"""Receivers that are remembered; of more, those that rejected something least recently are forgotten."""
MOST_CHANNELS: Final = 50
"""Channels of one receiver."""
_MOST_CODES: Final = 10
NEWEST: Final = 20
"""Rejected messages of one channel whose ids are kept."""
CURED: Final = 20
"""A receiver that takes so many messages of a channel in a row rejects them no more."""
_REDRIVEN: Final = 3
"""One that takes so many redriven messages, or as many as it has rejected, and rejects none since, is cured as well."""
QUIET_MS: Final = 600_000
"""One that has taken a message since its last rejection rejects no more after this time."""


class Rejected(NamedTuple):
    """What one receiver has rejected. Times are milliseconds since 1970."""

    since: int
    at: int
    """When it rejected the last message."""
    rejected: int
    taken: int
    """Messages that it has taken since."""
    code: str
    """The most frequent one."""
    reason: str
    """The last one with this code."""
    codes: int
    """How many codes there were."""
    channels: tuple[str, ...]
    """Those of the rejected messages."""
    whole: tuple[str, ...] = ()
    """Those of which it has taken nothing since it rejects their messages."""
    whole_rejected: int = 0
    """Rejected messages of these."""
    ids: tuple[str, ...] = ()
    """Ids of the newest rejected messages."""
    is_part: bool = False
    """Whether this is of some channels only: those that an operator sees."""


@dataclass(slots=True)
class _Channel:
    since: int
    at: int
    rejected: int = 0
    taken: int = 0
    in_row: int = 0
    """Messages taken since the last rejection."""
    redriven: int = 0
    """Those of them that were redriven."""
    codes: dict[str, tuple[int, str]] = field(default_factory=dict)
    """How often, and the last reason, by code."""
    ids: deque[str] = field(default_factory=lambda: deque(maxlen=NEWEST))

    def is_over(self, now: int) -> bool:
        is_cured = self.in_row >= CURED or self.redriven >= min(self.rejected, _REDRIVEN)
        return is_cured or (self.in_row > 0 and now - self.at > QUIET_MS)


@dataclass(slots=True)
class _Record:
    channels: dict[str, _Channel] = field(default_factory=dict)
    taken: int = 0
    """Messages taken of other channels."""


class Rejections:
    """Those of one server. `clock` tells seconds since 1970."""

    def __init__(self, follow: Callable[[bool], None], clock: Callable[[], float] = time) -> None:
        """`follow` is called with True when `settled` has to learn what receivers take, and with False when it need not."""
        self._follow, self._clock = follow, clock
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._records

    @property
    def names(self) -> list[str]:
        """The receivers that reject messages, or did lately."""
        return list(self._records)

    def _now(self) -> int:
        return int(self._clock() * 1000)

    # What happens

    def add(self, name: str, channel: str, message_id: str, code: str, reason: str) -> None:
        """This receiver has rejected a message."""
        if not self._records:
            self._follow(True)
        now, record = self._now(), self._records.setdefault(name, _Record())
        self._records.move_to_end(name)
        if len(self._records) > MOST_RECEIVERS:
            self._records.popitem(last=False)
        known = record.channels.pop(channel, None)
        if known is None or known.is_over(now):
            known = _Channel(now, now)
        record.channels[channel] = known  # the last: the first one has rejected nothing for longest
        if len(record.channels) > MOST_CHANNELS:
            del record.channels[next(iter(record.channels))]
        known.at, known.rejected, known.in_row, known.redriven = now, known.rejected + 1, 0, 0
        if code in known.codes or len(known.codes) < _MOST_CODES:
            known.codes[code] = known.codes.get(code, (0, ""))[0] + 1, reason
        if message_id:
            known.ids.append(message_id)

    def settled(self, session: Session, entries: Iterable[Entry], code: str) -> None:
        """A session has taken these messages; with a code, it has not."""
        record = self._records.get(session.name)
        if record is None or code:
            return
        for entry in entries:
            known = record.channels.get(entry.channel)
            if known is None:
                record.taken += 1
            else:
                known.taken, known.in_row = known.taken + 1, known.in_row + 1
                known.redriven += entry.origin is not None and bool(entry.origin.redrive_of)

    def forget(self, name: str) -> None:
        """The session of this name has ended."""
        if self._records.pop(name, None) is not None and not self._records:
            self._follow(False)

    def tidy(self) -> None:
        """Forget what has ended."""
        now = self._now()
        for name, record in list(self._records.items()):
            if all(each.is_over(now) for each in record.channels.values()):
                self.forget(name)

    # What is known

    def of(self, name: str, covers: Callable[[str], bool] | None = None) -> Rejected | None:
        """What the receiver has rejected, None if nothing, or if that has ended. With `covers`, which says whether a reader
        sees a channel: of these channels only, and what it took of others does not count."""
        record = self._records.get(name)
        if record is None:
            return None
        now = self._now()
        found = {
            channel: each
            for channel, each in record.channels.items()
            if not each.is_over(now) and (covers is None or covers(channel))
        }
        return None if not found else _summed(found, record.taken if covers is None else 0, covers is not None)


def _summed(found: dict[str, _Channel], taken_elsewhere: int, is_part: bool) -> Rejected:
    codes: dict[str, tuple[int, str]] = {}
    for each in found.values():
        for code, (count, reason) in each.codes.items():
            codes[code] = codes.get(code, (0, ""))[0] + count, reason
    code = max(codes, key=lambda each: codes[each][0])
    whole = {channel: each for channel, each in found.items() if not each.taken}
    return Rejected(
        since=min(each.since for each in found.values()),
        at=max(each.at for each in found.values()),
        rejected=sum(each.rejected for each in found.values()),
        taken=sum(each.taken for each in found.values()) + taken_elsewhere,
        code=code,
        reason=codes[code][1],
        codes=len(codes),
        channels=tuple(found),
        whole=tuple(whole),
        whole_rejected=sum(each.rejected for each in whole.values()),
        ids=tuple(each for one in found.values() for each in one.ids)[-NEWEST:],
        is_part=is_part,
    )
