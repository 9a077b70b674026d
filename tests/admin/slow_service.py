"""A service whose calls wait until they are released."""

from __future__ import annotations

import asyncio

from crewel import Service, Session

app = Service("printer")
paper = asyncio.Event()


@app.remote_call("print")
async def print_page(session: Session, data: object) -> object:
    await paper.wait()
    return data


@app.remote_call("paper")
def fill(session: Session, data: object) -> object:
    paper.set()
    return data
