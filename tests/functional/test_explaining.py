"""That the server and its commands explain themselves: the Bayeux address in a browser, log lines, an empty pipe."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from crewel.client import Client, PublishRefused
from crewel.version import VERSION
from tests.cli.command import crewel
from tests.conftest import StartServer
from tests.store_process import shared_store

LIMIT_S = 60
NOT_FORWARDED = (
    "a request for a WebSocket came without its Upgrade header: let the proxy forward Upgrade and Connection"
)


@pytest.mark.parametrize(("demos", "has_link"), [("true", True), ("false", False)])
async def test_the_bayeux_address_explains_itself_in_a_browser(
    start_server: StartServer, demos: str, has_link: bool
) -> None:
    server = start_server(f"http.demos={demos}")
    url = server.url
    async with asyncio.timeout(LIMIT_S), aiohttp.ClientSession() as browser:
        async with browser.get(url, headers={"Accept": "text/html,*/*;q=0.8"}) as answer:
            text = await answer.text()
            assert (answer.status, answer.content_type) == (400, "text/html")
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert "This is the address of a Bayeux server" in text
            assert (text.count(f'("{url}")'), f"--url {url}<" in text) == (2, True)
            assert (f'<a href="/chat/">chat</a> of Crewel {VERSION}' in text) is has_link
        async with browser.get(url, headers={"Accept": "application/json"}) as answer:
            assert (answer.status, await answer.text()) == (400, "Unknown Bayeux Transport")
        for _ in range(2):  # as behind a proxy that does not forward Upgrade and Connection
            async with browser.get(url, headers={"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="}) as answer:
                assert (answer.status, await answer.text()) == (400, NOT_FORWARDED)
    server.close()  # all that it has logged is read
    assert server.stderr.count(NOT_FORWARDED) == 1


def pause(ms: int) -> None:
    """Let the store answer nothing for so long."""
    with shared_store().client() as store:
        store.execute_command("CLIENT", "PAUSE", ms)


async def test_what_an_operator_should_know_is_logged(start_server: StartServer) -> None:
    """A hold, the first dead letter, a slow store, refused publishes."""
    server = start_server(
        "storage.slow_ms=20", "limits.publishes_per_s=1", "limits.publishes_burst=100", "limits.exempt_addresses="
    )
    async with (
        asyncio.timeout(LIMIT_S),
        Client(server.url) as shop,
        Client(server.url, name="printer/1", update=True) as printer,
        await printer.subscribe("/orders") as orders,
        Client(server.url, name="fax/1", update=True) as fax,
        await fax.subscribe("/faxes") as faxes,
    ):
        for number in range(3):
            await shop.publish("/orders", number, persistent=True)
        for code in ("user.update.deadMessage", "user.update.deadMessage", "user.update.holdback"):
            (await anext(orders)).reject(code, "out of paper")
        while "store is slow" not in server.stderr:
            await shop.publish("/faxes", 1, persistent=True)
            (await anext(faxes)).settle()
            await asyncio.to_thread(pause, 300)  # longer than until the next commit
        for number in range(1000):
            try:
                await shop.publish("/noise", number)
            except PublishRefused:
                break
        for words in ("is on hold", "first dead letter", "by limits.publishes_per_s"):
            while words not in server.stderr:
                await asyncio.sleep(0.05)
    lines = server.stderr
    assert lines.count("the store is slow: a commit took") == 1
    assert lines.count("the first dead letter since the start") == 1
    assert "client/printer/1 is on hold by client/printer/1 (user.update.holdback, out of paper)" in lines
    assert "crewel sessions activate client/printer/1" in lines


def test_publishing_nothing_says_so(start_server: StartServer, tmp_path: Path) -> None:
    ended = crewel("pub", "/orders", "--url", start_server().url, directory=tmp_path, given="")
    assert (ended.status, ended.out) == (0, "")
    assert ended.err == "crewel: standard input was empty: nothing was published\n"
