"""Presence over HTTP and sockets: with tokens, over the end of sessions, and over a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.functional.bayeux import Client, Message
from tests.functional.conftest import Serve
from tests.functional.frames import SocketClient
from tests.functional.people import Person
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

CHANGES = "/__sys__presence"


def call(client: Any, channel: str, action: str, data: Any = None) -> dict[str, Any]:
    """The answer to a call over long-polling: its data."""
    message = client.message("/service/presence", data={"channel": channel, "action": action, "data": data})
    found = _answers(client.send(message), message["id"])
    while not found:
        found = _answers(client.take() if isinstance(client, Person) else client.connect(), message["id"])
    data = found[0]["data"]
    assert isinstance(data, dict)
    return data


def _answers(messages: list[Message], number: str) -> list[Message]:
    return [each for each in messages if each.get("id") == number and "data" in each]


def members(client: Any, channel: str) -> dict[str, int]:
    """Each member, with the number of its sessions."""
    return {each["id"]: each["sessions"] for each in call(client, channel, "members")["members"]}


def test_a_socket_that_breaks_leaves_when_its_session_ends(shared: Serve, channel: str) -> None:
    server = shared("bayeux.sweep_ms=50")
    watcher, gone = SocketClient(server).start(), SocketClient(server)
    gone.handshake(ext={"session": {"name": "gone/1", "timeout": 1500}})
    gone.connect()
    watcher.subscribe(CHANGES + channel)
    watcher.ask_connect()
    gone.ask_connect(advice={"timeout": 300})
    gone.publish("/service/presence", {"channel": channel, "action": "enter", "data": {"n": 1}})
    (joined,) = watcher.heard()
    (member,) = joined["changes"]
    assert (member["change"], member["sessions"], member["data"]) == ("join", 1, {"n": 1})
    gone.socket.close()
    (left,) = watcher.heard()
    assert left["changes"] == [{"change": "leave", "id": member["id"]}]


def test_a_disconnect_over_long_polling_is_a_leave(server: Server, channel: str) -> None:
    client, watcher = Client(server).start(), Client(server).start()
    watcher.subscribe(CHANGES + channel)
    member = call(client, channel, "enter", "here")["id"]
    until(lambda: members(watcher, channel) == {member: 1})  # another node hears of it a little later
    client.send(client.message("/meta/disconnect"))
    until(lambda: members(watcher, channel) == {})


def test_a_token_grants_presence_only_by_its_claim(serve: Serve, tmp_path: Path) -> None:
    server = serve("security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    joe = Person(server).be("joe/1", token=signed())
    for action in ("enter", "members"):
        assert call(joe, "/chat/demo", action)["errorCode"] == "user.security.authorization.notAuthorized"
    (reply,) = joe.send(joe.message("/meta/subscribe", subscription=f"{CHANGES}/chat/demo"))
    assert reply["error"].startswith("403:")
    ann = Person(server).be("ann/1", token=signed(sub="ann", presence=["/chat/*", "/other"]))
    assert call(ann, "/chat/demo", "enter") == {"channel": "/chat/demo", "id": "ann"}
    assert members(ann, "/chat/demo") == {"ann": 1}
    assert "errorCode" in call(ann, "/other", "enter")  # which it may not subscribe to
    ann.subscribe(f"{CHANGES}/chat/demo")


def test_after_a_restart_a_session_is_asked_to_enter_again(serve: Serve) -> None:
    server = serve()
    joe = Person(server).be("joe/1")
    joe.subscribe(f"{CHANGES}/room")
    call(joe, "/room", "enter")
    joe.take_all()
    server.kill()
    successor = serve(*server.store_sets, port=server.port)
    joe.server = successor
    joe.forget_connections()
    told: list[Message] = []

    def has_reset() -> bool:
        told.extend(each["data"] for each in joe.take() if each["channel"] == f"{CHANGES}/room")
        return {"channel": "/room", "reset": True} in told

    until(has_reset)
    assert members(joe, "/room") == {}
    assert call(joe, "/room", "enter") == {"channel": "/room", "id": "joe"}
    assert members(joe, "/room") == {"joe": 1}
