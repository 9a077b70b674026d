"""`connect()` in a real browser: with the server away, killed and back, tokens that expire, and two tabs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page
from playwright.sync_api import TimeoutError as WaitedTooLong

from tests.admin.desk import TOKEN, Desk
from tests.cli.command import crewel
from tests.conftest import StartServer
from tests.ports import free_port
from tests.security.issuer import SECRET, signed
from tests.server_process import ROOT, Server

LIMIT_MS = 60_000
CONNECT = """
async (options) => {
    const {connect} = await import("/extensions/connect.js");
    if (window.tokens) {
        options.token = () => tokens();
    }
    const connection = connect({retry: {minDelay: 100, maxDelay: 400}, ...options});
    const states = [connection.status.state];
    Object.assign(window, {connect, connection, states, seen: [], failed: [], rejected: [], ended: []});
    const told = (error) => { failed.push(error.message); };
    connection.on("status", ({state, reason}) => states.push(reason ? `${state}: ${reason.message}` : state));
    connection.on("ended", ({subscription}) => ended.push(subscription));
    window.hear = (channel, options) => window.connection.subscribe(channel, ({data}) => {
        seen.push(data);
        if (data === "wrong") {
            throw new Error("too hot");
        }
    }, options).catch(told);
    window.say = (channel, data, options) =>
        window.connection.publish(channel, data, {persistent: true, ...options}).catch(told);
}
"""
CONNECTED = "() => connection.status.state === 'connected'"
UNREACHED = "offline: no server, or http.allowed_origins lacks this page"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server that has the pages and the modules. It is never away."""
    server = Server(["--port=0", f"--set=admin.token={TOKEN}"], tmp_path_factory.mktemp("home"))
    yield server
    assert server.close() == 0
    assert "Traceback" not in server.stderr


def opened(context: BrowserContext, home: Server, /, **options: object) -> Page:
    """A page that connects."""
    page = context.new_page()
    page.goto(f"{home.base}/")
    page.evaluate(CONNECT, {"url": "/cometd", **options})
    return page


def until(page: Page, condition: str, argument: object = None) -> None:
    try:
        page.wait_for_function(condition, arg=argument, timeout=LIMIT_MS)
    except WaitedTooLong:
        pytest.fail(f"not {condition}: {page.evaluate('({states, seen, failed, rejected, ended})')}")


def saw(page: Page, *messages: str) -> None:
    """Wait until the page has received just these."""
    until(page, "messages => String(seen) === String(messages)", list(messages))


def publish(server: Server, channel: str, data: str) -> None:
    ended = crewel("pub", channel, f'"{data}"', "--persistent", directory=ROOT, environ={"CREWEL_URL": server.url})
    assert ended.status == 0, ended.err


ASK = """
async () => {
    await connection.reply("/power", ({data}) => data ** 2);
    return (await connection.request("/power", 7)).data;
}
"""
REFUSED = """
async () => {
    const errors = [];
    for (const attempt of [
        () => connection.subscribe("/meta/none", () => {}),
        () => connection.subscribe("/life/a", () => {}, {group: "kitchen"}),
        () => connection.publish("/life/a", 1, {priority: 77}),
        () => connection.request("/absent", 1, {timeout: 50}),
    ]) {
        await attempt().catch(({name, errorCode = ""}) => errors.push(`${name} ${errorCode}`));
    }
    return errors;
}
"""


