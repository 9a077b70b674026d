"""Publishers wait when their messages make work faster than it is done. That is dead letters that the store does not have yet,
and messages that are still being handed to their receivers.

Dead letters are charged to the accounts of their receivers (`payers`). Publishers of the same account wait, each for a few
seconds at most. Others never wait for them, and so an account has a limit: beyond it, its receivers whose queues are full end.
Dead letters that no account pays for, because no client has come for their receivers since a restart, keep all publishers on
their channels waiting.

Messages wait for receivers longest if these have full queues, because each becomes a dead letter. So while many wait and an
account has many dead letters, publishers of other accounts do not wait, and the limit of that account is lower.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from crewel.broker.mailboxes.fan_outs import FanOuts
from crewel.broker.runtime import Runtime
from crewel.delivery.pending_dead_letters import MAX_DEAD_LETTER_COST, Payers
from crewel.errors import StoreError, StoreUnavailable

_LIMIT: Final = "max_pending_dead_letters"
_LONGEST_S: Final = 5.0
"""How long a publish waits: less than clients wait for their answer."""
_IN_ALL: Final = 4
"""Beyond so many times the limit of one account, all accounts share that equally."""
_WHILE_MANY: Final = 5
"""So many times the cost above which its publishers wait is the limit of an account while many messages wait for receivers."""


class BackPressure:
    """Looked at with each commit, and when much begins to wait or an account begins to have many dead letters: a publish looks
    at one attribute while there is none."""

    def __init__(self, runtime: Runtime) -> None:
        self._loop = runtime.loop
        self._metrics = runtime.metrics
        self._limits = runtime.settings.limits
        self._access = runtime.access
        self.fan_outs = FanOuts(runtime.loop, self.update)
        """The work that is under way for receivers."""
        self.is_on = False
        """Whether some publishes have to wait."""
        self.max_dead_letters = 10 * MAX_DEAD_LETTER_COST
        """Cost of the pending dead letters of one account above which its publishers wait: the store writes so many in a
        quarter of a second."""
        self.refuses_from = 25 * self.max_dead_letters
        """Cost above which a publish that has waited is refused: memory holds no more of them, and what was begun before."""
        self._debtor = ""
        """The account with the most pending dead letters, if its publishers wait because of them; as long as many messages wait
        for receivers, the last one."""
        self._delayed: dict[tuple[str, Payers], list[asyncio.Future[None]]] = {}

    def update(self) -> None:
        """Look how much is pending, and let publishes continue."""
        letters = self._access.node.fan_out.dead_letters
        heaviest = max(letters.by_payer, key=lambda each: letters.by_payer[each].size, default="")
        if letters.most((heaviest,)) > self.max_dead_letters:
            self._debtor = heaviest
        elif not self.fan_outs.are_many:  # they came of messages like those that still wait
            self._debtor = ""
        self.is_on = bool(self._debtor) or letters.shared.size > self.max_dead_letters or self.fan_outs.are_many
        for waiting in [each for each in self._delayed if not self.delays(*each)]:
            for delayed in self._delayed.pop(waiting):
                if not delayed.done():
                    delayed.set_result(None)

    # Publishers

    def delays(self, channel: str, payers: Payers = ()) -> bool:
        """Whether a publish on this channel, of a client with these accounts, has to wait."""
        if self._owed(channel, payers) > self.max_dead_letters:
            return True
        is_free = self._debtor and self._debtor not in payers
        return not is_free and self.fan_outs.keeps_busy(channel)

    def _owed(self, channel: str, payers: Payers) -> int:
        """The largest cost that is pending, of those with dead letters of the channel: for no account, or one of these."""
        letters = self._access.node.fan_out.dead_letters
        debts = [letters.shared, *(debt for each in payers if (debt := letters.by_payer.get(each)) is not None)]
        return max((debt.size for debt in debts if channel in debt.by_channel), default=0)

    def relief(self, channels: Iterable[object], payers: Payers = ()) -> asyncio.Future[None] | None:
        """Done when a request of a client with these accounts that publishes on these channels may continue; None if it need
        not wait. Raises StoreUnavailable if far too much is still pending by then."""
        channel = next((each for each in channels if isinstance(each, str) and self.delays(each, payers)), None)
        if channel is None:
            return None
        self._metrics.publishes_delayed += 1
        delayed: asyncio.Future[None] = self._loop.create_future()
        self._delayed.setdefault((channel, payers), []).append(delayed)
        self._loop.call_later(_LONGEST_S, self._end, channel, payers, delayed)
        return delayed

    def _end(self, channel: str, payers: Payers, delayed: asyncio.Future[None]) -> None:
        if delayed.done():
            return
        owed = self._owed(channel, payers)
        if owed > max(self.refuses_from, self.max_dead_letters):
            delayed.set_exception(_too_many(owed))
        else:
            delayed.set_result(None)

    # Receivers

    def overflowed(self, payers: Payers) -> str:
        """A dead letter of a full queue is charged to these accounts. Why the receiver has to end; empty if it need not."""
        letters = self._access.node.fan_out.dead_letters
        owed = letters.most(payers)
        if owed > self.max_dead_letters and not self._debtor:
            self.update()
        limit = self._limits.max_pending_dead_letters
        if self.fan_outs.are_many:
            limit = min(limit, _WHILE_MANY * self.max_dead_letters)
        if not (payers and limit) or owed <= limit // _IN_ALL:
            return ""
        if letters.size > _IN_ALL * limit:
            limit = min(limit, _IN_ALL * limit // len(letters.by_payer))
        if owed <= limit:
            return ""
        payer = next(each for each in payers if letters.by_payer[each].size == owed)
        self._metrics.limited[_LIMIT] += 1
        self._metrics.limited_last[_LIMIT] = payer  # for the log: RefusalSummary
        return f"{owed} dead letters of {payer} are pending, and allowed are {limit} (limits.{_LIMIT})"


def _too_many(size: int) -> StoreError:
    return StoreUnavailable(f"{size} dead letters wait for the store, some of them of this channel")
