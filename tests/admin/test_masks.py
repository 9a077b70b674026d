"""Masks at work: no answer for operators has what is masked."""

from __future__ import annotations

import pytest

from tests.admin.desk import SETS, STORED, Desk, Receiver
from tests.conftest import StartServer
from tests.functional.wire import until

pytestmark = pytest.mark.server

SECRET = "joe@example.org"


def test_no_answer_for_operators_has_a_masked_field(start_server: StartServer) -> None:
    server = start_server(*SETS, "admin.mask=email,IBAN")
    desk, joe = Desk(server), Receiver(server).be("joe/1")
    operator = Receiver(server).be("ops/1", token=desk.token)
    operator.subscribe("/__sys__deadMessage")
    joe.subscribe("/a")
    told = {"order": 17, "customer": {"Email": SECRET}}
    history = {"history": {"maxEntries": 5}, "clientProperties": {"iban": SECRET}}
    for _ in range(2):
        joe.publish("/a", told, ext={"publish": {**STORED["publish"], **history}})
    joe.publish("/b", told, ext={"publish": {"destination": [{"to": "client/ann", "forceQueuing": True}]}})
    seen = [
        desk.ask("GET", "/sessions/joe/1/messages"),
        desk.ask("GET", "/subjects/ann/messages"),
        desk.ask("GET", "/history/a"),
        *(
            desk.ask("POST", "/commands", {"command": f"__cmd:{command}"})
            for command in (
                "client/joe/1/?peekCallbackMessages",
                "client/ann/?peekSubjectMessages",
                "topic/a/?peekHistoryMessages",
            )
        ),
    ]
    desk.post("/sessions/joe/1/drain")
    dead = until(lambda: them if len(them := desk.letters()) == 2 else None)
    seen += [
        desk.ask("GET", path) for path in ("/dead-letters", f"/dead-letters/{dead[0]['id']}", "/dead-letters/export")
    ]
    for response in seen:
        assert response.status == 200, response
        text = response.body.decode()
        assert SECRET not in text
        assert '"***"' in text
        assert "17" in text
    heard = until(operator.take)
    assert SECRET not in str(heard)
    assert heard[0]["data"] == {"order": 17, "customer": {"Email": "***"}}
    assert desk.get("/me")["masked"] == ["email", "iban"]
    desk.post("/dead-letters/redrive", {"all": True})
    assert [message["data"] for message in until(joe.take)] == [told, told]  # receivers get all of it


def test_a_removed_line_does_not_give_its_hidden_field_to_the_next_one(start_server: StartServer) -> None:
    server = start_server(*SETS, "admin.mask=email")
    desk, joe = Desk(server), Receiver(server).be("joe/1")
    joe.subscribe("/a")
    first, second = ({"sku": number, "email": f"{number}@x"} for number in (1, 2))
    joe.publish("/a", {"lines": [first, second]}, ext=STORED)
    joe.reject(joe.take())
    (dead,) = until(desk.letters)
    edit = f"/dead-letters/{dead['id']}/edit"
    refused = desk.ask("POST", edit, {"data": {"lines": [{"sku": 7, "email": "***"}]}})
    text = "data: no *** in lines.0.email: it is not clear which masked value this is; write the value"
    assert (refused.status, refused.json()["message"]) == (400, text)
    desk.post(edit, {"data": {"lines": dead["data"]["lines"][1:]}})
    (message,) = until(joe.take)
    assert message["data"] == {"lines": [second]}