def test_a_page_connects_subscribes_publishes_and_closes(home: Server, context: BrowserContext) -> None:
    page = opened(context, home, name="life/1")
    assert page.evaluate("connect({url: '/cometd', name: 'life/1'}) === connection")
    page.evaluate(
        "void connection.on('rejected', ({message, error}) => rejected.push(`${message.data}: ${error.message}`))"
    )
    assert page.evaluate("hear('/life/*').then(({reply}) => reply.successful)")
    assert page.evaluate("hear('/life/a').then(({channel}) => channel)") == "/life/a"
    assert page.evaluate("say('/life/b', 'first').then(({successful}) => successful)")
    saw(page, "first")
    page.evaluate("say('/life/b', 'wrong')")
    until(page, "() => String(rejected) === 'wrong: too hot'")
    assert page.evaluate(ASK) == 49
    assert page.evaluate(REFUSED) == [
        "ReplyError create_denied",
        "TypeError ",
        "ReplyError user.illegalArgument",
        "AnswerTimeoutError ",
    ]
    assert page.evaluate("states") == ["connecting", "connected"]
    page.evaluate("connection.close()")
    assert page.evaluate("states") == ["connecting", "connected", "closed"]
    assert (
        page.evaluate("connection.publish('/life/b', 1).catch(({message}) => message)")
        == "/life/b: no connection: closed"
    )
    page.evaluate(CONNECT, {"url": "/cometd", "name": "life/1"})
    until(page, CONNECTED)
    assert page.evaluate("connection.session.reply.reconnected") is False


def test_a_subscription_ends_when_the_page_ends_it(home: Server, context: BrowserContext) -> None:
    page = opened(context, home)
    page.evaluate("Promise.all([hear('/end/a'), hear('/end/a').then((it) => { window.second = it; })])")
    page.evaluate("second.unsubscribe()")
    page.evaluate("say('/end/a', 'one')")
    saw(page, "one")
    page.evaluate(
        "(async () => { window.ending = new AbortController(); await hear('/end/b', {signal: ending.signal}); })()"
    )
    page.evaluate("ending.abort()")
    page.evaluate("(async () => { await say('/end/b', 'lost'); await say('/end/a', 'two'); })()")
    saw(page, "one", "two")
    aborted = "connection.subscribe('/end/c', () => {}, {signal: AbortSignal.abort()}).catch(({name}) => name)"
    assert page.evaluate(aborted) == "AbortError"


def test_a_page_connects_when_the_server_comes_later_and_again_after_a_restart(
    home: Server, start_server: StartServer, context: BrowserContext
) -> None:
    sets, port = [f"http.allowed_origins={home.base}"], free_port()
    page = opened(context, home, url=f"http://127.0.0.1:{port}/cometd", name="late/1", timeout=LIMIT_MS)
    page.evaluate("void hear('/late/a'), void say('/late/a', 'while away')")
    until(page, "() => states.length > 1")
    server = start_server(*sets, port=port)
    saw(page, "while away")
    assert page.evaluate("states") == ["connecting", UNREACHED, "connected"]
    assert page.evaluate("connection.cometd.getTransport().type") == "websocket"
    server.kill()
    until(page, "() => connection.status.state === 'offline'")
    page.evaluate("void hear('/late/b'), void say('/late/b', 'while killed')")
    start_server(*sets, *server.store_sets, port=port)
    saw(page, "while away", "while killed")
    publish(server, "/late/a", "afterwards")
    saw(page, "while away", "while killed", "afterwards")
    assert page.evaluate("failed") == []


def test_a_page_uses_long_polling_where_no_websocket_is_let_through(home: Server, context: BrowserContext) -> None:
    page = context.new_page()
    page.goto(f"{home.base}/")
    page.evaluate(
        "() => { window.WebSocket = class { constructor() { setTimeout(() => this.onclose({code: 1006})); } }; }"
    )
    page.evaluate(CONNECT, {"url": "/cometd"})
    page.evaluate("Promise.all([hear('/poll'), say('/poll', 'here')])")
    saw(page, "here")
    assert page.evaluate("[...states, connection.cometd.getTransport().type]") == [
        "connecting",
        "connected",
        "long-polling",
    ]


