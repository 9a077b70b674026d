"""Who may do what, and how much of it: policy and authorisers, the token of operators, and limits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from crewel.broker.addressing.addressing import Addressing
from crewel.broker.admission.guard import Guard
from crewel.broker.admission.limiter import Limiter
from crewel.broker.admission.refusal_summary import RefusalSummary
from crewel.broker.mailboxes.mailboxes import Mailboxes
from crewel.broker.runtime import Runtime
from crewel.broker.session import Session
from crewel.security.sign_in import own_grants
from crewel.security.tokens import AdminToken


class Admission:
    """What one broker admits."""

    def __init__(
        self,
        runtime: Runtime,
        mailboxes: Mailboxes,
        addressing: Addressing,
        sessions: dict[str, Session],
        topic_count: Callable[[], int],
    ) -> None:
        self._loop = runtime.loop
        self.admin = AdminToken()
        """What an operator shows who is at no identity provider."""
        self.guard = Guard(partial(own_grants, self.admin))
        self.limits = Limiter(
            runtime, addressing.channels, addressing.groups, mailboxes, self.guard, self.admin, sessions, topic_count
        )
        self._refusals = RefusalSummary(runtime.metrics)
        runtime.metrics.gauge("addresses", lambda: len(self.limits.addresses))

    def sweep(self) -> None:
        """Forget accounts that do nothing, and say in the log what was refused."""
        self.limits.sweep()
        self._refusals.sweep(self._loop.time())
