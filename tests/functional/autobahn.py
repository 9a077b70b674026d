"""The Autobahn test suite's cases for WebSocket servers, as a program of their own: their runner, in Rust, may break off when
Python ends.

    python -m tests.functional.autobahn ADDRESS PATTERN...

Prints a JSON object: for each case its verdict, the verdict on the way it closed, and the server's close code.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from kosoku import FailureError, run_fuzzingclient

AT_ONCE = 8


async def verdicts(address: str, patterns: list[str]) -> dict[str, list[str | int | None]]:
    """Run the cases that one of the patterns matches."""
    try:
        results = await run_fuzzingclient(address, patterns, None, concurrency=AT_ONCE)
    except FailureError as failure:
        results = failure.results
    return {each.case_id: [each.behavior.value, each.behavior_close.value, each.remote_close_code] for each in results}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(verdicts(sys.argv[1], sys.argv[2:]))), flush=True)
    os._exit(0)
