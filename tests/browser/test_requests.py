"""Two pages in a real browser: one asks, the other answers, and so does a script that is no page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from crewel.client import Client, Message
from tests.server_process import Server

OPEN = """
async (transport) => {
    const {CometD, AckExtension} = await import("/static/vendor/cometd/cometd.js");
    const requesting = await import("/extensions/request.js");
    const cometd = new CometD();
    cometd.configure({url: `${location.origin}/cometd`, logLevel: "error"});
    cometd.getTransportTypes().filter((type) => type !== transport).forEach((type) => cometd.unregisterTransport(type));
    const requests = new requesting.RequestExtension({timeout: 5000});
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("request", requests);
    await new Promise((resolve) => cometd.handshake(resolve));
    Object.assign(window, {cometd, requests, requesting});
}
"""
ANSWER = """
() => new Promise((resolve) => requests.reply("/power", (message) => {
    if (typeof message.data !== "number") {
        throw new requesting.ErrorAnswer("user.illegalArgument", "no number");
    }
    return message.data ** 2;
}, {}, resolve))
"""
ASK = """
([channel, data, timeout]) => requests.request(channel, data, {timeout}).then(
    (answer) => answer.data, (error) => `${error.name}: ${error.message}`)
"""
MANY = """
() => Promise.all([...Array(50).keys()].map((n) => requests.request("/power", n)))
    .then((answers) => answers.map((answer) => answer.data))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(["--port=0"], tmp_path_factory.mktemp("server"))
    yield server
    assert server.close() == 0
    assert "Traceback" not in server.stderr


@pytest.fixture(params=[("websocket", "long-polling"), ("long-polling", "websocket")], ids=":".join)
def pages(request: pytest.FixtureRequest, browser: Browser, server: Server) -> Iterator[list[Page]]:
    """Two pages with their clients; whatever their consoles complain of fails the test."""
    complaints: list[str] = []
    contexts = [browser.new_context() for _ in range(2)]
    pages = [context.new_page() for context in contexts]
    for page, transport in zip(pages, request.param, strict=True):
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{server.base}/chat/")
        page.evaluate(OPEN, transport)
    yield pages
    for context in contexts:
        context.close()
    assert not complaints


def test_a_page_asks_and_another_answers(pages: list[Page]) -> None:
    asking, answering = pages
    assert answering.evaluate(ANSWER)["successful"]
    assert asking.evaluate(ASK, ["/power", 7, 5000]) == 49
    assert asking.evaluate(ASK, ["/power", "x", 5000]) == "ErrorAnswer: no number"
    assert asking.evaluate(ASK, ["/nobody", 1, 200]) == "AnswerTimeoutError: /nobody: no answer within 200 ms"
    assert asking.evaluate(MANY) == [number**2 for number in range(50)]
    assert asking.evaluate("[requests.pending, requests.late, requests.duplicates]") == [0, 0, 0]


def test_a_page_asks_a_script_and_a_script_asks_a_page(pages: list[Page], server: Server) -> None:
    asking, answering = pages
    assert answering.evaluate(ANSWER)["successful"]
    ready, done = threading.Event(), threading.Event()
    answers: list[object] = []

    def double(message: Message) -> int:
        return int(message.data) * 2

    async def script() -> None:
        async with asyncio.timeout(30), Client(server.url) as client:
            await client.reply("/double", double)
            answers.append((await client.request("/power", 5)).data)
            ready.set()
            await asyncio.to_thread(done.wait)

    running = threading.Thread(target=asyncio.run, args=(script(),))
    running.start()
    # The page answers while this thread looks after it.
    while running.is_alive() and not ready.is_set():
        asking.wait_for_timeout(10)
    try:
        assert asking.evaluate(ASK, ["/double", 4, 5000]) == 8
    finally:
        done.set()
        running.join()
    assert answers == [25]
