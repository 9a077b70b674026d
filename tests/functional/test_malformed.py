"""A message that the server cannot make into what its receivers get: on the real server, over both lanes and WebSockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.settings import load
from crewel.storage import dead_letter_store
from crewel.storage.dead_letter_records import DeadLetterFilter
from crewel.storage.store import Store
from tests.functional.bayeux import Client
from tests.functional.conftest import Serve
from tests.functional.frames import SocketClient
from tests.functional.wire import descriptors, until
from tests.server_process import Server

ASKS = {"ack": True, "session": {"name": "joe/1", "update": True}}
PERSISTENT = {"publish": {"persistent": True}}
CONNECTS = 20


def codes(server: Server) -> list[tuple[str, Any]]:
    """Receiver and code of each dead letter in the server's store."""

    settings = load(None, server.store_sets, {})

    async def read() -> list[tuple[str, Any]]:
        store = Store(settings)
        await store.open()
        try:
            return [
                (each.receiver, each.code) for each in (await dead_letter_store.page(store, DeadLetterFilter())).letters
            ]
        finally:
            await store.close()

    return asyncio.run(read())


def received(client: Client | SocketClient, ack: int, count: int) -> list[Any]:
    """The data of so many messages, by as many connects as that takes, each over a connection of its own where that can be."""
    got: list[Any] = []
    for _ in range(CONNECTS):
        messages = connect(client, ack)
        (reply,) = [each for each in messages if each["channel"] == "/meta/connect"]
        assert reply["successful"], reply
        ack = reply["ext"]["ack"]
        got += [each["data"] for each in messages if "data" in each]
        if len(got) >= count:
            return got
    raise AssertionError(f"only {got}")


def connect(client: Client | SocketClient, ack: int) -> list[dict[str, Any]]:
    fields = {"ext": {"ack": ack}, "advice": {"timeout": 100}}
    if isinstance(client, Client):
        messages = client.connect(**fields)
        client.polling.close()
        client.drop_polling()
        return messages
    message = client.ask_connect(**fields)
    reply = client.reply_to(message)
    heard, client.events = client.events, []
    return [*heard, reply]


@pytest.mark.parametrize("kind", [Client, SocketClient], ids=["long-polling", "websocket"])
def test_what_is_behind_a_malformed_message_arrives(serve: Serve, kind: type[Client | SocketClient]) -> None:
    server = serve(service="tests.functional.malformed_service")
    joe = kind(server)
    joe.handshake(ext=ASKS)
    connect(joe, 0)
    joe.subscribe("/poison")
    clerk = Client(server).start()
    before = descriptors(server)
    clerk.publish("/poison", 1, ext=PERSISTENT)
    clerk.publish("/malform", 2)
    clerk.publish("/poison", 3, ext=PERSISTENT)
    assert received(joe, 1, 2) == [1, 3]
    for number in range(5):
        connect(joe, 2 + number)
    until(lambda: codes(server) == [("client/joe/1", "user.update.internalError")])
    until(lambda: descriptors(server) <= before + 2)


@pytest.mark.parametrize("ext", ["x", None, [], 5])
def test_a_publish_with_such_an_ext_is_refused_over_sockets_requests_and_the_api(shared: Serve, ext: Any) -> None:
    server = shared()
    wanted = "400:ext:user.illegalArgument"
    client, socket = Client(server).start(), SocketClient(server).start()
    for speaker in (client, socket):
        message = speaker.message("/a", data=1, ext=ext)
        if isinstance(speaker, Client):
            (reply,) = speaker.send(message)
        else:
            speaker.send(message)
            reply = speaker.reply_to(message)
        assert (reply["successful"], reply["error"]) == (False, wanted)
    client.disconnect()
