"""The logins that were refused lately: by the name that they asked for, and by cause.

A client with a wrong token can ask for any name: what is noted here says what came, and from where, not whose fault it is. A
login for the name of a session is handled at the node that has the session, so that node knows of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from time import time
from typing import Final

from crewel.bayeux.message import Message
from crewel.bayeux.replies import Reply
from crewel.broker.exchange import Peer
from crewel.broker.refusals import requested_name

MOST_NAMES: Final = 1000
"""Names whose refused logins are remembered; of more, those that were refused least recently are forgotten."""
MOST_CAUSES: Final = 20
"""Causes that are counted apart until they are taken; further ones count as `other`."""
_SHOWN: Final = 200
"""Characters of what is kept: strangers choose them."""
_OTHER: Final = "other"


@dataclass(slots=True)
class RefusedLogins:
    """Logins that were refused one after the other, for one name or for one cause."""

    code: str
    """Of the last one: a dotted code, or the error of the reply."""
    reason: str
    """What the reply said beside the code; may be empty."""
    name: str
    """The name that it asked for; empty if it asked for none."""
    address: str
    """Where it came from; empty if that is not known."""
    since: int
    """When the first one came: milliseconds since 1970."""
    at: int
    """When the last one came."""
    count: int = 1


class LoginRefusals:
    """Those of one server. `clock` tells seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self._by_name: OrderedDict[str, RefusedLogins] = OrderedDict()
        self._by_cause: dict[str, RefusedLogins] = {}
        self.on_refused: list[Callable[[RefusedLogins], None]] = []
        """Called with each refused login that asked for a name."""

    def note(self, peer: Peer | None, message: Message, reply: Reply) -> None:
        """A handshake is refused for good, with this reply."""
        code, reason = _cause(message, reply)
        name = requested_name(message.ext.get("session"))[:_SHOWN]
        address = (peer.remote if peer is not None else None) or ""
        now = int(self._clock() * 1000)
        if name:
            self._note(self._by_name, name, RefusedLogins(code, reason, name, address, now, now))
            self._by_name.move_to_end(name)
            if len(self._by_name) > MOST_NAMES:
                self._by_name.popitem(last=False)
            for follow in self.on_refused:
                follow(self._by_name[name])
        cause = code if code in self._by_cause or len(self._by_cause) < MOST_CAUSES else _OTHER
        self._note(self._by_cause, cause, RefusedLogins(cause, reason, name, address, now, now))

    @staticmethod
    def _note(known: dict[str, RefusedLogins], key: str, new: RefusedLogins) -> None:
        before = known.get(key)
        if before is not None:
            new.since, new.count = before.since, before.count + 1
        known[key] = new

    def granted(self, name: str) -> None:
        """A login of this name was granted: the ones before it matter no more."""
        if self._by_name:
            self._by_name.pop(name, None)

    def of(self, name: str) -> RefusedLogins | None:
        """The logins of this name that were refused since the last one that was granted."""
        return self._by_name.get(name)

    @property
    def causes(self) -> list[RefusedLogins]:
        """What was refused since `take_causes` was called last, by cause."""
        return list(self._by_cause.values())

    def take_causes(self) -> list[RefusedLogins]:
        """What was refused since the last call, by cause."""
        taken, self._by_cause = self.causes, {}
        return taken


def _cause(message: Message, reply: Reply) -> tuple[str, str]:
    """The code of a refusal and what it says beside it. A client without `ext.session` gets no more than the error, whose last
    part is the code or a text."""
    told = reply.get("ext")
    said = told.get("session") if isinstance(told, dict) and "session" in message.ext else None
    if isinstance(said, dict) and said.get("errorCode"):
        return str(said["errorCode"])[:_SHOWN], str(said.get("message", ""))[:_SHOWN]
    error = str(reply.get("error", ""))
    return error.rpartition(":")[2][:_SHOWN] or error[:_SHOWN], ""
