"""Two tabs of one name: the second takes the session over when the first is closed, also if it is opened after that."""

from playwright.sync_api import BrowserContext, Page

from tests.cli.command import crewel
from tests.conftest import StartServer
from tests.server_process import ROOT, Server

LIMIT_MS = 60_000
SETTLED_MS = 1100
"""After which a page that went has not come back."""
TAB = """
async () => {
    const {CometD, AckExtension} = await import("/static/vendor/cometd/cometd.js");
    const {SessionExtension} = await import("/extensions/session.js");
    const cometd = new CometD();
    const session = new SessionExtension({name: "tab/1"}, {storage: sessionStorage, waits: true});
    Object.assign(window, {cometd, session, seen: [], handshakes: 0});
    cometd.configure({url: "/cometd"});
    cometd.registerExtension("ack", new AckExtension());
    cometd.registerExtension("session", session);
    cometd.addListener("/meta/handshake", reply => {
        window.handshakes += 1;
        if (reply.successful) {
            cometd.subscribe("/orders/*", message => window.seen.push(message.data));
        }
    });
    cometd.handshake();
}
"""
HAS_IT = "() => session.name !== null && cometd.getStatus() === 'connected'"
WAITS = "() => session.isWaiting"


def tab(context: BrowserContext, base: str, until: str) -> Page:
    """A tab in which the client is started."""
    page = context.new_page()
    page.goto(f"{base}/")
    page.evaluate(TAB)
    page.wait_for_function(until, timeout=LIMIT_MS)
    return page


def publish(server: Server, order: int) -> None:
    """Publish an order."""
    ended = crewel("pub", "/orders/new", str(order), "--persistent", directory=ROOT, environ={"CREWEL_URL": server.url})
    assert ended.status == 0, ended.err


def saw(page: Page, *orders: int) -> None:
    """Wait until the tab has received just these."""
    page.wait_for_function("orders => String(seen) === String(orders)", arg=list(orders), timeout=LIMIT_MS)


def test_the_second_tab_waits_and_goes_on_when_the_first_is_closed(
    start_server: StartServer, context: BrowserContext
) -> None:
    server = start_server("bayeux.max_interval_ms=60000")
    first = tab(context, server.base, HAS_IT)
    second = tab(context, server.base, WAITS)
    publish(server, 1)
    saw(first, 1)
    second.wait_for_function("() => handshakes > 1", timeout=LIMIT_MS)
    assert second.evaluate(WAITS)
    first.close(run_before_unload=False)
    publish(server, 2)
    second.wait_for_function(HAS_IT, timeout=LIMIT_MS // 2)  # and not when the server gives the name up
    assert second.evaluate("session.reply.reconnected")
    saw(second, 2)
    third = tab(context, server.base, WAITS)
    publish(server, 3)
    saw(second, 2, 3)
    assert third.evaluate("seen.length") == 0


def test_a_page_that_is_opened_again_continues_the_session_at_once(
    start_server: StartServer, context: BrowserContext
) -> None:
    server = start_server("bayeux.max_interval_ms=60000")
    first = tab(context, server.base, HAS_IT)
    publish(server, 1)
    saw(first, 1)
    first.close(run_before_unload=False)
    publish(server, 2)
    context.new_page().wait_for_timeout(SETTLED_MS)
    second = tab(context, server.base, HAS_IT)
    assert second.evaluate("[session.reply.reconnected, handshakes]") == [True, 1]
    saw(second, 2)
    assert second.evaluate("localStorage.length") == 0


KEPT = "persisted => window.dispatchEvent(new PageTransitionEvent(persisted, {persisted: true}))"
"""What a browser does with a page that it keeps while another one is in its place: back and forward."""


def test_a_page_that_the_browser_shows_again_keeps_its_session(
    start_server: StartServer, context: BrowserContext
) -> None:
    server = start_server("bayeux.max_interval_ms=60000")
    first = tab(context, server.base, HAS_IT)
    first.evaluate(KEPT, "pagehide")
    first.evaluate(KEPT, "pageshow")
    first.wait_for_timeout(SETTLED_MS)
    second = tab(context, server.base, WAITS)
    second.wait_for_function("() => handshakes > 1", timeout=LIMIT_MS)
    assert second.evaluate(WAITS)
    assert first.evaluate(HAS_IT)


def test_a_tab_that_is_reloaded_keeps_its_session(start_server: StartServer, context: BrowserContext) -> None:
    server = start_server("bayeux.max_interval_ms=60000")
    first = tab(context, server.base, HAS_IT)
    second = tab(context, server.base, WAITS)
    first.reload()
    first.evaluate(TAB)
    first.wait_for_function(HAS_IT, timeout=LIMIT_MS)
    before = second.evaluate("handshakes")
    second.wait_for_function("before => handshakes > before + 1", arg=before, timeout=LIMIT_MS)
    assert second.evaluate(WAITS)
    assert first.evaluate(HAS_IT)


def test_without_waits_the_refusal_is_final(start_server: StartServer, context: BrowserContext) -> None:
    server = start_server()
    tab(context, server.base, HAS_IT)
    page = context.new_page()
    page.goto(f"{server.base}/")
    page.evaluate(TAB.replace(", waits: true", ""))
    page.wait_for_function("() => session.refusal !== null && cometd.isDisconnected()", timeout=LIMIT_MS)
    assert not page.evaluate(WAITS)
