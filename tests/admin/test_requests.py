"""Remote calls that wait are listed, the longest first, until they have their result."""

from __future__ import annotations

import pytest

from tests.admin.desk import SETS, Desk, Receiver
from tests.conftest import StartServer
from tests.functional.wire import until

pytestmark = pytest.mark.server


def test_waiting_calls_are_listed(start_server: StartServer) -> None:
    server = start_server(*SETS, service="tests.admin.slow_service")
    desk, joe, ann = Desk(server), Receiver(server).be("joe/1"), Receiver(server).be("ann/1")
    assert desk.get("/requests") == {"requests": [], "count": 0}
    joe.publish("/service/print", 1)
    ann.publish("/service/print", 2)
    told = desk.get("/requests")
    assert told["count"] == 2
    assert [(each["channel"], each["caller"]) for each in told["requests"]] == [
        ("/service/print", "client/joe/1"),
        ("/service/print", "client/ann/1"),
    ]
    assert 1_700_000_000_000 < told["requests"][0]["since"] <= told["requests"][1]["since"]
    assert desk.get("/requests?caller=client/ann")["count"] == 1
    assert desk.get("/requests?channel=/service/other")["count"] == 0
    assert len(desk.get("/requests?count=1")["requests"]) == 1
    joe.publish("/service/paper", 0)
    until(lambda: desk.get("/requests")["count"] == 0)
