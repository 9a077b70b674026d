"""`crewel presence`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.admin.desk import SETS, TOKEN
from tests.cli.command import crewel
from tests.conftest import StartServer
from tests.functional.people import Person
from tests.functional.test_presence import call


def test_channels_or_the_members_of_one_are_printed(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SETS)
    call(Person(server).be("joe/1"), "/room", "enter", {"name": "Joe"})
    asked = {"directory": tmp_path, "environ": {"CREWEL_URL": server.url, "CREWEL_TOKEN": TOKEN}}
    told = crewel("presence", "--json", **asked)
    assert [json.loads(line) for line in told.out.splitlines()] == [{"channel": "/room", "members": 1, "sessions": 1}]
    told = crewel("presence", "/room", "--json", **asked)
    assert [json.loads(line) for line in told.out.splitlines()] == [
        {"id": "joe", "sessions": 1, "data": {"name": "Joe"}}
    ]
    told = crewel("presence", "room", **asked)
    assert told.status == 2
    assert "not the name of a channel: room" in told.err
