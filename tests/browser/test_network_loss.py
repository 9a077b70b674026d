"""The operator's page says within three seconds that the server cannot be reached, and is up to date when it is back."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.test_console import Console, mess
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)
__all__ = ["mess"]

LOSS_MS = 3000


def test_loss_of_the_network_is_on_screen_within_three_seconds(browser: Browser, mess: Server) -> None:
    console = Console(browser, mess).open("/audit")  # a view that asks seldom
    page = console.page
    expect(page.get_by_role("alert")).to_be_hidden()
    console.context.set_offline(True)
    expect(page.get_by_role("alert")).to_have_text(
        "The server cannot be reached. This page tries again.", timeout=LOSS_MS
    )
    console.context.set_offline(False)
    expect(page.get_by_role("alert")).to_be_hidden(timeout=2 * LOSS_MS)
    console.complaints = [each for each in console.complaints if "net::ERR_INTERNET_DISCONNECTED" not in each]
    console.close()
