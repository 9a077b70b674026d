"""An application that answers with the processor time of its server: `tests.faults.costs` asks it."""

from __future__ import annotations

from time import process_time
from typing import Any

from crewel import Service, Session

app = Service("clock")


@app.remote_call("clock")
def clock(session: Session, data: Any) -> float:
    """The processor time of this process in seconds, at the moment when the request is handled."""
    return process_time()
