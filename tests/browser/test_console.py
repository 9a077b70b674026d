"""The operator's page in a real browser, against a real server in a mess."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from crewel.security.sign_in import code
from tests.admin.desk import SETS, TOKEN, Desk, Receiver, audit
from tests.browser.person import COUNT_CHANGES
from tests.browser.test_looks import PHONE, look_at
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)  # the longest takes 20 seconds, but much longer on a machine under load

HOSTILE = "<img src=x onerror=alert(1)>"
BAD_GATEWAY = "<h1>Bad gateway</h1>"


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in a mess that no test changes."""
    server = in_a_mess(tmp_path_factory.mktemp("console"))
    yield server
    server.end_well()


@pytest.fixture
def own_mess(tmp_path: Path) -> Iterator[Server]:
    """One for a test that mends it."""
    server = in_a_mess(tmp_path)
    yield server
    server.end_well()


def in_a_mess(directory: Path) -> Server:
    """Start a server with a receiver on hold, and dead letters of two codes."""
    sets = (
        *SETS,
        "security.policy=jwt",
        f"security.jwt_keys={secret_file(directory)}",
        "bayeux.max_interval_ms=600000",
    )
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
    everything = {"subscribe": ["/**"], "publish": ["/**"]}
    joe = Receiver(server).be("joe/1", token=signed(**everything))
    joe.send(joe.message("/meta/subscribe", subscription="/kitchen/orders", ext={"subscribe": {"filter": "data"}}))
    speaker = Receiver(server).be(token=TOKEN)
    for number in range(6):
        speaker.publish("/kitchen/orders", {"order": number, "note": HOSTILE}, ext={"publish": {"persistent": True}})
    for number in range(3):
        speaker.publish(
            "/kitchen/menu", {"dish": number, "note": HOSTILE}, ext={"publish": {"history": {"maxEntries": 9}}}
        )
    messages = joe.take()
    joe.reject(messages[:2], "user.update.error", HOSTILE)
    joe.reject(messages[2:4], "user.update.illegalArgument", "no such dish")
    joe.reject(messages[4:5], "user.update.holdback", "out of paper")
    until(lambda: len(Desk(server).letters()) == 4)
    return server


class Console:
    """An operator at the page. What the browser complains of fails the test."""

    def __init__(self, browser: Browser, server: Server, **look: Any) -> None:
        self.server = server
        self.complaints: list[str] = []
        self.refusals = ["401"]
        """The statuses that the test expects. A browser reports each; the page asks whether it is signed in."""
        self.context = browser.new_context(**look)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(
            f"status of {each}" in message.text for each in self.refusals
        ):
            self.complaints.append(message.text)

    def open(self, address: str = "/", token: str = TOKEN) -> Console:
        """Sign in with the token, and go to the view."""
        self.page.goto(f"{self.server.base}/admin/#{address}")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()
        return self

    def show(self, view: str) -> None:
        """Go to another view, and wait until it has the answer of the server."""
        address = f"{self.server.base}/admin/#{view}"
        if self.page.url != address:
            self.page.evaluate("() => { document.querySelector('#said').textContent = ''; }")
            self.page.goto(address)
            expect(self.page.locator("#said")).not_to_be_empty()  # the name of the view, when that is there
            expect(self.page.locator("#trouble")).to_be_hidden()
            expect(self.page.get_by_role("heading", name="There is no such view")).to_have_count(0)

    def close(self) -> None:
        self.context.close()
        assert self.complaints == []


def keeping(routes: list[Route]) -> Callable[[Route], None]:
    """What keeps each request in the list, for the test to answer it."""

    def keep(route: Route) -> None:
        routes.append(route)

    return keep


def answering(status: int, body: str = BAD_GATEWAY) -> Callable[[Route], None]:
    """What answers each request as a proxy does."""

    def answer(route: Route) -> None:
        route.fulfill(status=status, body=body, content_type="text/html")

    return answer


@pytest.fixture
def console(browser: Browser, mess: Server) -> Iterator[Console]:
    operator = Console(browser, mess)
    yield operator
    operator.close()


