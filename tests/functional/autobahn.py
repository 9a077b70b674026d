"""The Autobahn test suite's cases for WebSocket servers, as a program of their own: their runner, in Rust, may break off when
Python ends.

    python -m tests.functional.autobahn ADDRESS PATTERN...

Prints a JSON object: for each case its verdict (NOT_ENDED if the server has closed in time in no try), the verdict on the way
it closed, and the server's close code.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING

from kosoku import FailureError, run_fuzzingclient

if TYPE_CHECKING:
    from kosoku._kosoku import CaseResult

AT_ONCE = 8
_TRIES = 5
"""How often a case is run that the server does not end in time. The suite gives it a second, however busy the machine is."""
_FEW = 25
"""So many cases may be late. More of them are a server that does not answer."""
NOT_ENDED = "NOT ENDED IN TIME"


async def verdicts(address: str, patterns: list[str]) -> dict[str, list[str | int | None]]:
    """Run the cases that one of the patterns matches; again, and one at a time, those that were not ended in time."""
    found: dict[str, list[str | int | None]] = {}
    wanted, at_once = patterns, AT_ONCE
    for _ in range(_TRIES):
        results = await _results(address, wanted, at_once)
        for each in results:
            verdict = NOT_ENDED if _is_not_ended(each) else each.behavior.value
            found[each.case_id] = [verdict, each.behavior_close.value, each.remote_close_code]
        wanted, at_once = [each.case_id for each in results if _is_not_ended(each)], 1
        if not 0 < len(wanted) <= _FEW:
            break
    return found


async def _results(address: str, patterns: list[str], at_once: int) -> list[CaseResult]:
    try:
        return list(await run_fuzzingclient(address, patterns, None, concurrency=at_once))
    except FailureError as failure:
        return list(failure.results)


def _is_not_ended(result: CaseResult) -> bool:
    """Whether a case has failed without a close of the server."""
    return result.behavior.value == "FAILED" and result.remote_close_code is None


if __name__ == "__main__":
    print(json.dumps(asyncio.run(verdicts(sys.argv[1], sys.argv[2:]))), flush=True)
    os._exit(0)
