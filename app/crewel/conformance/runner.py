"""Runs the table of checks against a server, several at a time, and gathers what came of each."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from crewel.conformance import channel_checks, connect_checks, handshake_checks, http  # noqa: F401 - they fill the table
from crewel.conformance.check_table import CHECKS, SECTIONS, Check, Level, Outcome
from crewel.conformance.trial import Trial
from crewel.conformance.verdicts import LONG_POLLING, TRANSPORTS, Failed, Gone, NotOffered, Untested
from crewel.conformance.wires import Site

AT_A_TIME: Final = 6
GONE: Final = "the server takes no connections any more"


class Unreachable(Exception):
    """There is no Bayeux server at the address, or it lets this client do nothing; the text says which."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check on one transport."""

    check: Check
    transport: str
    outcome: Outcome
    detail: str
    """What was expected and what came; empty if it passed."""
    seconds: float


@dataclass(slots=True)
class Report:
    """All results, in the order of the table."""

    url: str
    offered: list[str]
    """The transports that the server offers."""
    results: list[Result] = field(default_factory=list)

    def count(self, level: Level, outcome: Outcome) -> int:
        """How many results of this level have this outcome."""
        return sum(each.check.level is level and each.outcome is outcome for each in self.results)

    @property
    def is_complete(self) -> bool:
        """Whether the server was there to the end."""
        return not any(each.detail.startswith(GONE) for each in self.results)

    def failed(self, *levels: Level) -> list[Result]:
        """The failures of these levels."""
        return [each for each in self.results if each.outcome is Outcome.FAILED and each.check.level in levels]


async def run(
    site: Site,
    *,
    transports: Collection[str] = TRANSPORTS,
    only: Collection[str] = (),
    root: str = "/conformance",
    expiry_s: float | None = None,
) -> Report:
    """Run the checks, all or those that are named, on the transports of these that the server offers. `root` is the channel
    below which messages are published. `expiry_s`: within so many seconds the server has ended a silent session. Raises
    Unreachable."""
    report = Report(site.shown, await _offered(site))
    numbers = itertools.count(1)
    run_id = token_hex(4)
    places = asyncio.Semaphore(AT_A_TIME)

    async def place(check: Check, transport: str) -> Result:
        async with places:
            trial = Trial(site, transport, f"{root}/{run_id}/n{next(numbers)}", expiry_s)
            return await _result(check, transport, trial, report.offered)

    chosen = sorted((each for each in CHECKS.values() if not only or each.id in only), key=_place_in_the_report)
    for is_last in (False, True):
        pairs = [
            (each, transport)
            for each in chosen
            for transport in each.transports
            if each.is_last is is_last and transport in transports
        ]
        report.results += await asyncio.gather(*(place(*pair) for pair in pairs))
    return report


def _place_in_the_report(check: Check) -> tuple[bool, int]:
    return check.is_last, list(SECTIONS).index(check.section)


async def _offered(site: Site) -> list[str]:
    """The transports that the server offers to a client that has all. Raises Unreachable."""
    async with Trial(site, LONG_POLLING, "", None) as trial:
        try:
            reply = await trial.client().handshake(supportedConnectionTypes=list(TRANSPORTS))
        except (Failed, Gone) as failed:
            raise Unreachable(f"no Bayeux server answers at {site.shown}: {failed}") from None
    if reply.get("successful") is not True:
        raise Unreachable(f"{site.shown} refuses the handshake: {reply.get('error', reply)}")
    types = reply.get("supportedConnectionTypes")
    return [each for each in types if isinstance(each, str)] if isinstance(types, list) else []


async def _result(check: Check, transport: str, trial: Trial, offered: list[str]) -> Result:
    started = time.monotonic()
    outcome, detail = Outcome.PASSED, ""
    if transport not in offered and transport != LONG_POLLING:
        outcome = Outcome.NOT_OFFERED
    else:
        try:
            async with trial:
                await check.run(trial)
        except Failed as failed:
            outcome, detail = Outcome.FAILED, str(failed)
        except NotOffered as offered:
            outcome, detail = Outcome.NOT_OFFERED, str(offered)
        except Untested as untested:
            outcome, detail = Outcome.UNTESTED, str(untested)
        except Gone as gone:
            outcome, detail = Outcome.UNTESTED, f"{GONE}: {gone}"
        except Exception as error:  # noqa: BLE001 - whatever a server sends, the run continues
            outcome, detail = Outcome.FAILED, f"expected an answer of another form: {type(error).__name__}: {error}"
    return Result(check, transport, outcome, detail, time.monotonic() - started)
