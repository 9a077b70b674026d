"""Chromium, and people who sit at it.

Pictures of the pages are for a person to judge, and cost more time than what a program judges. So only
`PICTURES=1 make test-browser` and `FAULTS=full` take them; they are in tests/browser/screenshots.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, sync_playwright

import tests.server_process  # noqa: F401 - now, for to import it while Playwright's loop runs is a blocking call
from tests.browser.person import LIMIT_MS, Person

SCREENSHOTS = Path(__file__).parent / "screenshots"
PICTURES = bool(os.environ.get("PICTURES")) or os.environ.get("FAULTS") == "full"
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first is Chromium without its own windows, which take more than two thirds of the time that a page needs to open."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

Meet = Callable[..., Person]
_numbers = itertools.count(1)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The system's Chromium; made by `make test`."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert path is not None, f"the browser tests need Chromium: none of {', '.join(CHROMIUM)} is there"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser profile: its tabs share a database."""
    with browser.new_context() as context:
        context.set_default_timeout(LIMIT_MS)
        yield context


@pytest.fixture
def meet(browser: Browser) -> Iterator[Meet]:
    """Open the chat for a person of their own: `meet(server, "joe", color_scheme="dark") -> Person`.

    Each has a browser context, so no cookie is shared. All of a test go to the same room, which is no other test's: a server
    knows the people of the tests before for a while. Whatever a page complains of on its console, an uncaught exception or
    a violation of the content security policy, fails the test unless the person was told to expect it.
    """
    people: list[Person] = []
    room = f"demo{next(_numbers)}"

    def meet_person(base: str, name: str, **options: object) -> Person:
        person = Person(browser.new_context(**options), base, name, room)  # type: ignore[arg-type]
        people.append(person)
        return person

    yield meet_person
    complaints = [f"{person.name}: {text}" for person in people for text in person.complaints]
    for person in people:
        try:
            person.page.context.close()
        except Error as error:
            complaints.append(f"{person.name}: {error}")
    assert not complaints, "\n".join(complaints)


@pytest.fixture
def picture() -> Callable[[Person, str], None]:
    """Keep a screenshot, if somebody wants pictures: `picture(person, "chat-dark")`."""

    def take(person: Person, name: str, *, whole: bool = False) -> None:
        keep_picture(person.page, name, whole=whole)

    return take


def keep_picture(page: Page, name: str, *, whole: bool = False) -> None:
    """Keep a screenshot, if somebody wants pictures."""
    if PICTURES:
        SCREENSHOTS.mkdir(exist_ok=True)
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=whole)
