"""Time synchronisation: clients learn the server's clock and the lag of the network.

The browser half is the official client's `TimeSyncExtension`. Each meta message carries the client's time `tc`, its idea of the
lag `l` and of the offset `o`. The reply tells the server's time on receipt `ts`, how long the request was held `p`, and how
wrong the client's idea was `a`. All are milliseconds.
"""

from __future__ import annotations

import time
from typing import Any

from crewel.bayeux.message import Fields, Message
from crewel.broker.session import Session
from crewel.extension import Extension

ACCURACY_TARGET = 25
"""A client whose idea of the time is closer than this (ms) is left alone."""

_RECEIVED = " ts"  # beside the client's own numbers; a name that no client sends


class TimesyncExtension(Extension):
    """Answers `ext.timesync`. The lag that a client reports is the session attribute `lag`."""

    name = field = "timesync"

    def rcv_meta(self, session: Session | None, message: Message) -> bool:
        """Note when the message came."""
        asked = message.ext.get("timesync")
        if isinstance(asked, dict) and _is_number(asked.get("tc")):
            asked[_RECEIVED] = _now()
            if session is not None and _is_number(asked.get("l")):
                session.attributes["lag"] = asked["l"]
        return True

    def send_meta(self, session: Session | None, reply: Fields, message: Message) -> bool:
        """Tell the times, if the client does not know them well enough yet."""
        asked = message.ext.get("timesync")
        if not isinstance(asked, dict) or _RECEIVED not in asked:
            return True
        received = asked[_RECEIVED]
        answer: dict[str, Any] = {"tc": asked["tc"], "ts": received, "p": _now() - received}
        lag, offset = asked.get("l"), asked.get("o")
        if _is_number(lag) and _is_number(offset):
            accuracy = int(asked["tc"] + offset + lag - received)
            if lag != 0 and abs(accuracy) < ACCURACY_TARGET:
                return True
            answer["a"] = accuracy
        reply.setdefault("ext", {})["timesync"] = answer
        return True


def _now() -> int:
    return time.time_ns() // 1_000_000


def _is_number(value: object) -> bool:
    # Beyond this no double is exact: not a time, and sums of such numbers need not even be finite.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53
