"""A receiver whose token has expired says so, with the time, until its client logs in again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.admin.desk import SETS, STORED, TOKEN, Desk, Receiver
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server


@pytest.mark.server
def test_a_receiver_whose_token_has_expired_says_so(tmp_path: Path) -> None:
    sets = (*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}", "security.jwt_leeway_ms=0")
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], tmp_path)
    desk, expires = Desk(server), int(time.time()) + 4
    person = Receiver(server).be("joe/1", token=signed(exp=expires, subscribe=["/**"]))
    person.subscribe("/orders")
    sender = Receiver(server).be(token=TOKEN)
    message = sender.publish("/orders", 1, ext=STORED)[-1]["ext"]["publish"]["id"]
    shown = until(lambda: found if (found := desk.get("/sessions/joe/1"))["causes"] else None)
    cause = shown["causes"][0]
    assert (cause["kind"], cause["level"]) == ("token", "bad")
    assert cause["since"] == expires * 1000
    assert shown["cause"] == "its token has expired: it gets nothing until its client logs in again"
    finding = until(lambda: [each for each in desk.get("/overview")["findings"] if each["key"] == "token-expired"])
    assert (finding[0]["title"], finding[0]["since"]) == ("client/joe/1 has an expired token", cause["since"])
    (waits,) = desk.get(f"/messages/{message}")["receivers"]
    assert (waits["state"], waits["why"]) == ("waiting", cause["text"])
    (event,) = until(lambda: desk.get("/sessions/joe/1/timeline")["events"])
    assert (event["what"], event["count"]) == ("expired", 1)
    person.be("joe/1", token=signed(), resume=person.login["resume"])
    assert "token" not in [each["kind"] for each in desk.get("/sessions/joe/1")["causes"]]
    server.end_well()
