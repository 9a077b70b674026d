"""A service whose background work writes into the file `work` which process begins it, and which ends it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from crewel import Service

worker = Service("worker")


def note(word: str) -> None:
    with Path("work").open("a") as file:
        file.write(f"{word} {os.getpid()}\n")


@worker.background
async def work() -> None:
    note("begin")
    try:
        await asyncio.Event().wait()
    finally:
        note("end")
