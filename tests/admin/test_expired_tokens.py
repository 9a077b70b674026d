"""A receiver whose token has expired says so, with the time, until its client logs in again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.admin.alert_rules import HERON, LATER, SOON, Alert, Story, said_by
from tests.admin.desk import SETS, STORED, TOKEN, Desk, Receiver
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

TROUBLE = 'crewel_receivers_in_trouble{cause="token"} '


@pytest.mark.server
def test_a_receiver_whose_token_has_expired_says_so(tmp_path: Path) -> None:
    sets = (*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}", "security.jwt_leeway_ms=0")
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], tmp_path)
    desk, expires = Desk(server), int(time.time()) + 4
    person = Receiver(server).be("joe/1", token=signed(exp=expires, subscribe=["/**"]))
    person.subscribe("/orders")
    sender = Receiver(server).be(token=TOKEN)
    message = sender.publish("/orders", 1, ext=STORED)[-1]["ext"]["publish"]["id"]
    story = Story()
    story.step(LATER, said_by(server))
    shown = until(lambda: found if (found := desk.get("/sessions/joe/1"))["causes"] else None)
    cause = shown["causes"][0]
    assert (cause["kind"], cause["level"]) == ("token", "bad")
    assert cause["since"] == expires * 1000
    assert shown["cause"] == "its token has expired"
    finding = until(lambda: [each for each in desk.get("/overview")["findings"] if each["key"] == "token-expired"])
    assert (finding[0]["title"], finding[0]["since"]) == ("client/joe/1 has an expired token", cause["since"])
    (waits,) = desk.get(f"/messages/{message}")["receivers"]
    assert (waits["state"], waits["why"]) == ("waiting", cause["text"])
    (event,) = until(lambda: desk.get("/sessions/joe/1/timeline")["events"])
    assert (event["what"], event["count"]) == ("expired", 1)
    until(lambda: TROUBLE + "1.0" in said_by(server))
    story.step(
        SOON, said_by(server), fires=[Alert("CrewelTokenExpired", f"1 receiver on {HERON} has an expired token")]
    )
    person.be("joe/1", token=signed(), resume=person.login["resume"])
    until(lambda: TROUBLE + "0.0" in said_by(server))
    story.step(LATER, said_by(server))
    story.check(tmp_path)
    assert "token" not in [each["kind"] for each in desk.get("/sessions/joe/1")["causes"]]
    server.end_well()
