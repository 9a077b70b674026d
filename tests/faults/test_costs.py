"""What one stranger costs all others: at most 20 ms of the server's processor between a request and its answer.

It is measured as the processor time of the server, so that other work on the machine does not count (`tests.faults.costs`).
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import StartServer
from tests.faults.attacks import ATTACKS
from tests.faults.conftest import IS_FULL, Tell
from tests.faults.costs import SERVICE, SETS, attacked
from tests.patience import slowness

SECONDS = 5.0 if IS_FULL else 0.6
SESSIONS = (1, 20, 30, 1000) if IS_FULL else (20,)
SHARE = 0.99 if IS_FULL else 0.9
"""Of how many requests the bound is asked. Short runs have too few for more."""
DOUBT_S = 3.0
"""How long the attack is repeated after a short run with trouble. That has about twenty requests: two slow ones decide, and
a processor that others use too needs up to twice the time for the same work."""


@pytest.mark.parametrize("sessions", SESSIONS)
@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_stranger_costs_others_at_most_a_turn(
    attack: str, sessions: int, start_server: StartServer, tell: Tell
) -> None:
    server = await asyncio.to_thread(start_server, *SETS, *ATTACKS[attack].sets, service=SERVICE)
    address, work_s = ATTACKS[attack].address, ATTACKS[attack].work_s
    costs = await attacked(server, attack, sessions=sessions, seconds=SECONDS, seed=1, address=address)
    if not IS_FULL and costs.trouble(share=SHARE, work_s=work_s):
        costs = await attacked(server, attack, sessions=sessions, seconds=DOUBT_S, seed=2, address=address)
    tell(f"{attack}, {sessions} sessions: median, 99 %, longest {costs}")
    if not IS_FULL:  # what it has left to do has a part in no claim, and takes up to ten seconds
        await asyncio.to_thread(server.kill)
    slow = await asyncio.to_thread(slowness) if costs.trouble(share=SHARE, work_s=work_s) else 1.0
    assert costs.trouble(share=SHARE, work_s=work_s, slow=slow) == ""
