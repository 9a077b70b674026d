"""That the examples of the documentation do what it says, against a real server."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.client import Client, HandshakeRefused, PublishRefused, RemoteCallFailedError, SubscribeRefused
from tests.admin.desk import TOKEN
from tests.conftest import StartServer
from tests.house.source import ROOT
from tests.ports import free_port
from tests.server_process import Server

pytestmark = pytest.mark.server

LIMIT_S = 60
ADDRESS = "http://127.0.0.1:8080/cometd"
INTEROP = ROOT / "tests" / "interop"


def example(language: str, server: Server) -> str:
    """Return the README's example in this language, with the server's address in place of its own."""
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert found
    assert ADDRESS in found[1]
    return found[1].replace(ADDRESS, server.url)


def test_the_python_example_hears_itself(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    command = [sys.executable, "-W", "error", "-c", example("python", server)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stdout) == (0, "{'user': 'joe', 'chat': 'hello'}\n"), ended.stderr
    server.end_well()
    assert "waiting messages" not in server.stderr


def test_the_javascript_example_hears_itself(start_server: StartServer) -> None:
    """Under Node, where the client needs the browser's objects from cometd-nodejs-client and does not end by itself."""
    script = f"""
        import {{adapt}} from "cometd-nodejs-client";
        adapt();
        const log = console.log;
        console.log = (...words) => {{ log(...words); process.exit(0); }};
        {example("js", start_server()).replace("@crewel/client", str(ROOT / "extensions" / "connect.js"))}
    """
    command = ["node", "--input-type=module", "--eval", script]
    ended = subprocess.run(command, cwd=INTEROP, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stdout) == (0, "{ user: 'ann', chat: 'hello' }\n"), ended.stderr


def applications() -> list[str]:
    """Return the Python examples of docs/how-to/applications.md: poll, orders, mounting the poll, policy, three extensions."""
    return re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "applications.md").read_text("utf-8"), re.DOTALL
    )


@pytest.fixture
def with_poll(tmp_path: Path) -> Path:
    """Return a directory that holds the service of docs/how-to/applications.md."""
    (tmp_path / "poll.py").write_text(applications()[0])
    return tmp_path


@pytest.fixture
def mounted(with_poll: Path) -> Iterator[str]:
    """Run the aiohttp application of docs/how-to/applications.md; return where it serves Bayeux."""
    port = free_port()
    script = applications()[2].replace("8080", str(port))
    process = subprocess.Popen([sys.executable, "-u", "-c", script], cwd=with_poll, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        assert "Running on" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}/cometd"
        process.terminate()
        process.communicate(timeout=LIMIT_S)


async def use_the_poll(url: str) -> None:
    """Do everything that the example service offers, and what it refuses."""
    async with asyncio.timeout(LIMIT_S), Client(url) as client:
        results = await client.subscribe("/poll/*")
        await client.publish("/service/vote", "tea")
        assert (await anext(results)).data == {"tea": 1}
        assert await client.remote_call("poll/count", "tea") == 1
        with pytest.raises(RemoteCallFailedError):
            await client.remote_call("poll/count", "gin")
        with pytest.raises(PublishRefused, match="404::message_deleted"):
            await client.publish("/service/vote", "coffee")
        with pytest.raises(PublishRefused, match="403:results_come_from_the_server:publish_denied"):
            await client.publish("/poll/result", {"tea": 1000})


@pytest.mark.usefixtures("with_poll")
async def test_the_example_service_counts_votes(start_server: StartServer) -> None:
    await use_the_poll(start_server(service="poll").url)


async def test_the_example_application_mounts_the_service(mounted: str) -> None:
    await use_the_poll(mounted)


