"""Scheduled messages on the operator's page: the list, one with its data, and how an operator cancels them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.admin.desk import SETS, TOKEN, Desk, Receiver
from tests.browser.test_console import Console, confirm
from tests.browser.test_looks import PHONE, look_at
from tests.browser.test_mess import findings
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)

HOUR_MS = 3_600_000
OVENS = 12
PAGE_OF_A_PHONE = 10


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server that masks the field `iban`."""
    sets = (*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}", "admin.mask=iban")
    server = Server(["--port=0", *(f"--set={text}" for text in sets)], tmp_path)
    yield server
    server.end_well()


def publish(server: Server, channel: str, *data: Any, **qos: Any) -> list[str]:
    """The ids of persistent messages, published at once by the session client/cook/1."""
    publisher = Receiver(server).be("cook/1", token=TOKEN)
    asked = {"publish": {"persistent": True} | qos}
    replies = publisher.send(*(publisher.message(channel, data=each, ext=asked) for each in data))
    publisher.disconnect()
    return [str(reply["ext"]["publish"]["id"]) for reply in replies]


@pytest.fixture
def kept(server: Server) -> list[str]:
    """Messages for ovens, those that are due first, first; another one; and one that was refused when it was due."""
    orders = ({"oven": number, "iban": "DE02"} for number in range(OVENS))
    ids = publish(server, "/ovens/north", *orders, deliverAfter=HOUR_MS)
    publish(server, "/invoices", {"order": 17}, deliverAfter=24 * HOUR_MS)
    # The first one of these makes its topic refuse the other.
    publish(server, "/menu", "soup", "fish", deliverAfter=1, readonly=True, history={"maxEntries": 1})
    until(lambda: any(each["refusal"] for each in Desk(server).get("/scheduled-messages?channel=/menu")["messages"]))
    return ids


def test_operator_finds_scheduled_messages_and_cancels_one_and_then_some(
    browser: Browser, server: Server, kept: list[str]
) -> None:
    console = Console(browser, server).open("/")
    page = console.page
    page.get_by_role("navigation").get_by_role("link", name="Scheduled").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(OVENS + 2)
    expect(page.get_by_text(f"{OVENS + 2} scheduled messages in all.")).to_be_visible()
    refused = rows.filter(has_text="/menu")
    expect(refused).to_contain_text(re.compile(r"readonly.*The next try is at 2\d{3}-"))
    first = rows.filter(has_text=kept[0])
    expect(first).to_contain_text(re.compile(r"in (1 h|59 min).*/ovens/north.*client/cook/1.*\d+ bytes"))
    page.get_by_label("Channel or pattern").fill("/ovens/*")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(OVENS)

    first.get_by_role("link", name=kept[0]).click()
    expect(page.get_by_role("heading", name="Data")).to_be_visible()
    expect(page.locator("pre").first).to_contain_text('"iban": "***"')
    expect(page.locator("dt", has_text="Published").locator("+ dd")).to_have_text("not yet")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    told = confirm(page, "Cancel", "wrong oven")
    assert re.search(r"The message to /ovens/north, due 2\d{3}-.*, will not be published\.", told)
    assert "This cannot be undone." in told
    expect(page.locator(".outcome")).to_have_text("1 scheduled message cancelled.")
    expect(page.locator("dt", has_text="Cancelled").locator("+ dd")).to_contain_text("by admin at ")
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    page.get_by_role("link", name="in the audit").click()
    expect(rows).to_contain_text("wrong oven")
    rows.get_by_role("link", name=kept[0]).click()
    expect(page.get_by_role("heading", name=f"Message {kept[0]}")).to_be_visible()

    page.goto(f"{server.base}/admin/#/scheduled?channel=/ovens/*")
    expect(rows).to_have_count(OVENS - 1)
    cancel = page.get_by_role("button", name="Cancel", exact=True)
    expect(cancel).to_be_disabled()
    for each in kept[1:3]:
        page.get_by_label(f"Select {each}").check()
    Desk(server).post("/scheduled-messages/cancel", {"ids": [kept[1]]})
    told = confirm(page, "Cancel", "no dough")
    assert "2 messages to /ovens/north, the first due " in told
    expect(page.locator(".outcome")).to_have_text(
        "1 scheduled message cancelled. 1 had been published or cancelled before."
    )
    expect(rows).to_have_count(OVENS - 3)
    page.get_by_role("button", name=f"Select all {OVENS - 3} that match").click()
    confirm(page, "Cancel", "closed")
    expect(page.get_by_text("No scheduled message matches.")).to_be_visible()
    left = Desk(server).get("/scheduled-messages")["messages"]
    assert [each["channel"] for each in left] == ["/menu", "/invoices"]
    console.close()


def test_the_page_of_a_message_follows_it_to_its_publication(browser: Browser, server: Server) -> None:
    (message_id,) = publish(server, "/ovens/north", 1, deliverAfter=HOUR_MS)
    (due,) = publish(server, "/ovens/north", 2, deliverAfter=1)
    until(lambda: Desk(server).get(f"/messages/{due}")["schedule"]["publishedAs"])
    console = Console(browser, server).open(f"/message/{due}")
    page = console.page
    page.locator("dt", has_text="Published").locator("+ dd").get_by_role("link").click()
    expect(page.locator("dt", has_text="Scheduled as").locator("+ dd")).to_have_text(due)
    page.goto(f"{server.base}/admin/#/message/{message_id}")
    expect(page.get_by_text("Its receivers will be the subscribers and groups")).to_be_visible()
    console.close()


def test_operator_that_may_not_cancel_sees_no_button(browser: Browser, server: Server, kept: list[str]) -> None:
    rights: list[Any] = ["view", ["operate:/ovens/**"], ["view:/invoices", "destroy:/ovens/**"]]
    for operator, count, may_cancel in zip(rights, (OVENS + 2, OVENS, OVENS + 1), (False, False, True), strict=True):
        console = Console(browser, server).open("/scheduled", signed(sub="cook", operator=operator))
        page = console.page
        expect(page.locator("tbody tr")).to_have_count(count)
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(int(may_cancel))
        page.goto(f"{server.base}/admin/#/message/{kept[0]}")
        expect(page.get_by_role("heading", name="Data")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(int(may_cancel))
        console.close()


def test_scheduled_messages_look_well_and_fit_a_phone(browser: Browser, server: Server, kept: list[str]) -> None:
    console = Console(browser, server, **PHONE, color_scheme="light").open("/scheduled")
    page = console.page
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(PAGE_OF_A_PHONE)
    page.get_by_role("button", name="Next page").tap()
    expect(rows).to_have_count(OVENS + 2 - PAGE_OF_A_PHONE)
    page.get_by_role("button", name="First page").tap()
    expect(rows).to_have_count(PAGE_OF_A_PHONE)
    assert findings(page) == []
    look_at(page, "scheduled")
    page.get_by_label(f"Select {kept[0]}").tap()
    look_at(page, "scheduled-selected")
    page.goto(f"{server.base}/admin/#/message/{kept[0]}")
    cancel = page.get_by_role("button", name="Cancel", exact=True)
    expect(cancel).to_have_accessible_description("it is not published")
    assert findings(page) == []
    look_at(page, "scheduled-one")
    cancel.tap()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert findings(page) == []
    look_at(page, "scheduled-question")
    page.get_by_role("dialog").locator(".primary").tap()
    expect(page.locator(".outcome")).to_be_in_viewport()
    look_at(page, "scheduled-cancelled")
    console.close()
