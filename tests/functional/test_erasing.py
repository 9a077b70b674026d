"""A topic is erased while its messages wait: they come first and the notice last, whatever happens to the server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.client import Client
from tests.admin.desk import TOKEN, Receiver
from tests.functional.bayeux import data
from tests.functional.conftest import Serve, one_lane
from tests.functional.topic import SETS, Topic, settle
from tests.server_process import LIMIT_S, Server

pytestmark = one_lane


def again(serve: Serve, server: Server, reader: Receiver, ends: str) -> Server:
    """The next server on the same store, to which the reader will go."""
    if ends == "kill":
        server.kill()
    else:
        server.end_well()
    successor = serve(*SETS, *server.store_sets, port=server.port)
    reader.server = successor
    reader.forget_connections()
    return successor


@pytest.mark.parametrize(("ends", "by"), [("kill", "name"), ("end", "wildcard")])
def test_the_notice_comes_last_over_a_restart(serve: Serve, ends: str, by: str) -> None:
    server = serve(*SETS)
    topic = Topic(server)
    reader = topic.reader(topic.family if by == "wildcard" else "")
    for number in range(3):
        topic.publish(number, persistent=True)
    topic.erase()
    topic = topic.again(again(serve, server, reader, ends))
    assert topic.state == "SOFTERASED"
    taken = settle(reader, 4)
    assert data(taken) == [0, 1, 2, None]
    assert taken[-1]["ext"]["update"]["state"] == "ERASED"
    topic.becomes("DEAD")


def test_a_group_gets_what_waited_when_its_topic_was_erased(serve: Serve) -> None:
    server = serve(*SETS)
    topic = Topic(server)
    reader = topic.reader(group="crew")
    for number in range(4):
        topic.publish(number, persistent=True)
    topic.erase()
    assert topic.state == "SOFTERASED"
    topic = topic.again(again(serve, server, reader, "kill"))
    assert topic.state == "SOFTERASED"
    taken = settle(reader, 4)
    assert data(taken) == [0, 1, 2, 3]
    assert data(settle(reader)) == [None]
    topic.becomes("DEAD")
    assert topic.desk.letters() == []


async def test_the_python_client_hears_everything_and_its_new_subscription_stays(serve: Serve) -> None:
    """The application counts: what its listener was given, not what the client has acknowledged. It has subscribed again
    before the notice of the erase came, and that must not end the new subscription."""
    server = await asyncio.to_thread(serve, *SETS)
    topic = Topic(server)
    url = f"http://127.0.0.1:{server.port}/cometd"
    async with Client(url, name="worker/1", token=TOKEN, update=True, leave=True) as worker:
        await worker.subscribe(topic.channel)
    for number in range(3):
        await asyncio.to_thread(topic.publish, number, persistent=True)
    await asyncio.to_thread(topic.erase)
    heard: list[Any] = []
    async with Client(url, name="worker/1", token=TOKEN, update=True) as worker:
        async with asyncio.timeout(LIMIT_S):
            async for message in await worker.subscribe(topic.channel):
                heard.append("erased" if message.is_erased else message.data)
                if heard == [0, 1, 2]:
                    await asyncio.to_thread(topic.publish, 3, persistent=True)
                elif heard[3:]:
                    break
    assert heard == [0, 1, 2, 3]
