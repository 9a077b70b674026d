"""Operators get what they got before: some 500 requests to a server with something of everything, and their recorded answers.

The recording has each answer byte for byte where it is not time, chance or the machine, so a change of the resources that is to
change no answer is one that passes here. One that changes an answer on purpose records again, and its difference is read:
`CREWEL_TEST_RECORD=1 pytest tests/admin/test_recorded_answers.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import dropwhile, zip_longest
from pathlib import Path
from typing import Any

import pytest

from crewel.admin.command import Access
from crewel.admin.commands import COMMANDS
from tests.admin.company import CASES, IN_ORDER, Ask, Stage, company, ended, first_difference, neutral
from tests.admin.desk import Desk
from tests.functional.wire import close_connections

pytestmark = pytest.mark.server

RECORD = Path(__file__).parent / "recorded_answers.txt"
LEFT_OUT = {
    "GET /openapi.json",  # docs/stable.json and the tables of the documentation have what this and the next two say
    "GET /commands",
    "GET /settings",
    "GET /sessions/{subject}/{number}/trace",  # takes a second, and tells of what happens in it
    "POST /feed",  # a ticket
}
NAMES = {"node": "", "subject": "client/cook/", "session": "client/cook/1/", "topic": "topic/a/orders/"}
"""What a command of each level is about."""
COOK, DEAD = "/sessions/cook/1", "/dead-letters"
BAD: list[tuple[str, str, Any]] = [
    ("GET", "/sessions?count=0", None),
    ("GET", "/sessions?count=1001", None),
    ("GET", "/sessions?count=ten", None),
    ("GET", "/sessions?count=", None),
    ("GET", "/sessions?count=%2B5", None),
    ("GET", "/sessions?count=5&count=6", None),
    ("GET", "/sessions?state=alive", None),
    ("GET", "/sessions?condition=well", None),
    ("GET", "/sessions?active=yes", None),
    ("GET", "/sessions?contains=", None),
    ("GET", "/sessions?sort=age", None),
    ("GET", "/sessions?subjet=joe", None),
    ("GET", "/sessions?sort=waiting&after=cook", None),
    ("GET", "/sessions?", {"count": 5}),
    ("GET", "/sessions/absentee/1", None),
    ("GET", f"{COOK}/messages?count=0", None),
    ("GET", f"{COOK}/trace?seconds=0", None),
    ("GET", "/receivers?kind=channel", None),
    ("GET", "/receivers?cause=bad", None),
    ("GET", "/receivers?held=1", None),
    ("GET", "/subjects?count=1.5", None),
    ("GET", "/topics?pattern=chat", None),
    ("GET", "/topics?state=alive", None),
    ("GET", "/topics?internal=TRUE", None),
    ("GET", "/topics/_?channel=/a/orders&channel=/b", None),
    ("GET", "/topics/a/orders?channel=/a/orders", None),
    ("GET", "/history/a/orders?newestFirst=1", None),
    ("GET", "/prefixes?below=kitchen", None),
    ("GET", "/groups/a/orders", None),
    ("GET", "/rates?by=subject", None),
    ("GET", "/overview?after=-1", None),
    ("GET", "/presence?count=0", None),
    ("GET", "/requests?count=2000", None),
    ("GET", "/messages", None),
    ("GET", "/messages?key=k1&contains=x", None),
    ("GET", "/messages?field=a", None),
    ("GET", "/messages/x", None),
    ("GET", "/scheduled-messages?after=x", None),
    ("POST", "/scheduled-messages/cancel", {}),
    ("POST", "/scheduled-messages/cancel", {"ids": ["x"]}),
    ("GET", f"{DEAD}?code=a%20b", None),
    ("GET", f"{DEAD}?receiver=a%2Fb%2Fc", None),
    ("GET", f"{DEAD}?channel=chat", None),
    ("GET", f"{DEAD}?since=yesterday", None),
    ("GET", f"{DEAD}?until=5", None),
    ("GET", f"{DEAD}?returns=-1", None),
    ("GET", f"{DEAD}?field=a%2Eb", None),
    ("GET", f"{DEAD}?after=5", None),
    ("GET", f"{DEAD}?newestFirst=1", None),
    ("GET", f"{DEAD}/count?by=age", None),
    ("GET", f"{DEAD}/groups?by=code,channel", None),
    ("GET", f"{DEAD}/export?count=5", None),
    ("GET", f"{DEAD}/bin?job=5", None),
    ("GET", f"{DEAD}/x", None),
    ("POST", f"{DEAD}/redrive", None),
    ("POST", f"{DEAD}/redrive", {"all": False}),
    ("POST", f"{DEAD}/redrive", {"all": True, "ids": []}),
    ("POST", f"{DEAD}/redrive", {"ids": ["x"]}),
    ("POST", f"{DEAD}/redrive", {"ids": "1-0"}),
    ("POST", f"{DEAD}/redrive", {"ids": ["1-0"] * 1001}),
    ("POST", f"{DEAD}/redrive", {"ids": ["1-0"], "code": "user"}),
    ("POST", f"{DEAD}/redrive", {"all": True, "rate": 0}),
    ("POST", f"{DEAD}/redrive", {"all": True, "rate": True}),
    ("POST", f"{DEAD}/redrive", {"all": True, "count": 10_001}),
    ("POST", f"{DEAD}/redrive", {"all": True, "toChannel": "no"}),
    ("POST", f"{DEAD}/redrive", {"all": True, "since": -1}),
    ("POST", f"{DEAD}/redrive?dryRun=true", {"all": True}),
    ("POST", f"{DEAD}/discard", {"all": True, "toChannel": True}),
    ("POST", f"{DEAD}/1795179106957-0/edit", {}),
    ("POST", f"{DEAD}/1795179106957-0/edit", {"data": 1, "ext": 1}),
    ("POST", f"{DEAD}/restore", {"ids": [5]}),
    ("POST", "/jobs", {}),
    ("POST", "/jobs", {"what": "dance"}),
    ("POST", "/jobs", {"what": "drain"}),
    ("POST", "/jobs", {"what": "drain", "sessions": ["cook"]}),
    ("POST", "/jobs", {"what": "drain", "subject": "cook/1"}),
    ("POST", "/jobs", {"what": "drain", "subject": "cook", "all": True}),
    ("POST", "/jobs", {"what": "redrive", "sessions": ["client/cook/1"]}),
    ("GET", "/jobs?state=over", None),
    ("GET", "/jobs/x/letters?count=0", None),
    ("POST", "/publish/a/orders", {"persistent": True}),
    ("POST", "/publish/a/orders", {"data": 1, "persistent": 1}),
    ("POST", "/publish/a/**", {"data": 1}),
    ("POST", f"{COOK}/hold", {"raeson": "x"}),
    ("POST", f"{COOK}/hold", {"reason": 5}),
    ("POST", f"{COOK}/hold", {"reason": "x" * 2000}),
    ("POST", f"{COOK}/hold", []),
    ("POST", f"{COOK}/hold", b"{"),
    ("POST", f"{COOK}/hold", b"\xff"),
    ("POST", f"{COOK}/skip", {"message": 5}),
    ("POST", f"{COOK}/dance", None),
    ("PUT", COOK, None),
    ("DELETE", "/topics/a/orders?force=1", None),
    ("DELETE", "/topics/a/orders", {"force": True}),
    ("POST", "/commands", None),
    ("POST", "/commands", {"command": 5}),
    ("POST", "/commands", {"cmd": "__cmd:?version"}),
    ("POST", "/commands", {"command": "__cmd:client/cook/1/?dispatcherActive=maybe"}),
    ("POST", "/commands", {"command": "__cmd:client/cook/1/?peekCallbackMessages"}),
    ("POST", "/commands", {"command": "__cmd:?versoin"}),
    ("PATCH", "/settings", {"bayeux.timeout": 1}),
    ("PATCH", "/settings", {"http.port": 1}),
    ("PATCH", "/settings", {"bayeux.timeout_ms": "soon"}),
    ("PATCH", "/settings", {}),
    ("GET", "/audit?outcome=well", None),
    ("GET", "/audit?since=never", None),
    ("GET", "/audit?after=5", None),
    ("POST", "/sign-in", {"token": 5}),
    ("POST", "/sign-in", {"code": "none"}),
    ("GET", "/nothing", None),
]
"""Requests that are refused, whose texts say why: they name what is wrong, and what was expected."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    found = company(tmp_path_factory.mktemp("recorded"), has_payroll=True)
    yield found
    close_connections()
    found.server.end_well()