def test_link_signs_in_once_and_leaves_the_address_at_once(console: Console) -> None:
    link = f"{console.server.base}/admin/#code={code(TOKEN)}"
    page = console.page
    page.goto(link)
    expect(page.get_by_role("heading", name="What is wrong")).to_be_visible()
    assert "code" not in page.url
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_role("alert").filter(has_text="has been used")).to_be_visible()


def test_link_signs_in_a_tab_that_has_the_page_open(console: Console) -> None:
    page = console.page
    page.goto(f"{console.server.base}/admin/")
    expect(page.get_by_label("Token")).to_be_visible()
    for _ in range(2):  # in the second round, the tab is signed in
        page.goto(f"{console.server.base}/admin/#code={code(TOKEN)}")
        expect(page.get_by_role("heading", name="What is wrong")).to_be_visible()
        assert "code" not in page.url
        console.show("/jobs")


def test_address_with_a_code_among_its_filters_is_no_link(console: Console) -> None:
    page = console.open("/dead-letters?channel=/kitchen/orders&code=user.update.error").page
    page.reload()
    expect(page.get_by_text("2 dead letters match.")).to_be_visible()


def test_skip_link_leads_to_the_content_of_the_view(console: Console) -> None:
    page = console.open("/jobs").page
    page.get_by_role("link", name="Skip to the content").focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    expect(page).to_have_url(re.compile("#/jobs$"))


def test_address_with_wrong_encoding_is_no_view(console: Console) -> None:
    page = console.open("/jobs").page
    page.goto(f"{console.server.base}/admin/#/topics/100%")
    expect(page.get_by_role("heading", name="There is no such view")).to_be_visible()


def test_what_came_of_an_action_outlives_its_view_and_the_sign_in(console: Console) -> None:
    page = console.open("/receivers/client/joe/1").page
    asked: list[Route] = []
    page.route("**/admin/api/sessions/joe/1/activate", keeping(asked))

    def release() -> Route:
        asked.clear()
        confirm(page, "Release", "paper is in")
        until(lambda: page.evaluate("1") and asked)
        return asked[0]

    answer = {"name": "client/joe/1", "active": True}
    held = release()
    console.show("/jobs")
    held.fulfill(json=answer)
    late = page.get_by_role("region", name="What came of earlier actions")
    expect(late.locator(".outcome")).to_have_text("Released.")
    expect(late.locator(".outcome")).to_have_attribute("data-of", "Release: client/joe/1")
    late.get_by_role("button", name="Close").click()
    expect(late).to_be_hidden()

    console.show("/receivers/client/joe/1")
    release().fulfill(json=answer)
    expect(page.locator("main .outcome")).to_have_text("Released.")
    console.context.clear_cookies()
    expect(page.get_by_text("Your sign-in has ended.")).to_be_visible()
    expect(page.locator("#trouble")).to_be_hidden()
    expect(late).to_contain_text("Released.")
    for token, is_there in ((TOKEN, True), (signed(sub="cook", operator="view"), False)):
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        expect(late).to_be_visible(visible=is_there)
        console.context.clear_cookies()
        expect(page.get_by_text("Your sign-in has ended.")).to_be_visible()


def test_sign_out_that_fails_is_said_until_the_operator_has_read_it(console: Console) -> None:
    console.refusals.append("503")
    page = console.open("/jobs").page
    page.route("**/admin/api/sign-out", answering(503))
    page.get_by_role("button", name="Sign out").click()
    failed = page.get_by_role("region", name="What came of earlier actions")
    expect(failed).to_contain_text("the server answered 503")
    console.show("/audit")
    expect(failed).to_be_visible()
    page.unroute("**/admin/api/sign-out")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    expect(failed).to_be_hidden()


