"""That the examples of docs/how-to/request-reply.md do what they say, as they stand there."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crewel.client import Client, ErrorAnswer, create_response
from tests import terminals
from tests.client.support import LIMIT_S
from tests.client.test_documentation import ADDRESS
from tests.conftest import StartServer
from tests.server_process import ROOT

FILE = ROOT / "docs" / "how-to" / "request-reply.md"
PAGE = FILE.read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The code blocks of the page in this language."""
    return [block.text for block in terminals.blocks(FILE) if block.language == language]


def test_the_example_of_xmsg_runs(start_server: StartServer, tmp_path: Path) -> None:
    script = blocks("python")[0]
    assert ADDRESS in script
    command = [sys.executable, "-W", "error", "-c", script.replace(ADDRESS, start_server().url)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout == "[0, 1, 4, 9, 16]\n"
    assert f"`{ended.stdout.strip()}`" in PAGE


def test_the_commands_ask_and_answer(start_server: StartServer, tmp_path: Path) -> None:
    with terminals.Reader(tmp_path, {"CREWEL_URL": start_server().url}) as reader:
        reader.follow(FILE)


async def test_the_shorter_callback_answers_failures_too(start_server: StartServer) -> None:
    space: dict[str, Any] = {}
    exec(blocks("python")[1], space)
    async with asyncio.timeout(LIMIT_S), Client(start_server().url) as client:
        await space["answer_powers"](client)
        assert (await client.request("/data/power", 7)).data == 49
        with pytest.raises(ErrorAnswer, match=r"user\.illegalArgument \(a number is needed\)"):
            await client.request("/data/power", "x")


async def test_the_service_answers(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "powers.py").write_text(blocks("python")[2])
    async with asyncio.timeout(LIMIT_S), Client(start_server(service="powers").url) as client:
        assert (await client.request("/data/power", 7)).data == 49


def test_a_result_is_kept_for_a_while(start_server: StartServer, tmp_path: Path) -> None:
    script = blocks("python")[-1].replace(ADDRESS, start_server().url)
    command = [sys.executable, "-W", "error", "-c", script]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip()
    assert f"`{ended.stdout.strip()}`" in PAGE


async def test_the_page_asks_and_answers(start_server: StartServer) -> None:
    """Under Node, which has no addresses to import from; and the stock client of the page answers it."""
    server = start_server()
    script = blocks("js")[0].replace(ADDRESS, server.url)
    script = script.replace('"/extensions/', f'"{(ROOT / "extensions").as_uri()}/')
    adapted = 'import {adapt} from "cometd-nodejs-client";\nadapt();\nconsole.info = () => {};\n'
    script = adapted + script
    stock = f"""{adapted}
        const {{CometD}} = await import("cometd");
        const cometd = new CometD();
        cometd.configure({{url: "{server.url}"}});
        cometd.addListener("/meta/subscribe", () => console.log("ready"));
        cometd.handshake(() => {{ {blocks("js")[1]} }});
    """
    answering, asking = None, None
    try:
        async with asyncio.timeout(2 * LIMIT_S), Client(server.url) as client:
            answering = await node(stock)
            assert answering.stdout is not None
            assert await answering.stdout.readline() == b"ready\n"
            asking = await node(script)
            assert asking.stdout is not None
            assert await asking.stdout.readline() == b"49\n"
            assert (await client.request("/data/upper", "word")).data == "WORD"
            with pytest.raises(ErrorAnswer, match="a text is needed"):
                await client.request("/data/upper", 5)
    finally:
        for process in (answering, asking):
            if process is not None:
                process.kill()
                await process.wait()


async def node(script: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        "node", "--input-type=module", "--eval", script, cwd=ROOT / "tests" / "interop", stdout=asyncio.subprocess.PIPE
    )


async def test_the_wire_looks_as_the_page_shows_it(start_server: StartServer) -> None:
    subscribe, request, answer, failure = [
        json.loads(line) for block in blocks("json") for line in block.replace(",\n ", ", ").splitlines()
    ]
    url = start_server().url
    async with asyncio.timeout(LIMIT_S), Client(url) as joe, Client(url) as ann:
        requests = await ann.subscribe(request["channel"])
        prefix = f"/ret/{joe.login['replyId']}/"
        asking = asyncio.create_task(joe.request(request["channel"], request["data"]))
        asked = await requests.receive(LIMIT_S)
        assert (asked.reply_to or "").startswith(prefix)
        await ann.publish(*create_response(asked, answer["data"]))
        told = await asking
        assert (told.channel.rpartition("/")[0], told.data) == (prefix.removesuffix("/"), answer["data"])
        assert subscribe["subscription"].endswith("/*")
        asking = asyncio.create_task(joe.request(request["channel"], request["data"]))
        asked = await requests.receive(LIMIT_S)
        await ann.publish(asked.ext["replyTo"], failure["data"], ext=failure["ext"])
        with pytest.raises(ErrorAnswer) as raised:
            await asking
        assert {"errorCode": raised.value.error_code, "message": raised.value.message} == failure["ext"]["error"]
