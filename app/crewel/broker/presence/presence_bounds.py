"""How many sessions may be present: on a channel, of an account, and at this server.

While more than half of the places of a channel or of the server are taken, an account may have at most four times as many as
are left. So no account takes the places of all others, and one that has few is refused last.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from crewel.broker.payers import storing_account
from crewel.broker.presence.presence_set import PresenceSet
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.errors import Limited

_RATIO: Final = 4
_WAIT_S: Final = 2.0
"""When a session that is refused may come again: others have to leave."""


class PresenceBounds:
    """Those of one server. It counts the sessions that are present here; those of a channel are counted at all nodes."""

    def __init__(self, runtime: Runtime, entries: PresenceSet) -> None:
        self._runtime = runtime
        self._settings = runtime.settings.limits
        self._entries = entries
        self.total = 0
        """How many times sessions of this server are present, on any channel."""
        self._accounts: dict[str, str] = {}  # of sessions, by their keys
        # By account and channel; all channels together as an empty one.
        self._held: Counter[tuple[str, str]] = Counter()

    def check(self, session: Session, present: int, channel: str) -> None:
        """The session, which is present on so many channels, wants to be on one more. Raises Limited."""
        settings, account = self._settings, storing_account(session)
        taken, held = self._entries.sessions(channel), self._held
        if self._is_beyond(settings.max_presence_per_session, present):
            raise self._refusal("max_presence_per_session", "the session is present on too many channels")
        if not session.is_operator and self._is_beyond(settings.max_presence_per_account, held[account, ""]):
            raise self._refusal("max_presence_per_account", f"the sessions of {account} are present too often")
        if not _has_share(settings.max_presence_per_channel, taken, held[account, channel]):
            raise self._refusal("max_presence_per_channel", f"too many sessions are present on {channel}")
        if not _has_share(settings.max_presence, self.total, held[account, ""]):
            raise self._refusal("max_presence", "too many sessions are present on the channels of the server")

    def came(self, session: Session, key: str, channel: str) -> None:
        """The session with this key is present on the channel, and was not."""
        account = self._accounts.setdefault(key, storing_account(session))
        self.total += 1
        self._held[account, channel] += 1
        self._held[account, ""] += 1

    def left(self, key: str, channel: str) -> None:
        """It is not any more."""
        account = self._accounts[key]
        self.total -= 1
        for held in ((account, channel), (account, "")):
            self._held[held] -= 1
            if not self._held[held]:
                del self._held[held]

    def forget(self, key: str) -> None:
        """The session with this key is present nowhere, and has ended."""
        self._accounts.pop(key, None)

    @staticmethod
    def _is_beyond(most: int, count: int) -> bool:
        return 0 < most <= count

    def _refusal(self, limit: str, why: str) -> Limited:
        self._runtime.metrics.limited[limit] += 1
        return Limited(f"limits.{limit}", why, _WAIT_S, Limited.CAP)


def _has_share(most: int, taken: int, held: int) -> bool:
    """Whether there is a place for one more of an account that has so many. 0: no limit."""
    left = most - taken
    return not most or (left > 0 and (2 * taken < most or held < _RATIO * left))
