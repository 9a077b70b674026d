"""The live feed: what pages of operators, and programs, receive on the server's own channels instead of asking again and again.

Nothing is worked out for a channel without listeners. Notices also go to the webhook `admin.notice_webhook`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from time import time
from typing import TYPE_CHECKING, Any, Final

from crewel.admin.overview_resource import whole_overview
from crewel.broker.dead_letters.webhook import Webhook
from crewel.errors import StoreError

if TYPE_CHECKING:
    from crewel.admin.administration import Administration

OVERVIEW: Final = "/__sys__overview"
"""The overview, after each sample: the object of `GET /admin/api/overview` with the newest sample."""
NOTICES: Final = "/__sys__notices"
"""What operators should look at: an object with `node`, `at`, `kind`, and what belongs to it."""
_POSTED: Final = ("held", "died")
"""The kinds of notices that go to the webhook too."""
_MOST_WAITING: Final = 1000
"""Notices that wait for the webhook at most."""
_LETTERS_S: Final = 1.0
"""Between two notices of dead letters."""


class Feed:
    """The live feed of one server."""

    def __init__(self, admin: Administration) -> None:
        self._admin = admin
        self._broker = broker = admin.broker
        self._channels = broker.sessions.operators
        self._overview: asyncio.Task[None] | None = None
        self._letters: list[str] = []
        self._letters_timer: asyncio.TimerHandle | None = None
        self._waiting: deque[dict[str, Any]] = deque(maxlen=_MOST_WAITING)
        self._posting: asyncio.Task[None] | None = None
        address, token = admin.settings.admin.notice_webhook, admin.settings.admin.notice_webhook_token
        self._webhook = Webhook(address, token, self._timeout_s, admin.metrics) if address else None

    def _timeout_s(self) -> float:
        return self._admin.settings.delivery.dead_letter_webhook_timeout_ms / 1000

    def start(self) -> None:
        """Follow what happens from now on."""
        self._admin.metrics_history.on_sample.append(self._sampled)
        self._admin.jobs.on_change.append(self._job)
        self._admin.events.on_event.append(self._happened)
        self._broker.dead_letters.notifier.on_stored.append(self._stored)

    async def close(self) -> None:
        """Let go of the webhook's connections."""
        if self._letters_timer is not None:
            self._letters_timer.cancel()
        if self._webhook is not None:
            await self._webhook.close()

    # The overview

    def _sampled(self) -> None:
        is_busy = self._overview is not None and not self._overview.done()
        if self._channels.is_heard(OVERVIEW) and not is_busy:
            self._overview = self._broker.spawn(self._publish_overview())

    async def _publish_overview(self) -> None:
        at = self._admin.metrics_history.newest_ms
        told = await whole_overview(self._admin, at - 1)
        self._channels.publish(OVERVIEW, told, self._channels.listening(OVERVIEW))

    # Notices

    def notice(self, kind: str, **fields: Any) -> None:
        """Let operators know at once."""
        is_posted = self._webhook is not None and kind in _POSTED
        if not (is_posted or self._channels.is_heard(NOTICES)):
            return
        told = {"node": self._admin.node, "at": int(time() * 1000), "kind": kind, **fields}
        self._channels.publish(NOTICES, told, self._channels.listening(NOTICES))
        if is_posted:
            self._waiting.append(told)
            if self._posting is None or self._posting.done():
                self._posting = self._broker.supervisor.start("notices for the webhook", self._post)

    async def _post(self) -> None:
        assert self._webhook is not None
        while self._waiting:
            told = list(self._waiting)
            self._waiting.clear()
            await self._webhook.post(told)

    def _happened(self, kind: str, session: str, fields: dict[str, Any]) -> None:
        if kind in ("held", "released", "died"):
            self.notice(kind, session=session, **fields)

    def _stored(self, dead_ids: Sequence[str]) -> None:
        if not self._channels.is_heard(NOTICES):
            return
        self._letters += dead_ids
        if self._letters_timer is None:
            self._letters_timer = self._broker.loop.call_later(_LETTERS_S, self._notice_letters)

    def _notice_letters(self) -> None:
        letters, self._letters, self._letters_timer = self._letters, [], None
        self.notice("letters", count=len(letters), newest=letters[-1])

    def _job(self, job_id: str) -> None:
        if self._channels.is_heard(NOTICES):
            self._broker.spawn(self._notice_job(job_id))

    async def _notice_job(self, job_id: str) -> None:
        try:
            job = await self._admin.jobs.get(job_id)
        except StoreError:
            return
        if job is not None:
            numbers = {"total": job.total, "done": job.done, "undone": job.undone}
            self.notice("job", id=job.id, what=job.what, state=job.state.value, who=job.who, **numbers)
