"""A server whose address redirects to another one."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from crewel.client import Client, UpgradeRefusedError, WrongAddressError
from tests.cli.command import assert_refused, crewel
from tests.client.support import LIMIT_S
from tests.server_process import Server, serving

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Where the address leads to."""
    with serving(tmp_path_factory.mktemp("server")) as server:
        yield server


class Redirecting:
    """Answers everything with a redirect, but what it is asked for at `/elsewhere`, which it notes."""

    def __init__(self, status: int, target: str) -> None:
        self.url = ""
        self.found: list[str] = []
        self._status, self._target = status, target

    async def answer(self, request: web.Request) -> web.Response:
        """Be the handler."""
        if request.path == "/elsewhere":
            self.found.append(request.method)
            return web.Response(status=404)
        return web.Response(status=self._status, headers={"Location": self._target} if self._target else {})


@asynccontextmanager
async def redirecting(status: int, target: str) -> AsyncIterator[Redirecting]:
    """A server that answers like this."""
    made, app = Redirecting(status, target), web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/cometd"
        yield made
    finally:
        await runner.cleanup()


def client_of(url: str, transport: str) -> Client:
    """A client that would try for long."""
    return Client(url, transports=[transport], open_timeout=LIMIT_S * 10, token="secret")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_of_a_request_is_not_followed_and_names_the_address(status: int) -> None:
    async with redirecting(status, "/elsewhere") as redirects:
        with pytest.raises(WrongAddressError, match=f"answered {status} .*, a redirect to /elsewhere: .* that address"):
            await client_of(redirects.url, "long-polling").__aenter__()
        assert redirects.found == []


async def test_the_password_of_the_new_address_is_not_shown() -> None:
    async with redirecting(308, "https://joe:hidden@crewel.example/cometd") as redirects:
        with pytest.raises(WrongAddressError, match=r"a redirect to https://crewel\.example/cometd:") as raised:
            await client_of(redirects.url, "long-polling").__aenter__()
    assert "hidden" not in str(raised.value)


async def test_a_redirect_to_nowhere_is_an_answer_as_any_other() -> None:
    async with redirecting(302, "") as redirects:
        with pytest.raises(WrongAddressError, match=r"/cometd answered 302 Found$"):
            await client_of(redirects.url, "long-polling").__aenter__()


@pytest.mark.parametrize("words", [("list",), ("activate", "joe/1")], ids=["GET", "POST"])
async def test_a_redirect_of_an_operators_command_is_not_followed_and_names_the_address(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    async with redirecting(302, "/elsewhere") as redirects:
        options = f"--url={redirects.url}", "--token=secret"
        ended = await asyncio.to_thread(crewel, "sessions", *words, *options, directory=tmp_path)
        assert_refused(ended, "answered 302 Found, a redirect to /elsewhere", "use that address")
        assert redirects.found == []


async def test_a_redirect_of_an_upgrade_is_followed(server: Server) -> None:
    async with (
        redirecting(301, server.url) as redirects,
        Client(redirects.url, transports=["websocket"]) as client,
    ):
        messages = await client.subscribe("/redirected")
        await client.publish("/redirected", 1)
        assert (await messages.receive(LIMIT_S)).data == 1


async def test_an_upgrade_that_the_new_address_refuses_names_both_addresses() -> None:
    async with redirecting(302, "/elsewhere") as redirects:
        elsewhere = redirects.url.replace("cometd", "elsewhere")
        with pytest.raises(UpgradeRefusedError, match=f"^{redirects.url}, redirected to {elsewhere}, answered 404"):
            await client_of(redirects.url, "websocket").__aenter__()
        assert redirects.found == ["GET"]
