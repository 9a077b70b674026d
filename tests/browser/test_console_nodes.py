"""The operator's page at one of two nodes shows both, and mends what is wrong at the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.admin.desk import STORED, Desk, Receiver
from tests.browser.test_console import Console
from tests.functional.cluster import TOKEN, pair
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)  # it takes 10 seconds, but much longer on a machine under load
__all__ = ["pair"]


@pytest.fixture
def console(browser: Browser, pair: list[Server]) -> Iterator[Console]:
    operator = Console(browser, pair[0])
    yield operator
    operator.close()


def test_page_of_one_node_shows_and_mends_what_is_at_the_other(console: Console, pair: list[Server]) -> None:
    here, there = Receiver(pair[0]).be("joe/1"), Receiver(pair[1]).be("ann/1")
    for each in (here, there):
        each.subscribe("/orders")
    desk = Desk(pair[1], TOKEN)
    desk.post("/sessions/ann/1/hold", {"reason": "out of paper"})
    speaker = Receiver(pair[1]).be("speaker/1")
    message = speaker.publish("/orders", {"order": 17}, ext=STORED)[-1]["ext"]["publish"]["id"]
    here.accept(until(here.take))

    page = console.open(token=TOKEN).page
    finding = page.locator(".finding", has_text="client/ann/1 is on hold")
    expect(finding.get_by_title("Node")).to_have_text("b", timeout=30_000)
    expect(page.get_by_role("table", name="Nodes").locator("tbody tr")).to_have_count(2)
    page.get_by_role("link", name="Receivers").click()
    table = page.get_by_role("table").first
    expect(table.locator("tr", has_text="client/joe/1").get_by_text("a", exact=True)).to_be_visible()
    expect(table.locator("tr", has_text="client/ann/1").get_by_text("b", exact=True)).to_be_visible()

    page.goto(f"{pair[0].base}/admin/#/message/{message}")
    receivers = page.get_by_role("table", name="Receivers")
    expect(receivers.locator("tr", has_text="client/joe/1")).to_contain_text("acknowledged", timeout=30_000)
    expect(receivers.locator("tr", has_text="client/ann/1")).to_contain_text("on hold by")

    receivers.get_by_role("link", name="client/ann/1").click()
    page.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("paper is there")
    page.get_by_role("dialog").get_by_role("button", name="Release").click()
    assert [each["data"] for each in until(there.take)] == [{"order": 17}]
    page.get_by_role("link", name="Overview").click()
    expect(finding).to_have_count(0, timeout=30_000)
