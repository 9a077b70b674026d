"""An application that hears of dead letters, for the functional tests."""

from __future__ import annotations

import asyncio

from crewel import DeadLetter, Service

app = Service("letters")


@app.on_dead_letter
def note(letter: DeadLetter) -> None:
    app.publish("/seen/at-once", [letter.receiver, letter.code, letter.data])


@app.on_dead_letter
async def note_later(letter: DeadLetter) -> None:
    await asyncio.sleep(0)
    app.publish("/seen/later", [letter.dead_id, letter.qos, letter.is_persistent])
