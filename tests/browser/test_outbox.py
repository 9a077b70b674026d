"""An outbox in a page: what the server never takes, and a database that the browser closes."""

from __future__ import annotations

import pytest
from playwright.sync_api import BrowserContext, Page, Route

from tests.conftest import StartServer
from tests.server_process import Server

PAGE = """
async () => {
    const {CometD, AckExtension} = await import("/static/vendor/cometd/cometd.js");
    const {Outbox} = await import("/extensions/outbox.js");
    globalThis.refused = [];
    const seen = [];
    let look = () => {};
    globalThis.heard = (count) => new Promise((resolve, reject) => {
        setTimeout(() => reject(new Error(`only ${seen.length} came, and ${outbox.waiting} wait`)), 30000);
        look = () => seen.length >= count && outbox.waiting === 0 && resolve(seen);
        look();
    });
    globalThis.outbox = new Outbox({onRefused: ({key}) => refused.push(key), onChange: () => look()});
    globalThis.connected = async (only) => {
        const cometd = new CometD();
        cometd.configure({url: "/cometd", maxBackoff: 100});
        cometd.getTransportTypes().filter((type) => only && type !== only).forEach((type) => cometd.unregisterTransport(type));
        cometd.registerExtension("ack", new AckExtension());
        cometd.registerExtension("outbox", outbox);
        cometd.addListener("/meta/handshake", ({successful}) => successful && cometd.subscribe("/outbox/page", ({data}) => {
            seen.push(data);
            look();
        }));
        cometd.handshake();
        return cometd;
    };
    globalThis.nested = (levels) => levels ? [nested(levels - 1)] : 1;
    globalThis.request = (asked) => new Promise((resolve, reject) => {
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
    });
}
"""

# What an earlier version of the module kept: this one would refuse the half of a pair at once.
LEFT_BEHIND = """
async () => {
    await outbox.publish("/outbox/page", "first");
    await outbox.publish("/outbox/page", nested(70), {key: "deep"});
    const database = await request(indexedDB.open("crewel.outbox"));
    const row = {key: "half", channel: "/outbox/page", data: "\\ud800", ext: {}, refusal: null, isOpen: 1};
    await request(database.transaction("publishes", "readwrite").objectStore("publishes").add(row));
    database.close();
    for (const number of [1, 2, 3]) {
        await outbox.publish("/outbox/page", number);
    }
}
"""


def opened(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.goto(f"{server.base}/")
    page.evaluate(PAGE)
    return page


@pytest.mark.parametrize(
    ("transport", "sets"),
    [("websocket", ()), ("long-polling", ()), ("websocket", ("bayeux.max_batch_messages=4",))],
)
def test_what_the_server_never_takes_is_put_aside_and_the_rest_is_sent(
    start_server: StartServer, context: BrowserContext, transport: str, sets: tuple[str, ...]
) -> None:
    server = start_server(*sets)
    opened(context, server).evaluate(LEFT_BEHIND)
    page = opened(context, server)  # as after a reload
    page.evaluate("(only) => { connected(only); }", transport)
    assert page.evaluate("heard(4)") == ["first", 1, 2, 3]
    assert page.evaluate("refused") == ["deep", "half"]
    kept = {each["key"]: each for each in page.evaluate("outbox.refused()")}
    assert [each["errorCode"] for each in kept.values()] == ["user.illegalArgument"] * 2
    assert "deeper than bayeux.max_depth" in kept["deep"]["message"]
    assert "half of a surrogate pair" in kept["half"]["message"]


# Another message of the page closes the socket each time that the outbox sends.
BESIDE = """
async (channel) => {
    const cometd = await connected("websocket");
    let left = 4;
    cometd.configure({maxSendBayeuxMessageSize: 1000000});
    globalThis.cuts = 0;
    cometd.registerExtension("beside", {outgoing(message) {
        if (message.channel === "/outbox/page" && left > 0) {
            left -= 1;
            cometd.publish("/other", "x".repeat(100000), () => { cuts += 1; });
        }
        return message;
    }});
    await outbox.publish("/outbox/page", "innocent");
}
"""


def test_a_socket_that_another_message_of_the_page_closes_refuses_nothing(
    start_server: StartServer, context: BrowserContext
) -> None:
    page = opened(context, start_server())
    page.evaluate(BESIDE)
    assert page.evaluate("heard(1)") == ["innocent"]
    assert page.evaluate("cuts") >= 1
    assert page.evaluate("refused") == []


def test_a_400_of_a_proxy_refuses_nothing(start_server: StartServer, context: BrowserContext) -> None:
    page = opened(context, start_server())
    answered: list[str] = []

    def answer(route: Route) -> None:
        if "innocent" in (route.request.post_data or "") and len(answered) < 4:
            answered.append(route.request.url)
            route.fulfill(status=400, content_type="text/plain", body="bad request")
        else:
            route.continue_()

    page.route("**/cometd**", answer)
    page.evaluate("void connected('long-polling')")
    page.evaluate("outbox.publish('/outbox/page', 'innocent')")
    assert page.evaluate("heard(1)") == ["innocent"]
    assert len(answered) == 4
    assert page.evaluate("refused") == []


# The server is full for a channel until another channel has had its turn.
FULL = """
async () => {
    const cometd = await connected();
    const publish = cometd.publish.bind(cometd);
    let isFull = true;
    cometd.publish = (channel, data, fields, answered) => {
        isFull = isFull && channel !== "/outbox/page";
        if (isFull) {
            const ext = {publish: {errorCode: "resource.exhaust", message: "full", retryAfter: 100}};
            setTimeout(() => answered({successful: false, error: "429:limits.max_channels:resource.exhaust", ext}));
        } else {
            publish(channel, data, fields, answered);
        }
    };
    for (let number = 0; number < 60; number += 1) {
        await outbox.publish("/outbox/new", number);
    }
    await outbox.publish("/outbox/page", "other");
}
"""


def test_a_cap_of_the_server_keeps_only_the_channel_waiting_that_it_stops(
    start_server: StartServer, context: BrowserContext
) -> None:
    page = opened(context, start_server())
    page.evaluate(FULL)
    assert page.evaluate("heard(1)") == ["other"]
    assert page.evaluate("refused") == []


def test_a_database_that_the_browser_closes_is_opened_again(start_server: StartServer, context: BrowserContext) -> None:
    server = start_server()
    page = opened(context, server)
    page.evaluate("outbox.publish('/outbox/page', 'cleared')")
    cleared = {"origin": server.base, "storageTypes": "indexeddb"}
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", cleared)
    page.evaluate("Promise.all([1, 2, 3].map((each) => outbox.publish('/outbox/page', each)))")
    page.evaluate("void connected()")
    assert page.evaluate("heard(3)") == [1, 2, 3]
    assert page.evaluate("outbox.refused()") == []


def test_a_database_that_another_page_wants_is_closed(start_server: StartServer, context: BrowserContext) -> None:
    server = start_server()
    page = opened(context, server)
    page.evaluate("outbox.publish('/outbox/page', 1)")
    other = opened(context, server)
    assert other.evaluate("request(indexedDB.deleteDatabase('crewel.outbox')).then(() => 'deleted')") == "deleted"
    page.evaluate("outbox.publish('/outbox/page', 2)")
    assert page.evaluate("outbox.waiting") == 1
    version = "request(indexedDB.open('crewel.outbox', 2)).then(({version}) => version)"
    assert other.evaluate(version) == 2
    error = page.evaluate("outbox.publish('/outbox/page', 3).catch((error) => error.name)")
    assert error == "VersionError"
