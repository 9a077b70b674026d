"""The page that shows the administration's HTTP, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from crewel.admin.rest import ROUTES
from crewel.admin.route import API
from tests.browser.conftest import keep_picture
from tests.conftest import StartServer
from tests.server_process import Server


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose every complaint fails the test, and that reaches nothing but the server."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if "127.0.0.1" not in request.url else None)
    yield page
    context.close()
    assert not complaints


def test_the_page_shows_every_route_with_its_fields(start_server: StartServer, page: Page) -> None:
    server: Server = start_server("storage.enabled=false", "http.demos=false")
    page.goto(f"{server.base}{API}/")
    expect(page.locator("#api")).not_to_have_attribute("aria-busy", "true")
    shown = page.locator("section h2").all_inner_texts()
    assert sorted(shown) == sorted(f"{route.method} {API}{route.path}" for route in ROUTES)
    for route in ROUTES:
        section = page.locator("section", has=page.get_by_text(f"{route.method} {API}{route.path}", exact=True))
        text = section.inner_text()
        assert route.summary.replace("`", "") in text
        assert route.answer.replace("`", "") in text
        assert all(
            field.name in text and field.meaning.replace("`", "") in text for field in (*route.query, *route.body)
        )
    keep_picture(page, "api")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