def test_enter_that_is_pressed_twice_or_held_drops_no_queue(console: Console) -> None:
    page = console.open("/receivers/client/joe/1").page
    clear, dialog = page.get_by_role("button", name="Clear", exact=True), page.get_by_role("dialog")
    clear.focus()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(clear).to_be_focused()
    page.keyboard.down("Enter")
    expect(dialog).to_be_visible()
    page.keyboard.down("Enter")  # as a key that is held
    expect(dialog).to_be_visible()
    page.keyboard.up("Enter")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert Desk(console.server).get("/sessions/joe/1")["waiting"] > 0


def test_command_that_changes_something_is_a_question_before_the_list_is_there(console: Console) -> None:
    """And what came of it stands in the next view if the operator has gone there."""
    page = console.page
    listing: list[Route] = []
    run: list[Route] = []

    def keep(route: Route) -> None:
        (listing if route.request.method == "GET" else run).append(route)

    page.route("**/admin/api/commands", keep)
    console.open("/commands?command=client/joe/1/?dispatcherActive=true")
    page.get_by_role("button", name="Run").click()
    until(lambda: page.evaluate("1") and listing)
    listing[0].continue_()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("client/joe/1/?dispatcherActive=true")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert run == []
    page.get_by_role("button", name="Run", exact=True).click()
    dialog.get_by_role("button", name="Run").click()
    until(lambda: page.evaluate("1") and run)
    console.show("/jobs")
    run[0].fulfill(json={"result": "OK"})
    expect(page.get_by_role("region", name="What came of earlier actions")).to_contain_text("OK")


def test_refresh_of_a_list_keeps_the_focus_and_is_not_read_aloud(console: Console) -> None:
    page = console.open("/receivers").page
    why = page.locator("tbody tr", has_text="client/joe/1").locator("summary")
    why.focus()
    page.locator(".chosen [role=status]").evaluate(COUNT_CHANGES)
    page.wait_for_function("each => !each.isConnected", arg=why.element_handle(), timeout=15_000)
    expect(why).to_be_focused()
    assert page.evaluate("changes") == 0


def test_page_without_one_of_its_parts_is_not_blank(console: Console) -> None:
    console.refusals.append("502")
    page = console.page
    part = "**/admin/page/format.js"
    page.route(part, answering(502))
    page.goto(f"{console.server.base}/admin/")
    expect(page.locator("main")).to_contain_text("a part of the page did not arrive: reload it")
    page.unroute(part)
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_answer_of_a_proxy_is_named(console: Console) -> None:
    console.refusals += ["502", "503"]
    page = console.open("/jobs").page
    for state, status, body, text in (
        ("done", 502, BAD_GATEWAY, "The server answered 502."),
        ("failed", 503, '{"error": "no upstream"}', "The server answered 503."),
        ("paused", 200, BAD_GATEWAY, "Something on the way to the server has answered in its place."),
    ):
        page.route("**/admin/api/jobs*", answering(status, body))
        page.goto(f"{console.server.base}/admin/#/jobs?state={state}")
        expect(page.locator("#trouble")).to_have_text(text)
        page.unroute("**/admin/api/jobs*")


def test_job_that_cannot_be_asked_for_a_while_has_not_failed(browser: Browser, own_mess: Server) -> None:
    console = Console(browser, own_mess).open("/dead-letters?code=user.update.error")
    console.refusals.append("502")
    page = console.page
    failed: list[str] = []

    def answer(route: Route) -> None:
        if len(failed) < 2:
            failed.append(route.request.url)
            answering(502)(route)
        else:
            route.continue_()

    page.route(re.compile(r"/admin/api/jobs/\d+-\d+"), answer)
    page.get_by_role("button", name="Select all 2 that match").click()
    page.get_by_role("button", name="Redrive", exact=True).click()
    page.get_by_label("per second").fill("0.5")
    page.get_by_role("dialog").locator(".primary").click()
    expect(page.locator(".outcome")).to_contain_text("2 dead letters redriven. Job")
    assert len(failed) == 2
    console.close()


