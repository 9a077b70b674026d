"""Two pages in a real browser: one asks, the other answers, and so does a script that is no page."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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

RETURN = """
(isDecoding) => new Promise(async (resolve) => {
    const {BinaryExtension} = await import("/static/vendor/cometd/cometd.js");
    if (isDecoding) {
        cometd.registerExtension("binary", new BinaryExtension());
    }
    window.types = [];
    cometd.subscribe("/bytes", (message) => {
        types.push(typeof message.data.data);
        const {channel, data, ext} = requesting.createResponse(message);
        cometd.publish(channel, data, {ext});
    }, resolve);
})
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


@pytest.mark.parametrize(
    ("pages", "is_decoding"),
    [
        pytest.param(("websocket", "long-polling"), False, id="as it came"),
        pytest.param(("long-polling", "websocket"), True, id="decoded"),
    ],
    indirect=["pages"],
)
def test_a_page_returns_bytes_with_their_content_type(pages: list[Page], server: Server, is_decoding: bool) -> None:
    async def ask(data: bytes) -> tuple[bytes | None, str | None]:
        async with Client(server.url, update=True) as client:
            answer = await client.request("/bytes", data, content_type="image/png", timeout=10)
            return answer.content, answer.content_type

    _, page = pages
    assert page.evaluate(RETURN, is_decoding)["successful"]
    with ThreadPoolExecutor(1) as pool:  # this thread has the event loop of the browser
        for data in (b"\0\xff" * 5, b"a", b""):
            asking = pool.submit(asyncio.run, ask(data))
            while not asking.done():
                page.wait_for_timeout(10)
            assert asking.result() == (data, "image/png")
    assert page.evaluate("types") == ["object" if is_decoding else "string"] * 3
