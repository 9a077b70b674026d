"""The alerts that the data pipeline raises, as the server shows them."""

from __future__ import annotations

import json

import redis

from crewel.storage.keys import Keys
from tests.admin.desk import SETS, Desk, Receiver
from tests.conftest import StartServer
from tests.store_process import own_prefix, shared_store


def test_alerts_are_shown_while_the_session_is_held(start_server: StartServer) -> None:
    prefix = own_prefix()
    server = start_server(*SETS, f"storage.url={shared_store().url}", f"storage.prefix={prefix}")
    desk = Desk(server)
    assert desk.get("/alerts") == {"alerts": []}
    for name in ("joe/1", "ann/1"):
        Receiver(server).be(name)
    alert = {"since": 5, "raised": 9, "held_ms": 4, "code": "user.lunch", "who": "admin", "reason": "lunch"}
    raised = {f"client/{name}": json.dumps(alert) for name in ("joe/1", "ann/1", "nobody/1")}
    with redis.Redis.from_url(shared_store().url) as store:
        store.hset(Keys(prefix).alerts, mapping=raised)  # type: ignore[arg-type]
    assert desk.get("/alerts") == {"alerts": []}, "nobody is held"
    desk.post("/sessions/joe/1/hold", {"reason": "lunch"})
    assert desk.get("/alerts") == {"alerts": [{"session": "client/joe/1", **alert}]}
    desk.post("/sessions/joe/1/activate")
    assert desk.get("/alerts") == {"alerts": []}