def test_audit_has_the_words_of_the_page_and_times(browser: Browser, own_mess: Server) -> None:
    desk = Desk(own_mess)
    desk.post("/sessions/joe/1/activate", {"reason": "paper is in"})
    desk.post("/jobs", {"what": "discard", "all": True, "code": "user.update.error"})
    console = Console(browser, own_mess).open("/audit?what=release")
    entry = console.page.locator("tbody tr")
    expect(entry).to_have_count(1)
    expect(entry).to_contain_text(re.compile("release.*client/joe/1.*paper is in"))
    exported = console.page.get_by_role("link", name="Export").evaluate(
        "each => fetch(each.href).then((answer) => answer.text())"
    )
    assert [json.loads(line)["reason"] for line in exported.splitlines()] == ["paper is in"]
    console.page.goto(f"{own_mess.base}/admin/#/audit?what=begin")
    expect(entry.first).to_contain_text(re.compile(r"until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"))
    console.close()


def test_overview_follows_the_live_feed_instead_of_asking(console: Console) -> None:
    page = console.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/overview" in request.url else None)
    console.open()
    expect(page.locator("body[data-live=true]")).to_be_attached()
    page.wait_for_load_state("networkidle")
    runs_for = page.locator("dt", has_text="Server runs for").locator("+ dd")
    expect(runs_for).to_be_visible()
    asked.clear()
    expect(runs_for).not_to_have_text(runs_for.inner_text(), timeout=30_000)
    assert asked == []


def test_page_asks_again_when_the_session_of_its_live_feed_was_ended(browser: Browser, own_mess: Server) -> None:
    desk = Desk(own_mess)

    def sessions() -> set[str]:
        return {each["name"] for each in desk.get("/sessions?count=1000")["sessions"]}

    before = sessions()
    console = Console(browser, own_mess).open()
    expect(console.page.locator("body[data-live=true]")).to_be_attached()
    (feed,) = sessions() - before
    desk.post(f"/sessions/{feed.removeprefix('client/')}/kill")
    expect(console.page.locator("body[data-live=false]")).to_be_attached()
    expect(console.page.locator("body[data-live=true]")).to_be_attached()
    console.close()


def test_a_view_tells_an_unreachable_server_from_a_fault_of_the_page(console: Console) -> None:
    page = console.open("/jobs").page
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    trouble = page.locator("#trouble")
    asked = "**/admin/api/jobs*"
    page.route(asked, lambda route: route.fulfill(json={"jobs": [{"what": "redrive"}]}))
    page.goto(f"{console.server.base}/admin/#/jobs?state=done")
    expect(trouble).to_contain_text("This page has a fault")
    page.unroute(asked)
    page.route(asked, lambda route: route.abort())
    page.goto(f"{console.server.base}/admin/#/jobs?state=failed")
    expect(trouble).to_have_text("The server cannot be reached. This page tries again.")
    page.unroute(asked)
    page.goto(f"{console.server.base}/admin/#/jobs")
    expect(trouble).to_be_hidden()
    console.complaints = [each for each in console.complaints if "ERR_FAILED" not in each]


