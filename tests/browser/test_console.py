"""The operator's page in a real browser, against a real server in a mess."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from crewel.security.sign_in import code
from tests.admin.desk import SETS, TOKEN, Desk, Receiver
from tests.browser.conftest import SCREENSHOTS
from tests.browser.test_looks import CONTRASTS, LOOKS
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a receiver on hold, dead letters of two codes, and one that is away while messages wait."""
    directory = tmp_path_factory.mktemp("console")
    sets = (
        *SETS,
        "security.policy=jwt",
        f"security.jwt_keys={secret_file(directory)}",
        "bayeux.max_interval_ms=600000",
    )
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
    everything = {"subscribe": ["/**"], "publish": ["/**"]}
    joe = Receiver(server).be("joe/1", token=signed(**everything))
    joe.subscribe("/kitchen/orders")
    speaker = Receiver(server).be(token=TOKEN)
    for number in range(6):
        speaker.publish("/kitchen/orders", {"order": number, "note": HOSTILE}, ext={"publish": {"persistent": True}})
    messages = joe.take()
    joe.reject(messages[:2], "user.update.error", HOSTILE)
    joe.reject(messages[2:4], "user.update.illegalArgument", "no such dish")
    joe.reject(messages[4:5], "user.update.holdback", "out of paper")
    until(lambda: len(Desk(server).letters()) == 4)
    yield server
    server.end_well()


class Console:
    """An operator at the page. What the browser complains of fails the test."""

    def __init__(self, browser: Browser, server: Server, **look: Any) -> None:
        self.server = server
        self.complaints: list[str] = []
        self.context = browser.new_context(**look)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog: {dialog.message}"))

    def _on_console(self, message: Any) -> None:
        # A browser reports each refused request; the page asks whether it is signed in.
        if message.type in ("error", "warning") and "401" not in message.text:
            self.complaints.append(message.text)

    def open(self, address: str = "/", token: str = TOKEN) -> Console:
        """Sign in with the token, and go to the view."""
        self.page.goto(f"{self.server.base}/admin/#{address}")
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        expect(self.page.get_by_role("button", name="Sign out")).to_be_visible()
        return self

    def close(self) -> None:
        self.context.close()
        assert self.complaints == []


@pytest.fixture
def console(browser: Browser, mess: Server) -> Iterator[Console]:
    operator = Console(browser, mess)
    yield operator
    operator.close()


def picture(console: Console, name: str) -> None:
    SCREENSHOTS.mkdir(exist_ok=True)
    console.page.screenshot(path=SCREENSHOTS / f"console-{name}.png", full_page=True)


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


def test_wrong_token_is_refused_with_the_reason(console: Console) -> None:
    page = console.page
    page.goto(f"{console.server.base}/admin/")
    page.get_by_label("Token").fill("not-the-token-of-this-server")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert").filter(has_text="the token is not a JSON Web Token")).to_be_visible()
    page.get_by_label("Token").fill(signed(operator="view"))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("joe, view")).to_be_visible()


def test_overview_names_what_is_wrong_and_the_way_to_it(console: Console) -> None:
    page = console.open().page
    held = page.locator("article", has_text="client/joe/1 is on hold")
    expect(held).to_contain_text("out of paper")
    expect(page.locator("article", has_text="dead letters")).to_contain_text("user.update", timeout=15_000)
    expect(page.locator(".tiles div", has_text="Dead letters")).to_contain_text("4")
    expect(page.locator("canvas")).to_have_count(6)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_have_count(0)


@pytest.mark.parametrize("look", LOOKS)
def test_overview_looks_well(browser: Browser, mess: Server, look: str) -> None:
    console = Console(browser, mess, **LOOKS[look]).open()
    expect(console.page.locator("canvas")).to_have_count(6)
    expect(console.page.locator("article", has_text="new dead letters")).to_be_visible(timeout=15_000)
    picture(console, f"overview-{look}")
    judge(console)
    console.close()


def judge(console: Console) -> None:
    """Every text has enough contrast, and nothing is wider than the window."""
    assert console.page.evaluate(CONTRASTS) == []
    assert console.page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