def asked(stage: Stage) -> Iterator[tuple[str, Ask]]:
    """The methods and the requests: what looks, what is refused, and what changes something."""
    routes = [route for route in IN_ORDER if route not in LEFT_OUT]
    works = list(dropwhile(lambda route: route.startswith("GET"), routes))
    yield from _of(stage, routes[: -len(works)])
    for row in COMMANDS:
        if row.access is not Access.OPERATE and row.takes is None:
            yield "POST", Ask("/commands", {"command": f"__cmd:{NAMES[row.level.value]}?{row.name}"})
    for method, path, body in BAD:
        yield method, Ask(path, body)
    yield from _of(stage, works)


def _of(stage: Stage, routes: list[str]) -> Iterator[tuple[str, Ask]]:
    for route in routes:
        for ask in CASES[route](stage.names, stage.hidden):
            yield route.partition(" ")[0], ask


def recorded(stage: Stage) -> Iterator[str]:
    """The lines of the recording: each request, and its answer. A long answer that there was stands once."""
    desk = Desk(stage.server)
    names = stage.names | {f"hidden {name}": value for name, value in stage.hidden.items()}
    long: dict[str, str] = {}
    for method, ask in asked(stage):
        sent = "" if ask.body is None else repr(ask.body)[:200]
        asking = neutral(f"{method} {ask.path} {sent}".rstrip(), names)
        response = desk.ask(method, ask.path, ask.body)
        if ask.path == "/jobs" and method == "POST" and response.status == 200:
            ended(desk, response.json()["id"])  # before the next request counts what it works on
        answer = _MACHINE.sub("<machine>", neutral(response.body.decode(), names))
        known = long.setdefault(answer, asking) if len(answer) > _LONG else asking
        yield f"> {asking}"
        yield f"< {response.status} {answer if known is asking else f'as {known}'}".rstrip()


_LONG = 400
_MACHINE = re.compile(
    r'(?<="usedMemory":)\d+|(?<=Mem","result":)\d+|(?<="uptime":)\d+|(?<=uptime","result":)\d+|\d{4}-\d\d-\d\dT[\d:.]+Z'
)
"""What is of the machine and the moment, beside what `neutral` knows."""


def test_operators_get_what_they_got_before(stage: Stage) -> None:
    now = "\n".join(recorded(stage)).splitlines()
    assert len([line for line in now if line.startswith("> ")]) > 300
    if os.environ.get("CREWEL_TEST_RECORD"):
        RECORD.write_text("\n".join(now) + "\n", "utf-8")
    before, request, differs = RECORD.read_text("utf-8").splitlines(), "", []
    for was, is_ in zip_longest(before, now, fillvalue=""):
        request = is_ if is_.startswith("> ") else request
        if was != is_:
            differs.append("\n".join((request, *first_difference(was, is_))))
    assert not differs, "\n".join(differs)
