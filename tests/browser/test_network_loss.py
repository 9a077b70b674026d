"""The operator's page says within three seconds that its device is offline, and is up to date when that is back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.person import COUNT_CHANGES
from tests.browser.test_console import Console, keeping, mess
from tests.functional.wire import until
from tests.patience import patience
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)
__all__ = ["mess"]

LOSS_MS = 3000
LOST = "This device is offline. This page tries again."
OF_THE_LOSS = ("net::ERR_INTERNET_DISCONNECTED", "Could not negotiate transport")
"""What the browser says of it; and cometd, if it was about to shake hands."""


def close(console: Console) -> None:
    """Close the page, which may have complained of the loss only."""
    console.complaints = [each for each in console.complaints if not any(words in each for words in OF_THE_LOSS)]
    console.close()


def test_loss_of_the_network_is_on_screen_within_three_seconds(browser: Browser, mess: Server) -> None:
    console = Console(browser, mess).open("/audit")  # a view that asks seldom
    page = console.page
    expect(page.get_by_role("alert")).to_be_hidden()
    console.context.set_offline(True)
    expect(page.get_by_role("alert")).to_have_text(LOST, timeout=LOSS_MS * patience())
    console.context.set_offline(False)
    expect(page.get_by_role("alert")).to_be_hidden(timeout=2 * LOSS_MS * patience())
    close(console)


def test_an_answer_that_was_on_its_way_does_not_hide_the_loss(browser: Browser, mess: Server) -> None:
    console = Console(browser, mess).open("/audit")
    page = console.page
    held: list[Route] = []
    page.route("**/admin/api/audit*", keeping(held))
    page.goto(f"{mess.base}/admin/#/audit?what=sign")
    until(lambda: page.evaluate("1") and held)
    asked = held[:]
    answer = asked[0].fetch()
    console.context.set_offline(True)
    alert = page.get_by_role("alert")
    expect(alert).to_be_visible()
    for each in asked:
        each.fulfill(response=answer)
    expect(page.locator("tbody tr").first).to_contain_text("sign in")
    expect(alert).to_have_text(LOST, timeout=LOSS_MS * patience())
    page.unroute("**/admin/api/audit*")
    console.context.set_offline(False)
    expect(alert).to_be_hidden(timeout=2 * LOSS_MS * patience())
    close(console)


def test_loss_is_read_aloud_once(browser: Browser, mess: Server) -> None:
    console = Console(browser, mess).open("/audit")
    page = console.page
    console.context.set_offline(True)
    expect(page.get_by_role("alert")).to_have_text(LOST)
    page.get_by_role("alert").evaluate(COUNT_CHANGES)
    for _ in range(3):  # the page asks again and again
        with page.expect_event("requestfailed"):
            pass
    assert page.evaluate("changes") == 0
    console.context.set_offline(False)
    expect(page.get_by_role("alert")).to_be_hidden()
    close(console)
