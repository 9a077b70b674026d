"""The operator's page acts on the topic and the session that it names, whatever a browser makes of a path."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.admin.desk import Desk
from tests.admin.dotted import DOTTED, VICTIM, serving_dotted_names, standing
from tests.admin.test_names_in_paths import HOSTILE
from tests.browser.test_console import Console
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving_dotted_names(tmp_path_factory.mktemp("old")) as server:
        yield server


@pytest.fixture
def console(browser: Browser, old: Server) -> Iterator[Console]:
    operator = Console(browser, old)
    operator.refusals += ["400", "404"]
    yield operator.open("/topics")
    operator.close()


def go(console: Console, address: str) -> None:
    console.page.goto(f"{console.server.base}/admin/#{address}")


def test_hostile_names_are_shown_as_they_are_and_lead_nowhere_else(console: Console, old: Server) -> None:
    before = standing(Desk(old))
    for name in HOSTILE[:-1]:
        encoded = "/".join(quote(each, safe="") for each in name.split("/"))
        go(console, f"/topics/{encoded}")
        expect(console.page.get_by_role("heading", level=1)).to_have_text(f"/{name}")
        if f"/{name}" != DOTTED:
            expect(console.page.get_by_text("There is no such topic")).to_be_visible()
            expect(console.page.get_by_role("button", name="Erase")).to_have_count(0)
        go(console, f"/receivers/client/{quote(name, safe='')}/7")
        expect(console.page.get_by_text("There is no such session")).to_be_visible()
        expect(console.page.get_by_role("button", name="End")).to_have_count(0)
    assert standing(Desk(old)) == before


def test_what_is_stored_under_dots_is_shown_and_erased_and_nothing_else(console: Console, old: Server) -> None:
    desk, page = Desk(old), console.page
    before = standing(desk)
    go(console, "/receivers/client/../1")
    expect(page.get_by_role("heading", level=1)).to_have_text("client/../1")
    expect(page.get_by_role("heading", name="Queue: 1 message")).to_be_visible()
    go(console, f"/topics{DOTTED}")
    expect(page.get_by_text("History: 1 message")).to_be_visible()
    expect(page.locator("td code.data")).to_have_text(f'"{DOTTED}"')
    page.get_by_role("button", name="Erase", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Erase").click()
    expect(page.get_by_text("Erased.", exact=False).first).to_be_visible()
    until(lambda: DOTTED not in standing(desk))
    assert standing(desk) == {name: count for name, count in before.items() if name != DOTTED}


def test_an_answer_about_something_else_is_no_success(console: Console) -> None:
    def lead_astray(route: Route) -> None:
        if route.request.method == "DELETE":
            route.fulfill(json={"channel": "/other", "state": "DEAD"})
        else:
            route.continue_()

    page = console.page
    go(console, f"/topics{VICTIM}")
    button = page.get_by_role("button", name="Erase", exact=True)
    expect(button).to_be_visible()
    page.route("**/admin/api/topics/b*", lead_astray)
    button.click()
    page.get_by_role("dialog").get_by_role("button", name="Erase").click()
    expect(page.locator("p.outcome")).to_contain_text("the answer is about /other and not about /b")