def test_a_token_is_asked_for_before_it_expires_and_after_a_refusal(
    home: Server, start_server: StartServer, context: BrowserContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keys = tmp_path_factory.mktemp("keys") / "jwt.secret"
    keys.write_text(SECRET)
    sets = ("security.policy=jwt", "security.jwt_leeway_ms=0", f"http.allowed_origins={home.base}")
    server = start_server(*sets, f"security.jwt_keys={keys}")
    page = context.new_page()
    asked: list[float] = []
    given = {"lifetime": 4.0, "key": SECRET}

    def token() -> str:
        asked.append(time.monotonic())
        if len(asked) == 1:
            raise AssertionError("the back end is away")
        return signed(given["key"], exp=int(time.time() + float(given["lifetime"])), sub="ann", publish=["/chat/*"])

    page.expose_function("tokens", token)
    page.goto(f"{home.base}/")
    page.evaluate(CONNECT, {"url": server.url, "name": "ann/1", "timeout": LIMIT_MS})
    page.evaluate("hear('/chat/a')")
    until(page, CONNECTED)  # the reply to the subscribe may come before that to the first connect
    states = page.evaluate("states")
    assert states[0] == "connecting"
    assert states[1].startswith("offline: no token: ")
    assert states[2:] == ["connected"]
    clients = "() => connection.cometd.getClientId()"
    for _ in range(2):
        client = page.evaluate(clients)
        until(
            page,
            "client => connection.status.state === 'connected' && connection.cometd.getClientId() !== client",
            client,
        )
        assert page.evaluate("connection.session.reply.reconnected")
    assert len(asked) >= 4
    assert set(page.evaluate("states.slice(2)")) == {"connected", "connecting"}
    given["key"] = "another secret that has more than the thirty-two bytes that are asked for"
    until(page, "() => connection.status.state === 'refused'")
    assert not page.evaluate("connection.status.isFinal")
    given.update(key=SECRET, lifetime=3600.0)
    page.evaluate("void say('/chat/a', 'again')")
    saw(page, "again")
    assert page.evaluate("failed") == []
    page.evaluate("connection.close()")
    page.evaluate("() => { delete window.tokens; }")
    page.evaluate(CONNECT, {"url": server.url, "name": "ann/1", "token": "wrong"})
    until(page, "() => connection.status.isFinal")
    assert page.evaluate("connection.status.reason.errorCode") == "user.security.authentication.accessDenied"


def test_a_history_comes_once_over_renewals_and_in_another_session(
    home: Server, start_server: StartServer, context: BrowserContext, tmp_path: Path
) -> None:
    keys = tmp_path / "jwt.secret"
    keys.write_text(SECRET)
    sets = ("security.policy=jwt", "security.jwt_leeway_ms=0", f"http.allowed_origins={home.base}")
    server = start_server(*sets, 'topics."/chat/**".history.max_entries=100', f"security.jwt_keys={keys}")
    page = context.new_page()
    page.expose_function("tokens", lambda: signed(exp=int(time.time()) + 4, sub="ann", publish=["/chat/*"]))
    page.goto(f"{home.base}/")
    page.evaluate(CONNECT, {"url": server.url, "timeout": LIMIT_MS})
    for number in ("1", "2", "3"):
        page.evaluate("number => say('/chat/a', number)", number)
    page.evaluate("hear('/chat/a', {history: {numEntries: 2, newestFirst: false}})")
    saw(page, "2", "3")
    for is_kept, number in ((True, "4"), (False, "5")):
        if not is_kept:
            page.evaluate("connection.session.forget()")
        client = page.evaluate("connection.cometd.getClientId()")
        until(
            page,
            "client => connection.status.state === 'connected' && connection.cometd.getClientId() !== client",
            client,
        )
        assert page.evaluate("connection.session.reply.reconnected") is is_kept
        page.evaluate("number => say('/chat/a', number)", number)
        until(page, "number => seen.includes(number)", number)
    saw(page, "2", "3", "4", "5")
    assert page.evaluate("failed") == []


LATE = """
() => {
    const receive = connection.cometd.receive.bind(connection.cometd);
    Object.assign(window, {held: [], refusals: []});
    connection.cometd.receive = (message) =>
        message.channel === "/meta/connect" && !message.successful ? held.push(message) : receive(message);
    connection.cometd.addListener("/meta/unsuccessful", ({error}) => refusals.push(error));
    window.release = () => {
        connection.cometd.receive = receive;
        held.splice(0).forEach(receive);
    };
}
"""
"""The page learns late that its token has expired, as over a slow network."""
AT_ONCE = """
() => {
    const refused = [];
    connection.on("outbox", async () => {
        refused.push(...await connection.outbox.refused());
    });
    window.sent = Promise.all([
        connection.publish("/chat/a", "published", {persistent: true}),
        connection.subscribe("/chat/b", ({data}) => seen.push(data)),
        connection.request("/chat/power", 7, {timeout: 30000}).then(({data}) => data),
        connection.outbox.publish("/chat/a", "kept"),
    ]).then(([reply, {channel}, answer]) => [reply.successful, channel, answer, refused]);
}
"""


def test_what_is_refused_for_an_expired_token_is_sent_with_the_next_one(
    home: Server, start_server: StartServer, context: BrowserContext, tmp_path: Path
) -> None:
    keys = tmp_path / "jwt.secret"
    keys.write_text(SECRET)
    sets = ("security.policy=jwt", "security.jwt_leeway_ms=0", f"http.allowed_origins={home.base}")
    server = start_server(*sets, f"security.jwt_keys={keys}")
    lifetimes = itertools.chain([3], itertools.repeat(3600))
    page = context.new_page()
    page.expose_function(
        "tokens", lambda: signed(exp=int(time.time() + next(lifetimes)), sub="ann", publish=["/chat/*"])
    )
    page.goto(f"{home.base}/")
    page.evaluate(CONNECT, {"url": server.url, "name": "ann/1", "timeout": LIMIT_MS})
    page.evaluate("hear('/chat/a')")
    page.evaluate("connection.reply('/chat/power', ({data}) => data ** 2).then(() => {})")
    page.evaluate(LATE)
    until(page, "() => held.length === 1")
    page.evaluate(AT_ONCE)
    until(page, "() => refusals.length >= 4")
    assert {each.split(":")[1] for each in page.evaluate("refusals")} == {"token_expired"}
    page.evaluate("release()")
    assert page.evaluate("sent") == [True, "/chat/b", 49, []]
    until(page, "() => String([...seen].sort()) === 'kept,published'")
    until(page, "() => connection.outbox.waiting === 0")
    assert page.evaluate("connection.outbox.refused()") == []


SPOILED = """
() => {
    window.attempts = [];
    window.isSpoiled = true;
    connection.cometd.registerExtension("spoiled", {outgoing(message) {
        if (message.channel === "/busy/a" && isSpoiled) {
            attempts.push(performance.now());
            message.clientId = "unknown";
        }
        return message;
    }});
}
"""


def test_tabs_that_cannot_send_try_with_pauses(home: Server, context: BrowserContext) -> None:
    tabs = [opened(context, home), opened(context, home)]
    for tab in tabs:
        until(tab, CONNECTED)
        tab.evaluate(SPOILED)
    tabs[0].evaluate("hear('/busy/a')")
    tabs[0].evaluate("connection.outbox.publish('/busy/a', 'patience')")
    for tab in tabs:
        until(tab, "() => attempts.length >= 3")
        assert tab.evaluate("connection.outbox.waiting") == 1
        first, second, third = tab.evaluate("attempts.slice(0, 3)")
        assert second - first >= 450  # ms: half of the first pause
        assert third - second >= 950
    for tab in tabs:
        tab.evaluate("() => { isSpoiled = false; }")
    saw(tabs[0], "patience")
    for tab in tabs:
        until(tab, "() => connection.outbox.waiting === 0")


ATTEMPTS = """
() => {
    window.handshakes = 0;
    connection.cometd.addListener("/meta/handshake", () => { handshakes += 1; });
}
"""


def test_two_tabs_share_a_name_and_an_outbox(home: Server, context: BrowserContext) -> None:
    first = opened(context, home, name="tabs/1")
    first.evaluate("hear('/tabs/a')")
    second = opened(context, home, name="tabs/1")
    until(second, "() => connection.status.state === 'waiting'")
    second.evaluate("void hear('/tabs/a')")
    second.evaluate("connection.outbox.publish('/tabs/a', 'by the first')")
    saw(first, "by the first")
    until(second, "() => connection.outbox.waiting === 0")
    first.close(run_before_unload=False)
    until(second, CONNECTED)
    assert second.evaluate("connection.session.reply.reconnected")
    publish(home, "/tabs/a", "for the second")
    saw(second, "for the second")


def test_a_token_takes_no_session_from_another_tab_or_device(
    home: Server, start_server: StartServer, context: BrowserContext, browser: Browser, tmp_path: Path
) -> None:
    keys = tmp_path / "jwt.secret"
    keys.write_text(SECRET)
    sets = ("security.policy=jwt", f"security.jwt_keys={keys}", f"http.allowed_origins={home.base}")
    server = start_server(*sets, "bayeux.max_interval_ms=60000")
    login = {"url": server.url, "name": "ann/1", "token": signed(sub="ann", publish=["/tabs/*"])}
    first = opened(context, home, **login)
    until(first, CONNECTED)
    device = browser.new_context()
    others = [opened(context, home, **login), opened(device, home, **login)]
    for page in others:
        page.evaluate(ATTEMPTS)
        until(page, "() => handshakes >= 2")
        assert page.evaluate("connection.status.state") == "waiting"
    assert first.evaluate("states") == ["connecting", "connected"]
    first.close(run_before_unload=False)
    until(others[0], CONNECTED)
    assert others[0].evaluate("connection.session.reply.reconnected")
    others[1].evaluate("connection.close()")
    others[1].evaluate(CONNECT, {**login, "waits": False})  # which the user may ask for
    until(others[1], CONNECTED)
    others[0].evaluate(ATTEMPTS)
    until(others[0], "() => handshakes >= 2")
    assert others[0].evaluate("connection.status.state") == "waiting"
    assert others[1].evaluate("states") == ["connecting", "connected"]
    device.close()


def test_what_a_user_has_kept_is_not_sent_by_another_user_of_the_browser(home: Server, context: BrowserContext) -> None:
    ann = opened(context, home, name="ann/1", url="/nothing/here")  # nothing is sent
    ann.evaluate("connection.outbox.publish('/users/a', 'from ann')")
    ann.close()
    zoe = opened(context, home, name="zoe/1")
    until(zoe, CONNECTED)
    zoe.evaluate("hear('/users/a')")
    zoe.evaluate("connection.outbox.publish('/users/a', 'from zoe')")
    saw(zoe, "from zoe")
    zoe.evaluate("connection.outbox.drained()")
    again = opened(context, home, name="ann/2")
    saw(zoe, "from zoe", "from ann")
    until(again, "() => connection.outbox.waiting === 0")


AGAIN = """
async (options) => {
    const before = connection;
    before.close();
    window.connection = connect({url: "/cometd", retry: {minDelay: 100, maxDelay: 400}, ...options});
    await before.close();
}
"""


def test_a_closed_connection_leaves_its_successor_alone(home: Server, context: BrowserContext) -> None:
    page = opened(context, home, name="next/1")
    page.evaluate("hear('/next/old')")
    page.evaluate(AGAIN, {"name": "next/1"})
    page.evaluate("hear('/next/new')")
    assert page.evaluate("connection.session.reply.reconnected") is False
    page.evaluate("say('/next/old', 'to none')")
    page.evaluate("say('/next/new', 'to the next')")
    saw(page, "to the next")
    page.reload()
    page.evaluate(CONNECT, {"url": "/cometd", "name": "next/1"})
    until(page, CONNECTED)
    assert page.evaluate("connection.session.reply.reconnected")


OPEN_THINGS = """
() => {
    window.open = {channels: 0, listeners: 0};
    window.BroadcastChannel = class extends BroadcastChannel {
        constructor(name) {
            super(name);
            open.channels += 1;
        }
        close() {
            super.close();
            open.channels -= 1;
        }
    };
    for (const target of [window, document]) {
        for (const [method, step] of [["addEventListener", 1], ["removeEventListener", -1]]) {
            const original = target[method].bind(target);
            target[method] = (type, ...given) => {
                open.listeners += ["pagehide", "pageshow", "offline", "online", "visibilitychange"].includes(type) ? step : 0;
                original(type, ...given);
            };
        }
    }
}
"""
EXTENSIONS = "['session', 'ack', 'update', 'request', 'outbox'].filter((name) => connection.cometd.getExtension(name))"


def test_a_session_that_an_operator_ends_is_not_connected_any_more(home: Server, context: BrowserContext) -> None:
    page = opened(context, home, name="ended/1")
    until(page, CONNECTED)
    page.evaluate("hear('/life/ended')")
    Desk(home).post("/sessions/ended/1/kill")
    until(page, "() => connection.status.isFinal")
    assert page.evaluate("states.at(-1)") == "refused: the session was ended"
    assert page.evaluate(EXTENSIONS) == []
    assert page.evaluate("connection.publish('/life/ended', 1).catch(({message}) => message)")
    assert page.evaluate("connect({url: '/cometd', name: 'ended/1'}) !== connection")


def test_a_connection_that_was_refused_for_good_leaves_nothing_behind(home: Server, context: BrowserContext) -> None:
    holder = opened(context, home, name="final/1")
    until(holder, CONNECTED)
    page = context.new_page()
    page.goto(f"{home.base}/")
    page.evaluate(OPEN_THINGS)
    page.evaluate(CONNECT, {"url": "/cometd", "name": "final/1", "waits": False})
    until(page, "() => connection.status.isFinal")
    assert page.evaluate("open") == {"channels": 0, "listeners": 0}
    assert page.evaluate(EXTENSIONS) == []
    assert page.evaluate("connection.status.reason.errorCode") == "user.configuration.identicalClient"
    holder.evaluate("connection.close()")
    page.evaluate(
        """() => {
            window.refused = connection;
            window.connection = connect({url: "/cometd", name: "final/1"});
        }"""
    )
    until(page, CONNECTED)
    page.evaluate("refused.close()")
    assert page.evaluate("refused.status.state") == "closed"
    assert page.evaluate("connect({url: '/cometd', name: 'final/1'}) === connection")
    page.reload()
    page.evaluate(CONNECT, {"url": "/cometd", "name": "final/1"})
    until(page, CONNECTED)
    assert page.evaluate("connection.session.reply.reconnected")


OTHERS = """
() => {
    window.asked = [];
    const token = () => asked.push("old") && "old";
    const first = {url: "/cometd", name: "same/1", token, session: {maxOpen: 1, ackWait: 9000}, outbox: {name: "a"}};
    const connection = connect({...first, retry: {minDelay: 100}});
    const told = [];
    const again = (options) => {
        try {
            told.push(connect({...first, ...options}) === connection);
        } catch (error) {
            told.push(`${error.name}: ${error.message.replace(location.origin, "")}`);
        }
    };
    again({});
    again({session: {ackWait: 9000, maxOpen: 1}});
    again({waits: true, timeout: 10000, cometd: {}, retry: {minDelay: 100, maxDelay: 5000}});
    again({retry: {}});
    again({token: "secret"});
    again({session: {}});
    again({outbox: false});
    again({outbox: {name: "a", onRefused() {}}});
    told.push(connect({url: "/cometd", name: "same/1"}) === connection);
    again({token: () => asked.push("new") && "new"});
    return told;
}
"""


def test_a_page_that_connects_again_with_other_options_learns_it(home: Server, context: BrowserContext) -> None:
    page = opened(context, home)
    told = page.evaluate(OTHERS)
    words = (
        "TypeError: the page has a connection to /cometd as same/1 with another {}: leave it out, or close() it before"
    )
    differing = ["retry", "token", "session", "outbox", "outbox"]
    assert told == [True, True, True, *map(words.format, differing), True, True]
    until(page, "() => asked.length > 0")
    assert page.evaluate("asked[0]") == "new"  # the function of the latest call


def test_the_console_has_few_red_lines_while_the_server_is_away(home: Server, context: BrowserContext) -> None:
    """With the default pauses, for 20 seconds from the start of the page. docs/reference/browser.md says how many."""
    page = context.new_page()
    plain = f"{home.base}/plain"  # without a content security policy, whose violations are lines of their own
    page.route(plain, lambda route: route.fulfill(content_type="text/html", body="<!doctype html>"))
    page.goto(plain)
    lines: list[str] = []
    page.on("console", lambda message: lines.append(message.text) if message.type == "error" else None)
    page.evaluate(CONNECT, {"url": f"http://127.0.0.1:{free_port()}/cometd", "retry": {}})
    page.wait_for_timeout(20_000)
    assert page.evaluate("states") == ["connecting", UNREACHED]
    # The pauses are 0.5 to 1 s, 1 to 2, 2 to 4, and then 2.5 to 5 s, and every second attempt takes both transports.
    assert 9 <= len(lines) <= 15, lines
    assert all("ERR_CONNECTION_REFUSED" in line for line in lines), lines


NETWORK = """
() => {
    window.taken = []; // ms between what the browser said of its network and the status after it
    for (const event of ["offline", "online"]) {
        window.addEventListener(event, () => {
            const since = performance.now();
            const forget = connection.on("status", () => taken.push(performance.now() - since) && forget());
        }, {capture: true});
    }
}
"""
DEVICE_OFFLINE = "offline: this device is offline"
LONG = {"minDelay": 60_000, "maxDelay": 60_000}
"""Pauses that no test waits for."""


@pytest.mark.parametrize("transport", ["websocket", "long-polling"])
def test_a_page_whose_device_is_offline_says_so_at_once_and_is_back_at_once(
    home: Server, context: BrowserContext, transport: str
) -> None:
    page = context.new_page()
    page.goto(f"{home.base}/")
    page.evaluate(NETWORK)  # before the connection hears of it
    if transport == "long-polling":
        page.evaluate("() => { window.WebSocket = undefined; }")
    page.evaluate(CONNECT, {"url": "/cometd", "name": f"{transport}/1", "retry": LONG})
    page.evaluate("hear('/away/a')")
    until(page, CONNECTED)
    assert page.evaluate("connection.cometd.getTransport().type") == transport
    context.set_offline(True)
    until(page, "() => connection.status.state === 'offline'")
    publish(home, "/away/a", transport)
    context.set_offline(False)
    saw(page, transport)
    assert page.evaluate("states") == ["connecting", "connected", DEVICE_OFFLINE, "connected"]
    offline, online = page.evaluate("taken")
    assert max(offline, online) < 10_000  # and not the pause


def test_a_page_that_starts_offline_says_so_and_connects_as_soon_as_it_can(
    home: Server, context: BrowserContext
) -> None:
    page = opened(context, home, name="start/1")
    context.set_offline(True)
    page.evaluate("connection.close()")
    page.evaluate(CONNECT, {"url": "/cometd", "name": "start/2", "retry": LONG})
    until(page, "() => states.length > 1")
    context.set_offline(False)
    until(page, CONNECTED)
    assert page.evaluate("states") == ["connecting", DEVICE_OFFLINE, "connected"]


def test_a_server_that_an_offline_device_reaches_is_used(home: Server, context: BrowserContext) -> None:
    """As one on the same device."""
    page = opened(context, home, name="here/1")
    page.evaluate("hear('/here/a')")
    until(page, CONNECTED)
    page.evaluate("() => { Object.defineProperty(navigator, 'onLine', {value: false}); }")
    page.evaluate("() => { window.dispatchEvent(new Event('offline')); }")
    until(page, CONNECTED)
    assert page.evaluate("states") == ["connecting", "connected", DEVICE_OFFLINE, "connected"]
    publish(home, "/here/a", "on the device")
    saw(page, "on the device")


HANDSHAKES = """
async () => {
    const {CometD} = await import("/static/vendor/cometd/cometd.js");
    const cometd = new CometD();
    cometd.configure({url: "/cometd", logLevel: "warn"});
    const errors = [];
    let left = 1;
    await new Promise((resolve) => {
        cometd.addListener("/meta/handshake", ({successful}) => {
            if (successful && left-- > 0) {
                try {
                    cometd.handshake();
                } catch ({message}) {
                    errors.push(message);
                }
                cometd.disconnect(() => setTimeout(() => cometd.handshake(resolve)));
            }
        });
        cometd.handshake();
    });
    cometd.disconnect();
    return errors;
}
"""


def test_the_official_client_makes_no_handshake_in_a_listener_of_handshakes(
    home: Server, context: BrowserContext
) -> None:
    """As docs/reference/browser.md says."""
    page = context.new_page()
    page.goto(f"{home.base}/")
    assert page.evaluate(HANDSHAKES) == ["Illegal state: handshaking"]