def test_wrong_token_is_refused_with_the_reason(console: Console) -> None:
    page = console.page
    page.goto(f"{console.server.base}/admin/")
    tools = page.locator("#nav, #who, #saved, #keys")
    expect(page.get_by_label("Token")).to_be_visible()
    expect(tools).to_have_count(4)
    for number in range(4):  # they are for those who have signed in
        expect(tools.nth(number)).to_be_hidden()
    page.get_by_role("button", name="Sign in").focus()
    page.keyboard.press("/")  # and so are the keys
    page.get_by_label("Token").fill("not-the-token-of-this-server")
    page.get_by_role("button", name="Sign in").click()
    expect(
        page.get_by_role("alert").filter(has_text="the token is neither the admin token nor a JSON Web Token")
    ).to_be_visible()
    page.get_by_label("Token").fill(signed(operator="view"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("joe, role view")).to_be_visible()
    expect(tools).to_have_count(4)
    for number in range(4):
        expect(tools.nth(number)).to_be_visible()


def test_overview_names_what_is_wrong_and_the_way_to_it(console: Console) -> None:
    page = console.open().page
    held = page.locator("article", has_text="client/joe/1 is on hold")
    expect(held).to_contain_text("out of paper")
    expect(page.locator("article", has_text="dead letters")).to_contain_text("user.update", timeout=15_000)
    expect(page.locator(".tiles div", has_text="Dead letters")).to_contain_text("4")
    expect(page.locator("canvas")).to_have_count(6)
    link = held.get_by_role("link")
    link.focus()
    old = link.element_handle()
    page.wait_for_function("each => !each.isConnected", arg=old, timeout=15_000)  # the next overview is there
    expect(link).to_be_focused()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_role("heading", name="Where is a message?")).to_be_visible()
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_views_look_well(browser: Browser, mess: Server) -> None:
    console = Console(browser, mess, **PHONE).open()
    page = console.page
    expect(page.locator("canvas")).to_have_count(6)
    expect(page.locator("article", has_text="of the last hour")).to_be_visible(timeout=15_000)
    look_at(page, "console-overview")
    for name, address, text in (
        ("receivers", "#/receivers", "client/joe/1"),
        ("receiver", "#/receivers/client/joe/1", '{"filter":"data"}'),
        ("topics", "#/topics", "/kitchen/menu"),
        ("topic", "#/topics/kitchen/menu", HOSTILE),
        ("requests", "#/requests", "No call is waiting"),
        ("audit", "#/audit", "sign in"),
        ("commands", "#/commands", "commands that you may run"),
        ("letters", "#/dead-letters", "user.update.error"),
    ):
        page.goto(f"{mess.base}/admin/{address}")
        expect(page.locator("main").get_by_text(text).first).to_be_visible()
        look_at(page, f"console-{name}")
    page.locator("td a").first.click()
    expect(page.get_by_role("heading", name="Data")).to_be_visible()
    look_at(page, "console-letter")
    page.locator("dd a[href^='#/message/']").click()
    expect(page.locator("td", has_text="dead letter 1")).to_be_visible()
    look_at(page, "console-message")
    console.close()


def confirm(page: Page, button: str, reason: str) -> str:
    """Press the button, give a reason, and confirm; what the question said."""
    page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    told = dialog.inner_text()
    dialog.get_by_label("Reason").fill(reason)
    dialog.locator(".primary").click()
    return told


