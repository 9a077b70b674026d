"""Pages of another site than the server, with the official client. 127.0.0.1 and localhost are two sites; ports are not."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.conftest import StartServer
from tests.house.source import ROOT

COMETD = ROOT / "static" / "vendor" / "cometd"
USE = """
async ([url, transport, limit]) => {
    const {CometD} = await import("/cometd.js");
    const cometd = new CometD();
    for (const each of cometd.getTransportTypes()) {
        if (each !== transport) {
            cometd.unregisterTransport(each);
        }
    }
    cometd.configure({url});
    const errors = [];
    cometd.addListener("/meta/unsuccessful", (reply) => errors.push(reply.error || "no answer"));
    let handshakes = 0;
    cometd.addListener("/meta/handshake", () => handshakes++);
    const heard = await new Promise((resolve) => {
        setTimeout(() => resolve("nothing"), limit);
        cometd.addListener("/meta/handshake", (reply) => {
            if (reply.successful) {
                cometd.subscribe("/cross", (message) => resolve(message.data), (answer) => {
                    if (answer.successful) {
                        cometd.publish("/cross", "hello");
                    }
                });
            }
        });
        cometd.handshake();
    });
    return {heard, handshakes, errors};
}
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the official client, and logs nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server of pages."""
    handler = functools.partial(Quiet, directory=str(COMETD))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield served.server_address[1]
        served.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("transport", "sets"),
    [
        ("long-polling", ()),
        ("long-polling", ("bayeux.cookie_same_site=none", "bayeux.cookie_partitioned=true")),
        ("websocket", ()),
    ],
)
@pytest.mark.parametrize("site", ["localhost", "127.0.0.1"])
def test_a_page_of_an_allowed_origin_works(
    browser: Browser, port: int, start_server: StartServer, site: str, transport: str, sets: tuple[str, ...]
) -> None:
    origin = f"http://{site}:{port}"
    server = start_server(f"http.allowed_origins={origin}", *sets)
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{origin}/")
    assert page.evaluate(USE, [server.url, transport, 10000]) == {"heard": "hello", "handshakes": 1, "errors": []}
    cookies = [each for each in context.cookies(server.url) if each["name"] == "BAYEUX_BROWSER"]
    assert bool(cookies) is (site == "127.0.0.1" and transport == "long-polling")
    context.close()


def test_a_page_in_a_frame_of_another_site_comes_less_and_less_often(
    browser: Browser, port: int, start_server: StartServer
) -> None:
    """Its browser keeps the cookie back, and nothing in its requests shows that."""
    page_of_the_site = f"http://127.0.0.1:{port}"
    server = start_server(f"http.allowed_origins={page_of_the_site}")
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://localhost:{port}/")
    page.set_content(f'<iframe src="{page_of_the_site}/"></iframe>')
    frame = page.wait_for_selector("iframe").content_frame()
    assert frame is not None
    frame.wait_for_url(f"{page_of_the_site}/")
    found = frame.evaluate(USE, [server.url, "long-polling", 3000])
    assert found["heard"] == "nothing"
    assert 1 < found["handshakes"] < 8
    assert "bayeux.cookie_partitioned=true" in server.stderr
    context.close()
