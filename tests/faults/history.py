"""The history of a run: what clients, an operator and the test saw, and when. `Checker` (checker/) judges it by Porcupine.

A history is a file with one JSON object a line; `checker/history.go` has its fields. HISTORY_CHECKER in the environment is the
path of the program that `make faults-checker` builds. Where it is not there, a run has its ledger alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

_CHECKER: Final = Path(os.environ.get("HISTORY_CHECKER", "no checker"))
_LIMIT_S: Final = 300


class History:
    """Operations of one run, in any order. Each client adds to it on its own thread or task. Times are those of `monotonic`."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self._has_ended = False

    def add(self, do: str, began: float, ended: float | None, **fields: str) -> None:
        """An operation that began and ended then; `ended` is None if its answer never came."""
        if self._has_ended:
            return
        times = {"began": round(began * 1e9), "ended": None if ended is None else round(ended * 1e9)}
        self.records.append({"do": do, **fields, **times})

    def came(self, receiver: str, channel: str, log_id: str, item: object) -> None:
        """A copy has come to this receiver."""
        now = monotonic()
        self.add("deliver", now, now, receiver=receiver, channel=channel, id=log_id, item=str(item))

    @contextmanager
    def fault(self) -> Iterator[None]:
        """Clients may not be served meanwhile, and what was acknowledged shortly before may come again."""
        began = monotonic()
        yield
        self.add("fault", began, monotonic())

    def end(self) -> None:
        """All has come to its end, and what clients see later does not count. A test that is busy with its own books may keep
        the servers waiting that its process connects, for longer than a lease, which is a fault that no record tells."""
        now = monotonic()
        self.add("settled", now, now)
        self._has_ended = True

    def judge(self, file: Path) -> str:
        """Write the history, which ends here at the latest, and return what the checker says of it; empty without one. Raises
        AssertionError with what it refuses."""
        self.end()
        if not _CHECKER.exists():
            return ""
        file.write_text("".join(json.dumps(each) + "\n" for each in self.records))
        done = subprocess.run([_CHECKER, file], capture_output=True, text=True, timeout=_LIMIT_S)
        assert done.returncode == 0, (
            f"the checker refuses\n{done.stdout[:2000]}{done.stderr}{self._of_first(done.stdout)}"
        )
        return f"; the checker of the history: {done.stdout.strip()}"

    def _of_first(self, refused: str) -> str:
        """What happened to the first message that was refused, and the faults, in seconds: the file is gone with its test."""
        named = re.search(r"queue of (\S+) on .*, message (\d+)", refused)
        receiver, log_id = named.groups() if named else ("", "")
        lines = [
            f"{each['began'] / 1e9:.3f} to {each['ended'] and each['ended'] / 1e9}: {each}"
            for each in sorted(self.records, key=lambda each: each["began"])
            if each["do"] == "fault" or (each.get("id") == log_id and each.get("receiver", receiver) == receiver)
        ]
        return "\n".join(["", *lines])


class Batches:
    """What a client with the acknowledge extension acknowledges: all that came up to the number of a batch."""

    def __init__(self, history: History, receiver: str) -> None:
        self._history = history
        self._receiver = receiver
        self._new: list[str] = []
        self._open: dict[int, list[str]] = {}
        self._asked: dict[str, float] = {}
        """When each id was acknowledged for the first time, of those whose answer has not come."""

    def came(self, channel: str, log_id: str, item: object) -> None:
        """A copy has come."""
        self._history.came(self._receiver, channel, log_id, item)
        self._new.append(log_id)

    def ask(self, batch: int) -> None:
        """A connect that acknowledges this batch is about to be sent."""
        now = monotonic()
        for number in [each for each in self._open if each <= batch]:
            for log_id in self._open.pop(number):
                self._asked.setdefault(log_id, now)

    def answered(self, batch: int) -> None:
        """It was answered successful, with another batch."""
        now = monotonic()
        for log_id, began in self._asked.items():
            self._history.add("acknowledge", began, now, receiver=self._receiver, id=log_id)
        self._asked = {}
        self._open.setdefault(batch, []).extend(self._new)
        self._new = []

    def end(self) -> None:
        """No answer comes any more."""
        asked, self._asked = self._asked, {}
        for log_id, began in asked.items():
            self._history.add("acknowledge", began, None, receiver=self._receiver, id=log_id)