def test_operator_mends_what_is_wrong_and_a_viewer_cannot(browser: Browser, own_mess: Server) -> None:
    viewer = Console(browser, own_mess).open("/dead-letters", signed(operator="view"))
    expect(viewer.page.get_by_text("dead letters in all")).to_be_visible()
    for name in ("Redrive", "Discard"):
        expect(viewer.page.get_by_role("button", name=name, exact=True)).to_have_count(0)
    viewer.close()

    cook = Console(browser, own_mess).open("/", signed(sub="cook", operator=["operate:/kitchen/orders"]))
    cook.refusals.append("403")
    expect(
        cook.page.locator("main").get_by_role("link", name="client/joe/1")
    ).to_be_visible()  # in place of the overview
    expect(cook.page.get_by_role("link", name="Overview")).to_have_count(0)
    cook.page.goto(f"{own_mess.base}/admin/#/receivers/client/joe/1")
    expect(cook.page.get_by_role("button", name="Release")).to_be_visible()
    expect(cook.page.get_by_role("button", name="End", exact=True)).to_have_count(0)
    cook.page.goto(f"{own_mess.base}/admin/#/topics/kitchen/menu")
    expect(cook.page.get_by_role("alert")).to_contain_text("does not have it on these channels")
    cook.close()
    console = Console(browser, own_mess).open("/dead-letters")
    page = console.page
    page.locator(".groups").get_by_role("link", name="user.update.illegalArgument").click()
    expect(page.get_by_text("2 dead letters match.")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page).to_have_url(re.compile(r"code=user\.update\.illegalArgument"))
    expect(page.locator("tbody tr").first).to_contain_text(HOSTILE)  # as text
    page.get_by_label(re.compile(r"^Select \d")).first.check()
    gone = page.locator("tbody td a").first.inner_text()
    assert "Discards 1 dead letter of the receiver client/joe/1." in confirm(page, "Discard", "wrong dish")
    expect(page.locator(".outcome")).to_have_text("1 dead letter discarded. Undo")
    expect(page.get_by_role("button", name="Redrive", exact=True)).to_be_disabled()  # nothing is selected
    page.get_by_role("button", name="Select the one that matches").click()
    assert "Sends 1 dead letter" in confirm(page, "Redrive", "the dish is there now")
    expect(page.locator(".outcome")).to_contain_text("1 dead letter redriven. Job ")
    expect(page.get_by_text("0 dead letters match.")).to_be_visible()
    expect(page.get_by_role("button", name="Redrive", exact=True)).to_be_disabled()
    follow_a_job(page)
    steer_a_job(page)
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="client/joe/1 is on hold").click()
    expect(page.get_by_text("user.update.holdback: out of paper").first).to_be_visible()
    expect(page.get_by_text("Viewing changes nothing.")).to_be_visible()
    told = confirm(page, "Skip one", "it is out of date")
    assert "Turns the held message into a dead letter." in told
    assert "stays on hold" in told
    expect(page.locator(".outcome")).to_have_text("1 message became a dead letter. The receiver is still on hold.")
    expect(page.get_by_text("no longer in the queue")).to_be_visible()
    expect(page.locator("tr", has_text="an operator skipped a message")).to_contain_text(
        "it is out of date, by admin, messages 1"
    )
    expect(page.locator(".advice", has_text="was skipped")).to_contain_text("Release the receiver.")
    told = confirm(page, "Release", "paper is in")
    assert "Delivers to client/joe/1 again. " in told  # and not the held message first
    assert "gets them when it comes back" in told
    expect(page.get_by_role("button", name="Hold", exact=True)).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.locator("article", has_text="is on hold")).to_have_count(0, timeout=15_000)
    assert any("paper is in" in line for line in audit(own_mess))
    console.refusals.append("404")
    page.goto(f"{own_mess.base}/admin/#/dead-letters/{gone}")
    expect(page.locator("main").get_by_text("It was discarded by admin")).to_contain_text(": wrong dish")
    page.get_by_role("link", name="in the audit").click()
    expect(page.locator("tbody tr")).to_contain_text("wrong dish")
    page.locator("tbody").get_by_role("link", name=gone).click()
    page.go_back()
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr", has_text="begin job: redrive")).to_have_count(2)
    page.locator("tbody").get_by_role("link", name=gone).click()
    page.locator("main").get_by_role("link", name=re.compile(r"^\d+$")).click()
    expect(page.locator("tbody tr")).to_contain_text("discarded by admin")
    console.close()


