"""The operator's page leads from one view to the next, and reads dates as it shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.test_console import Console, in_a_mess
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)  # it takes 10 seconds, but much longer on a machine under load


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with dead letters, which no test changes."""
    server = in_a_mess(tmp_path_factory.mktemp("links"))
    yield server
    server.end_well()


def test_dates_are_in_the_zone_of_the_page(browser: Browser, mess: Server) -> None:
    """All times are shown in it, and a copied one is taken for what it was."""
    console = Console(browser, mess, timezone_id="Europe/Berlin").open("/dead-letters")
    page = console.page
    page.get_by_label("Since").fill("2026-01-02 03:04")
    page.get_by_label("Since").press("Enter")
    expect(page.get_by_label("Since")).to_have_value("2026-01-02T03:04+01:00")
    expect(page.get_by_text("4 dead letters match.")).to_be_visible()
    page.get_by_label("Since").fill("2h")
    page.get_by_label("Since").press("Enter")
    expect(page).to_have_url(re.compile("since=2h"))
    console.close()


def test_names_lead_to_their_views_and_the_header_keeps_its_height(browser: Browser, mess: Server) -> None:
    console = Console(browser, mess).open()
    page = console.page
    page.set_viewport_size({"width": 1280, "height": 860})
    heights = set()
    for link in page.locator("nav a:not(.badge)").all():
        link.click()
        expect(link).to_have_attribute("aria-current", "page")
        heights.add(page.locator("header").evaluate("each => each.offsetHeight"))
    assert len(heights) == 1
    page.goto(f"{mess.base}/admin/#/")
    page.locator("dl.facts").get_by_role("link", name="user.update.error").click()
    page.locator("td a").first.click()
    page.locator("dd").get_by_role("link", name="/kitchen/orders").click()
    expect(page.get_by_role("heading", name="/kitchen/orders")).to_be_visible()
    console.refusals.append("404")
    page.goto(f"{mess.base}/admin/#/message/123")
    expect(page.get_by_text("There is no record of the message 123, or it has been removed.")).to_be_visible()
    console.close()
