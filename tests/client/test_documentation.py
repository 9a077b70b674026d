"""That the examples of the client's pages do what they say, as they stand there."""

import ast
import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from crewel.client import Client
from tests.client.support import LIMIT_S
from tests.conftest import StartServer
from tests.functional.wire import figures, until
from tests.server_process import ROOT, Server
from tests.terminals import Reader, blocks

DEAD = 'crewel_ended_total{reason="dead"}'
ADDRESS = "http://127.0.0.1:8080/cometd"
INTEROP = ROOT / "tests" / "interop"


def block(page: str, language: str, number: int = 0) -> str:
    """A code block of a page in this language, the first one unless a number says otherwise."""
    return [each.text for each in blocks(ROOT / "docs" / page) if each.language == language][number]


def test_the_python_example_runs(server: Server, tmp_path: Path) -> None:
    script = block("how-to/python.md", "python")
    assert ADDRESS in script
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, server.url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == [
        "True",
        "/chat/demo {'user': 'joe', 'chat': 'hello'}",
        "/chat/words one",
        "/chat/words two",
        "/chat/words three",
    ]


def test_the_examples_of_acknowledging_run(start_server: StartServer, tmp_path: Path) -> None:
    """In Python; then on the command line, whose operator finds the admin token in the server's data."""
    server = start_server(f"storage.data_dir={tmp_path / 'data'}")
    script = block("how-to/acknowledging.md", "python")
    assert ADDRESS in script
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, server.url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["baked 2", "baked 4"]
    until(lambda: figures(server).get(DEAD) == 1)
    with Reader(tmp_path, {"CREWEL_URL": server.url}) as reader:
        reader.follow(ROOT / "docs" / "how-to" / "acknowledging.md", "Command line")


async def test_the_example_of_acknowledging_runs_in_a_browser(start_server: StartServer) -> None:
    """Under Node, which has no addresses to import from."""
    server = start_server()
    script = block("how-to/acknowledging.md", "js").replace(ADDRESS, server.url)
    script = script.replace('"/extensions/connect.js"', json.dumps((ROOT / "extensions" / "connect.js").as_uri()))
    script = f'import {{adapt}} from "cometd-nodejs-client";\nadapt();\nconsole.error = () => {{}};\n{script}'
    command = ["node", "--input-type=module", "--eval", script]
    node = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT / "tests" / "interop", stdout=asyncio.subprocess.PIPE
    )
    assert node.stdout is not None
    try:
        async with asyncio.timeout(LIMIT_S), Client(server.url) as shop:
            line = asyncio.create_task(node.stdout.readline())
            while not line.done():  # until it has subscribed
                await shop.publish("/orders", {"pizza": 1}, persistent=True)
                await asyncio.wait([line], timeout=0.2)
            for pizzas in (20, 4):
                await shop.publish("/orders", {"pizza": pizzas}, persistent=True)
            async for said in node.stdout:
                if said == b"baked 4\n":
                    break
            else:
                raise AssertionError("node has ended")
            while (await asyncio.to_thread(figures, server)).get(DEAD) != 1:
                await asyncio.sleep(0.05)
    finally:
        node.kill()
        await node.wait()


def test_the_example_of_taking_over_runs(server: Server, tmp_path: Path) -> None:
    script = block("how-to/sessions.md", "python", 1)
    assert ADDRESS in script
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, server.url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["user.configuration.identicalClient", "True", "while joe is away"]


def test_the_handshake_is_answered_as_the_page_says(server: Server, tmp_path: Path) -> None:
    shown = re.findall(
        r"```json\n(.*?)```", (ROOT / "docs" / "reference" / "sessions.md").read_text("utf-8"), re.DOTALL
    )
    asked, told = map(json.loads, shown)
    asked["ext"]["session"]["name"] = "client/page/1"
    request = Request(server.url, json.dumps(asked).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=LIMIT_S) as response:
        (reply,) = json.load(response)
    assert set(told) <= set(reply)
    secrets = {"name": "", "resume": "", "replyId": ""}
    assert reply["ext"]["session"] | secrets == told["ext"]["session"] | secrets


