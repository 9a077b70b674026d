"""What the client's tests against a real server share."""

import asyncio

from crewel.client import BackoffRule, State, Transition

SERVICE = "tests.client.services"
LIMIT_S = 30.0  # against a wait that hangs; a busy machine needs a part of it
QUICK = BackoffRule(initial=0.02, factor=1.5, maximum=0.2)
"""For clients that wait for a server to come back: however long that takes, they are there soon after."""


class Steps:
    """Notes the transitions of a client, and waits for one."""

    def __init__(self) -> None:
        self.seen: list[Transition] = []
        self._more = asyncio.Event()

    def __call__(self, step: Transition) -> None:
        """Be the `on_state` listener."""
        self.seen.append(step)
        self._more.set()

    async def reach(self, state: State, times: int = 1) -> Transition:
        """Wait until this state was entered this often."""
        async with asyncio.timeout(LIMIT_S):
            while len(found := [step for step in self.seen if step.new is state]) < times:
                self._more.clear()
                await self._more.wait()
        return found[times - 1]