async def test_the_example_orders_are_stored_once(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(applications()[1])
    server = start_server(service="orders")
    async with asyncio.timeout(LIMIT_S), Client(server.url) as client:
        kitchen = await client.subscribe("/kitchen/orders")
        for data in ({"number": 17, "pizza": 4}, {"number": 17, "pizza": 4}, {"number": 18}):
            await client.publish("/service/order", data)
        for refused in ({"pizza": 4}, "pizza"):
            with pytest.raises(PublishRefused, match="404::message_deleted"):
                await client.publish("/service/order", refused)
        first, second = await anext(kitchen), await anext(kitchen)
        assert [first.data, second.data] == [{"number": 17, "pizza": 4}, {"number": 18}]
        assert int(first.id or 0) < int(second.id or 0)


async def test_the_example_clock_publishes_from_a_timer_and_a_thread(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "clock.py").write_text(applications()[7])
    server = start_server(service="clock")
    async with asyncio.timeout(LIMIT_S), Client(server.url) as client:
        times, degrees = await client.subscribe("/clock/time"), await client.subscribe("/clock/degrees")
        assert (await anext(times)).data < (await anext(times)).data
        assert (await anext(degrees)).data == 21.5
    server.end_well()


def test_the_example_of_what_is_promised_prints_what_the_page_says(start_server: StartServer, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "explanation" / "guarantees.md").read_text("utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found
    assert ADDRESS in found[1]
    command = [sys.executable, "-W", "error", "-c", found[1].replace(ADDRESS, start_server().url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stdout) == (0, "True\n{'pizza': 4} True\n"), ended.stderr
    assert all(f"`{line}`" in page for line in ended.stdout.splitlines())


async def test_the_example_policy_lets_members_in(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text(applications()[3])
    url = start_server(service="door").url
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(HandshakeRefused):
            async with Client(url):
                pass
        async with Client(url, handshake={"ext": {"token": "sesame"}}) as client:
            await client.subscribe("/chat/demo")
            for channel in ("/staff/room", "/staff/*", "/**", "/*", "/meta/connect"):
                with pytest.raises(SubscribeRefused):
                    await client.subscribe(channel)


async def test_the_example_policy_knows_its_user_after_a_restart_and_keeps_names_to_their_users(
    start_server: StartServer, tmp_path: Path
) -> None:
    door = applications()[3]
    (tmp_path / "door.py").write_text(door.replace('{"sesame": "ann"}', '{"sesame": "ann", "pepper": "bob"}'))
    server = start_server(service="door")
    async with asyncio.timeout(4 * LIMIT_S), Client(server.url, name="ann/1", handshake=shown("sesame")) as client:
        before = client.client_id
        server.kill()
        start_server(*server.store_sets, service="door", port=server.port)
        with pytest.raises(HandshakeRefused, match="logged in as another subject"):
            await Client(server.url, name="ann/1", handshake=shown("pepper")).__aenter__()
        await client.publish("/chat/demo", "again", persistent=True, retry_for=60)
        await client.subscribe("/users/ann")
        with pytest.raises(SubscribeRefused):
            await client.subscribe("/users/bob")
        assert client.client_id == before


def shown(token: str) -> dict[str, Any]:
    """Fields of a handshake that shows this token."""
    return {"ext": {"token": token}}


def from_faye(pattern: str) -> str:
    """Return the example of docs/how-to/from-faye.md that this pattern finds."""
    found = re.search(pattern, (ROOT / "docs" / "how-to" / "from-faye.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert found
    return found[1]


async def test_the_token_in_every_message_is_checked_and_deleted(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "members.py").write_text(from_faye(r'^```python title="members.py"\n(.*?)^```'))
    url = start_server(service="members").url
    shown = {"ext": {"authToken": "sesame"}}
    async with asyncio.timeout(LIMIT_S), Client(url) as client:
        for channel in ("/orders/new", "/**", "/staff/room"):
            with pytest.raises(SubscribeRefused):
                await client.subscribe(channel, **({} if channel == "/orders/new" else shown))
        orders = await client.subscribe("/orders/*", **shown)
        with pytest.raises(PublishRefused, match="403"):
            await client.publish("/orders/new", {"pizzas": 1})
        await client.publish("/orders/new", {"pizzas": 2}, **shown)
        assert (await anext(orders)).fields == {"channel": "/orders/new", "data": {"pizzas": 2, "user": "ann"}}


def test_a_web_server_publishes_through_the_policy_with_the_admin_token(
    start_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "members.py").write_text(from_faye(r'^```python title="members.py"\n(.*?)^```'))
    (tmp_path / "publish.mjs").write_text(from_faye(r'^```js title="publish.mjs"\n(.*?)^```'))
    server = start_server(f"admin.token={TOKEN}", service="members")
    script = """
        import {publish} from "./publish.mjs";
        console.log(await publish("/orders/new", {pizzas: 1}));
        console.log(await publish("/meta/x", 1).catch((error) => error.message));
    """
    ended = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        cwd=tmp_path,
        env=os.environ | {"CREWEL_URL": server.base, "CREWEL_TOKEN": TOKEN},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert ended.stdout.splitlines() == ["undefined", "403:denied_by_security_policy:publish_denied"], ended.stderr


def test_a_faye_client_publishes_again_when_its_session_is_unknown(start_server: StartServer) -> None:
    """Across a restart: without what the page says, the publish fails with 402, and the process with it."""
    server = start_server()
    publish = from_faye(r"^```js\n(async function publish.*?)^```")
    script = f"""
        import faye from "faye";
        import readline from "node:readline";
        const client = new faye.Client("{server.url}", {{retry: 0.2}});
        {publish}
        for await (const line of readline.createInterface({{input: process.stdin}})) {{
            await publish("/orders/new", {{pizzas: Number(line)}});
            console.log("ordered", line);
        }}
    """
    command = ["node", "--input-type=module", "--eval", script]
    with subprocess.Popen(command, cwd=INTEROP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as faye:
        assert faye.stdin is not None
        assert faye.stdout is not None
        hangs = threading.Timer(2 * LIMIT_S, faye.kill)
        hangs.start()
        try:
            print(1, file=faye.stdin, flush=True)
            assert faye.stdout.readline() == "ordered 1\n"
            server.kill()
            print(2, file=faye.stdin, flush=True)
            start_server(port=server.port)
            assert faye.stdout.readline() == "ordered 2\n"
        finally:
            hangs.cancel()
            faye.kill()


async def test_the_example_extension_stamps_and_vetoes(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "stamp.py").write_text(applications()[5])
    (tmp_path / "signed.py").write_text(applications()[6])
    (tmp_path / "readers.py").write_text(applications()[4])
    server = start_server("bayeux.extensions=ack,update,replay,timesync,stamp:Stamp,signed:Signed,readers:Readers")
    async with asyncio.timeout(LIMIT_S), Client(server.url) as client:
        heard = await client.subscribe("/a")
        with pytest.raises(PublishRefused, match="404::message_deleted"):
            await client.publish("/a", "spam")
        await client.publish("/a", "ham")
        assert (await anext(heard)).fields == {"channel": "/a", "data": "ham", "server": "one"}
        await client.publish("/a", {"pizza": 4}, ext={"authToken": "secret"}, persistent=True)
        signed = await anext(heard)
        assert signed.data == {"pizza": 4, "from": "client/anonymous/-1"}
        assert "ext" not in signed.fields
        await heard.unsubscribe()
    server.end_well()
    assert server.stdout_after_ready == "/meta/subscribe /a ['/a']\n/meta/unsubscribe /a []\n"