def test_a_back_end_publishes_as_the_page_says(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(f"storage.data_dir={tmp_path / 'data'}")
    script = block("how-to/security.md", "sh").replace("http://127.0.0.1:8080", server.base)
    ended = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    (reply,) = json.loads(ended.stdout)
    assert (reply["successful"], reply["ext"]["publish"]["state"]) == (True, "OK")


def test_the_curl_script_prints_what_the_page_says(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server()
    directory = tmp_path / "tmp"
    directory.mkdir()
    ended = subprocess.run(
        ["bash", "-c", block("how-to/curl.md", "bash")],
        cwd=directory,
        env=os.environ | {"URL": server.url, "TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    printed = [json.loads(line) for line in ended.stdout.splitlines()]
    promised = [json.loads(line) for line in block("how-to/curl.md", "json").splitlines()]
    assert [without_advice(answer) for answer in printed] == promised
    assert not list(directory.iterdir())


def without_advice(answer: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The page leaves it out, and says so."""
    return [{name: value for name, value in reply.items() if name != "advice"} for reply in answer]


async def test_each_tab_begins_the_history(start_server: StartServer) -> None:
    """Of docs/how-to/topics.md: in Python, in JavaScript under Node, and on the command line."""
    url, page = start_server().url, "how-to/topics.md"
    publish = compile(block(page, "python"), page, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    script = in_node(url, page, 'connection.cometd.addListener("/meta/publish", () => process.exit());')
    async with asyncio.timeout(6 * LIMIT_S), Client(url) as client:
        await eval(publish, {"client": client})
        for command in (["node", "--input-type=module", "--eval", script], ["sh", "-c", block(page, "sh")]):
            async with started(url, command) as tab:
                assert await tab.wait() == 0
        kept = await client.remote_call("get", {"channel": "/chat/demo", "numEntries": -1})
        assert [each["data"] for each in kept["messages"]] == ["hello"] * 3


async def test_each_tab_subscribes_to_a_pattern(server: Server) -> None:
    """Of docs/how-to/subscribing.md: each prints what is published from then on, here on a channel that no other test has."""
    page = "how-to/subscribing.md"
    script = f"""import asyncio
from crewel.client import Client

async def main():
    async with Client("{server.url}") as client:
{textwrap.indent(block(page, "python"), "        ")}
asyncio.run(main())"""
    commands = (
        [sys.executable, "-u", "-c", script],
        ["node", "--input-type=module", "--eval", in_node(server.url, page)],
        ["sh", "-c", f"exec {block(page, 'sh')}"],
    )
    async with asyncio.timeout(6 * LIMIT_S), AsyncExitStack() as stack, Client(server.url) as shop:
        tabs = [await stack.enter_async_context(started(server.url, command)) for command in commands]
        lines = [asyncio.create_task(tab.stdout.readline()) for tab in tabs if tab.stdout is not None]
        while not all(line.done() for line in lines):  # until all have subscribed
            await shop.publish("/stocks/hooli", 7)
            await asyncio.wait(lines, timeout=0.2, return_when=asyncio.ALL_COMPLETED)
        printed = [line.result().decode().strip() for line in lines]
    assert printed[:2] == ["/stocks/hooli 7"] * 2
    assert printed[2].startswith('{"channel":"/stocks/hooli","data":7,')


async def test_each_tab_filters_a_history(server: Server) -> None:
    """Of docs/how-to/subscribing.md."""
    page = "how-to/subscribing.md"
    async with asyncio.timeout(6 * LIMIT_S), Client(server.url) as client:
        for price in (20, 5):
            await client.publish("/stocks/acme", {"price": price}, history_max=10)
        names: dict[str, Any] = {"client": client}
        await eval(compile(block(page, "python", 1), page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        assert (await anext(names["stocks"])).data == {"price": 5}
        for command, printed in (
            (["node", "--input-type=module", "--eval", in_node(server.url, page, number=1)], "{ price: 5 }\n"),
            (["sh", "-c", f"exec {block(page, 'sh', 1)}"], '{"channel":"/stocks/acme","data":{"price":5},'),
        ):
            async with started(server.url, command) as tab:
                assert tab.stdout is not None
                assert (await tab.stdout.readline()).decode().startswith(printed)


async def test_a_session_with_a_name_gets_what_came_meanwhile(server: Server, tmp_path: Path) -> None:
    """The first example of docs/how-to/sessions.md, in Python."""
    script = block("how-to/sessions.md", "python").replace(ADDRESS, server.url)
    secret = tmp_path / "joe.resume"
    async with asyncio.timeout(6 * LIMIT_S), Client(server.url) as ann:
        async with Client(server.url, name="joe/1", resume_file=secret, leave=True) as joe:
            await joe.subscribe("/orders")
        await ann.publish("/orders", "while joe is away", persistent=True)
        async with started(server.url, [sys.executable, "-u", "-W", "error", "-c", script], tmp_path) as program:
            assert program.stdout is not None
            assert await program.stdout.readline() == b"while joe is away\n"


async def test_what_one_excerpt_publishes_the_other_processes(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of docs/how-to/python.md, in one client."""
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path))
    page = "how-to/python.md"
    publish, process = (compile(block(page, "python", n), page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT) for n in (2, 3))
    printed: asyncio.Queue[Any] = asyncio.Queue()
    async with asyncio.timeout(LIMIT_S), Client(server.url) as client:
        names = {"client": client, "print": printed.put_nowait}
        worker = asyncio.create_task(eval(process, names))
        try:
            seen: list[Any] = []
            while {"pizza": 4} not in seen:  # until the worker has subscribed
                await eval(publish, names)
                with suppress(TimeoutError):
                    while True:
                        seen.append(await asyncio.wait_for(printed.get(), 0.2))
            assert isinstance(seen[0], str), "the id of the message"
        finally:
            worker.cancel()


def in_node(url: str, page: str, more: str = "", number: int = 0) -> str:
    """A script that connects, and then does what an example in JavaScript says."""
    return f"""
        import {{adapt}} from "cometd-nodejs-client";
        adapt();
        const {{connect}} = await import({json.dumps((ROOT / "extensions" / "connect.js").as_uri())});
        const connection = connect({{url: "{url}"}});
        {more}
        {block(page, "js", number)}
    """


@asynccontextmanager
async def started(url: str, command: list[str], directory: Path = INTEROP) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run what a tab says against the server; end it, unless it has ended."""
    environ = os.environ | {"CREWEL_URL": url, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    process = await asyncio.create_subprocess_exec(*command, cwd=directory, env=environ, stdout=asyncio.subprocess.PIPE)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
