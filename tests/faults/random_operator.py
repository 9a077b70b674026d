"""An operator who does whatever the random numbers say to sessions and dead letters, and knows what was thrown away."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.admin.desk import Desk
from tests.faults.at_work import AtWork
from tests.faults.audit import Letter
from tests.functional.wire import Address

_WORK = {
    "activate": 6,
    "hold": 1,
    "skip": 2,
    "drain": 0.5,
    "kill": 0.3,
    "clear": 0.3,
    "remove": 1,
    "redrive": 3,
    "to channel": 1,
    "discard": 1,
    "restore": 1,
    "edit": 0.5,
}
"""What is done, and how often."""


class RandomOperator(AtWork):
    """At work on a thread of its own until `stop`."""

    def __init__(self, server: Address, rng: random.Random, *, pause_s: float = 0.1) -> None:
        super().__init__()
        self.done: Counter[str] = Counter()
        """What was done, and answered with 200."""
        self.discarded: dict[str, Letter] = {}
        """Letters that it wanted to throw away, by dead id."""
        self._desk = Desk(server)
        self._rng = rng
        self._pause_s = pause_s

    def work(self) -> None:
        while not self.pause(self._rng.uniform(0, 2 * self._pause_s)):
            (what,) = self._rng.choices(list(_WORK), list(_WORK.values()))
            if what in ("redrive", "to channel", "discard", "edit"):
                self._work_on_letters(what)
            elif what == "restore":
                ids = self._rng.sample(list(self.discarded), min(len(self.discarded), 2))
                self._ask(what, "/dead-letters/restore", {"ids": ids} if ids else {"all": True, "code": "no.such"})
            else:
                self._work_on_session(what)

    def _work_on_session(self, what: str) -> None:
        only = "&active=false" if what == "activate" else ""
        sessions = [each["name"] for each in self._desk.get(f"/sessions?count=100{only}")["sessions"]]
        if not sessions:
            return
        name = "client/" + self._rng.choice(sessions).partition("client/")[2]
        if what == "clear":
            self._ask(what, "/commands", {"command": f"__cmd:{name}/?clearCallbackQueue"})
        elif what == "remove":
            count = self._rng.randint(1, 3)
            self._ask(what, "/commands", {"command": f"__cmd:{name}/?removeFromCallbackQueue={count}"})
        else:
            self._ask(what, f"/sessions/{name.removeprefix('client/')}/{what}")

    def _work_on_letters(self, what: str) -> None:
        letters = self._desk.letters("count=200")
        chosen = self._rng.sample(letters, min(len(letters), self._rng.randint(1, 40)))
        if not chosen:
            return
        ids = [letter["id"] for letter in chosen]
        if what == "edit":
            self._ask(what, f"/dead-letters/{ids[0]}/edit", {"data": chosen[0]["data"]})
        elif what == "discard":
            ids = ids[:3]
            self.discarded |= {letter["id"]: _as_stored(letter) for letter in chosen[:3]}
            self._ask(what, "/dead-letters/discard", {"ids": ids})
        else:
            body = {"ids": ids} if self._rng.random() < 0.7 else {"all": True, "count": 100}
            self._ask(what, "/dead-letters/redrive", body | {"toChannel": what == "to channel"})

    def _ask(self, what: str, path: str, body: Any = None) -> None:
        response = self._desk.ask("POST", path, body)
        assert response.status in (200, 400, 404), (what, response)  # what was there may have gone meanwhile
        self.done[what] += response.status == 200


def _as_stored(letter: dict[str, Any]) -> Letter:
    """The letter as the store had it, as far as the ledger looks at it."""
    stored = {
        "id": letter["message"],
        "receiver": "client/" + letter["receiver"].partition("/client/")[2],
        "code": letter["errorCode"],
    }
    back = {"r": letter["redriveOf"], "n": str(letter["returns"])} if "redriveOf" in letter else {}
    return stored | back | ({"p": "1"} if letter["persistent"] else {})
