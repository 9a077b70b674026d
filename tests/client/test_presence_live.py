"""The Python client's presence, against real servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import (
    Client,
    Event,
    NotConnectedError,
    Presence,
    RemoteCallFailedError,
    State,
    SubscribeRefused,
    Transition,
    TransportError,
    client_presence,
)
from crewel.client.sync import Client as SyncClient
from tests.client.support import QUICK, Steps
from tests.conftest import StartServer
from tests.server_process import LIMIT_S, Server


@pytest.fixture
def server(start_server: StartServer) -> Server:
    return start_server()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}/cometd"


async def changes(presence: Presence, count: int) -> list[tuple[str, str]]:
    """The next so many changes: what happened, and to which member."""
    async with asyncio.timeout(LIMIT_S):
        return [(change.event.value, change.member.id) for change in [await anext(presence) for _ in range(count)]]


async def test_a_block_is_present_and_sees_the_others_come_and_go(server: Server) -> None:
    async with Client(url(server), name="joe/1") as joe, Client(url(server), name="ann/1") as ann:
        async with joe.presence("/room", data={"name": "Joe"}) as seen:
            assert seen.id == "joe"
            assert {each.id: each.data for each in seen.members.values()} == {"joe": {"name": "Joe"}}
            async with ann.presence("/room") as of_ann:
                assert set(of_ann.members) == {"joe", "ann"}
                assert await changes(seen, 1) == [("join", "ann")]
                await of_ann.update("typing")
                assert await changes(seen, 1) == [("update", "ann")]
                assert seen.members["ann"].data == "typing"
            assert await changes(seen, 1) == [("leave", "ann")]
            assert set(seen.members) == {"joe"}
        async with ann.presence("/room", enter=False) as empty:
            assert (empty.members, empty.id) == ({}, None)
            with pytest.raises(RemoteCallFailedError) as refused:
                await empty.update(1)
            assert refused.value.data["errorCode"] == "user.presence.absent"


@pytest.mark.parametrize("error", [NotConnectedError("cut"), asyncio.CancelledError()])
async def test_a_block_that_is_not_entered_leaves_no_member(
    server: Server, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async with Client(url(server), name="joe/1") as joe, Client(url(server), name="ann/1") as ann:
        presence = joe.presence("/room")
        call = presence._remote_call

        async def fail(target: str, fields: Fields) -> Any:
            if fields["action"] == "members":
                raise error
            return await call(target, fields)

        monkeypatch.setattr(presence, "_remote_call", fail)
        with pytest.raises(type(error)):
            await presence.__aenter__()
        async with ann.presence("/room", enter=False) as seen:
            assert seen.members == {}


async def test_a_block_whose_enter_was_not_answered_leaves_no_member(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(url(server), name="joe/1") as joe, Client(url(server), name="ann/1") as ann:
        presence = joe.presence("/room")
        call = presence._remote_call

        async def cut(target: str, fields: Fields) -> Any:
            answer = await call(target, fields)
            if fields["action"] == "enter":
                raise TransportError("cut")
            return answer

        monkeypatch.setattr(presence, "_remote_call", cut)
        with pytest.raises(TransportError):
            await presence.__aenter__()
        async with ann.presence("/room", enter=False) as seen:
            assert seen.members == {}


async def test_a_list_that_fails_after_a_reconnect_is_asked_for_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_presence, "_PAUSES", QUICK)
    failures = [
        NotConnectedError("no session"),
        RemoteCallFailedError("presence", {"errorCode": "resource.unavailable"}),
    ]
    steps = Steps()
    async with (
        asyncio.timeout(LIMIT_S),
        Client(url(server), name="joe/1", on_state=steps) as joe,
        joe.presence("/room") as seen,
    ):
        await steps.reach(State.CONNECTED)
        call = seen._remote_call

        async def fail(target: str, fields: Fields) -> Any:
            if failures:
                raise failures.pop()
            return await call(target, fields)

        monkeypatch.setattr(seen, "_remote_call", fail)
        seen._on_state(Transition(State.CONNECTING, State.CONNECTED, Event.ANSWERED, None, None))
        while seen._is_stale or failures:
            await asyncio.sleep(0.01)
        assert set(seen.members) == {"joe"}


async def test_after_a_restart_it_is_present_again(start_server: StartServer) -> None:
    server = await asyncio.to_thread(start_server)
    async with Client(url(server), name="joe/1") as joe, joe.presence("/room", data=7) as seen:
        await asyncio.to_thread(server.kill)
        server = await asyncio.to_thread(lambda: start_server(*server.store_sets, port=server.port))
        async with Client(url(server)) as other, other.presence("/room", enter=False) as of_other:
            async with asyncio.timeout(LIMIT_S):
                while "joe" not in of_other.members:
                    await anext(of_other)
            assert of_other.members["joe"].data == 7
        assert seen.members["joe"].sessions == 1


async def test_a_refusal_is_an_exception(server: Server) -> None:
    async with Client(url(server)) as client:
        with pytest.raises(ValueError, match="not a channel"):
            client.presence("room")
        with pytest.raises((RemoteCallFailedError, SubscribeRefused)):
            async with client.presence("/meta/x"):
                pass
        with pytest.raises(RemoteCallFailedError, match="may have 1024"):
            async with client.presence("/room", data="x" * 2000):
                pass


def test_the_synchronous_client_does_the_same(server: Server) -> None:
    joe, ann = SyncClient(url(server), name="joe/1"), SyncClient(url(server), name="ann/1")
    with joe, ann, joe.presence("/room", data=1) as seen:
        with ann.presence("/room", data=2) as of_ann:
            change = next(seen)
            assert (change.event, change.member.id, change.member.data) == ("join", "ann", 2)
            assert {name: each.data for name, each in of_ann.members.items()} == {"joe": 1, "ann": 2}
        assert next(seen).event == "leave"
        assert seen.id == "joe"