def test_operator_walks_through_topics_and_enters_commands(browser: Browser, own_mess: Server) -> None:
    console = Console(browser, own_mess).open("/topics")
    page = console.page
    page.get_by_role("button", name="/kitchen/…").click()
    expect(page.get_by_role("button", name="All topics")).to_be_visible()
    expect(page).to_have_url(re.compile(r"pattern=%2Fkitchen%2F\*\*"))
    page.get_by_role("link", name="/kitchen/menu").click()
    expect(page.get_by_role("heading", name="History: 3 messages")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text('"dish":2')
    told = confirm(page, "Clear history", "a new menu")
    assert "Removes 3 messages from the history." in told
    assert "This cannot be undone." in told
    expect(page.get_by_text("The history is empty.")).to_be_visible()
    page.goto(f"{own_mess.base}/admin/#/topics/kitchen/orders")
    expect(page.get_by_role("link", name="client/joe/1")).to_be_visible()  # for whom its messages wait

    page.keyboard.press("g")
    page.keyboard.press("c")
    prompt = page.get_by_role("combobox", name="__cmd:")  # the view before has others until the address has changed
    expect(prompt).to_be_focused()
    prompt.press_sequentially("client/j")
    prompt.press("Tab")
    expect(prompt).to_have_value("client/joe/1/?")
    prompt.press_sequentially("disp")
    expect(page.get_by_role("option")).to_have_count(1)
    prompt.press("ArrowDown")
    prompt.press("Enter")
    expect(page.get_by_role("option")).to_have_count(0)
    prompt.press("Enter")
    results = page.get_by_role("list", name="Results").locator("li")
    expect(results.first).to_contain_text("false")
    expect(page).to_have_url(re.compile("command=client%2Fjoe"))
    prompt.press_sequentially("client/joe/1/?dispatcherActive=true")
    prompt.press("Enter")
    page.get_by_role("dialog").get_by_role("button", name="Run").click()
    expect(results.first).to_contain_text("OK")
    assert Desk(own_mess).get("/sessions/joe/1")["active"] is True
    console.refusals.append("400")
    prompt.fill("client/joe/1/?wrong")
    page.get_by_role("button", name="Run").click()
    expect(results.first).to_contain_text("no session has")
    expect(results).to_have_count(3)
    prompt.fill("")
    prompt.press("ArrowUp")
    prompt.press("ArrowUp")
    expect(prompt).to_have_value("client/joe/1/?dispatcherActive=true")

    page.get_by_role("heading", name="Commands", exact=True).click()
    page.keyboard.press("s")
    page.get_by_label("Name of this view").fill("joe is active?")
    page.get_by_role("button", name="Save this view").click()
    page.keyboard.press("Escape")
    page.goto(f"{own_mess.base}/admin/#/topics")
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    page.keyboard.press("s")
    page.get_by_role("link", name="joe is active?").click()
    expect(prompt).to_have_value("client/joe/1/?wrong")
    page.goto(f"{own_mess.base}/admin/#/commands?command=client/joe/1/?qos")  # as people write it
    expect(prompt).to_have_value("client/joe/1/?qos")
    console.close()


def follow_a_job(page: Page) -> None:
    """From a redrive to one of its messages, which is shown with all that is known of it; and find it by its data."""
    page.locator(".outcome").get_by_role("link", name="Job ").click()
    expect(page.get_by_role("heading", name="Where they are now")).to_be_visible()
    expect(page.locator("tbody tr").first.locator(".mark")).to_have_text("waiting")
    page.locator("tbody td").get_by_role("link").last.click()
    expect(page.get_by_text("First published")).to_be_visible()
    expect(page.locator("dl.facts", has_text="First published")).to_contain_text("Original")
    expect(page.locator("main pre").first).to_contain_text(f'"note": "{HOSTILE}"')
    expect(page.locator("tbody tr")).to_contain_text("filter data")
    page.get_by_role("searchbox").fill("order")
    page.get_by_role("button", name="Find").click()
    expect(page.get_by_role("table", name="Stored messages").locator("tbody tr").first).to_contain_text(HOSTILE)
    expect(page.get_by_role("table", name="Dead letters").locator("tbody tr").first).to_contain_text(HOSTILE)
    page.get_by_role("navigation").get_by_role("link", name="Dead letters", exact=True).click()


def steer_a_job(page: Page) -> None:
    """Begin a job that takes long, leave its page, pause it, let it continue, and stop it."""
    page.locator(".groups").get_by_role("link", name="user.update.error").click()
    expect(page.get_by_text("2 dead letters match.")).to_be_visible()
    page.get_by_role("button", name="Select all 2 that match").click()
    page.get_by_role("button", name="Redrive", exact=True).click()
    page.get_by_label("per second").fill("0.01")
    page.get_by_label("Reason", exact=True).fill("slowly")
    page.get_by_role("dialog").locator(".primary").click()
    expect(page.locator(".outcome")).to_contain_text("of 2 dead letters redriven.")
    page.get_by_role("link", name="Jobs").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("tbody tr", has_text="slowly").get_by_role("link").click()
    for button, state in (("Pause", "paused"), ("Resume", "running"), ("Stop", "stopped")):
        page.get_by_role("button", name=button, exact=True).click()
        page.get_by_role("dialog").locator(".primary").click()
        expect(page.locator("dd .mark")).to_have_text(state)
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
