"""The operators' page on a phone: eight faults, each found from the overview with at most two taps, and nothing hides it."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.admin.desk import SETS, STORED, TOKEN, Desk, Receiver
from tests.browser.test_console import Console
from tests.browser.test_looks import PHONE, look_at
from tests.faults.disks import SmallDisk, can_mount
from tests.faults.health import store_pid
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)

SLOW_MS = 90_000
"""A receiver is slow when a message has waited for a minute."""
SEEN_MS = 30_000
SCREEN = PHONE["viewport"]["height"]
EVERYTHING: dict[str, Any] = {"subscribe": ["/**"], "publish": ["/**"]}
ROW = 210
"""The pixels of a receiver in the list at most: four on a screen."""


@dataclass
class Broken:
    """A server with six receivers in trouble, and its disk if a test may make one."""

    server: Server
    disk: SmallDisk | None


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broken]:
    directory = tmp_path_factory.mktemp("phone")
    with ExitStack() as undo:
        disk = SmallDisk(directory, 400) if can_mount() else None
        if disk is not None:
            undo.callback(disk.close)
        sets = [
            *SETS,
            "security.policy=jwt",
            f"security.jwt_keys={secret_file(directory)}",
            "bayeux.max_interval_ms=600000",
            *(disk.sets if disk is not None else ("storage.url=",)),
        ]
        server = Server(["--port=0", *(f"--set={text}" for text in sets)], directory)
        undo.callback(server.end_well)
        break_receivers(server)
        yield Broken(server, disk)


def break_receivers(server: Server) -> None:
    """One that is slow, one that rejects, one on hold, one that is full, one with an expired token, and one that is away."""
    people = {
        name: Receiver(server).be(f"{name}/1", token=signed(sub=name, **EVERYTHING), **more)
        for name, more in {
            "slow": {"maxOpen": 1},
            "kitchen": {},
            "printer": {},
            "archive": {"queue": {"maxEntries": 3}},
        }.items()
    }
    people["clerk"] = Receiver(server).be("clerk/1", token=signed(sub="clerk", exp=int(time.time()) + 2, **EVERYTHING))
    away = Receiver(server)
    assert away.shake(name="away/1", update=True, token=signed(sub="away", **EVERYTHING))["successful"]
    people["away"] = away
    for name, person in people.items():
        assert person.send(person.message("/meta/subscribe", subscription=f"/{name}"))[-1]["successful"]
    speaker = Receiver(server).be(token=TOKEN)
    for name, count in (("slow", 20), ("kitchen", 6), ("printer", 2), ("archive", 8), ("clerk", 2), ("away", 4)):
        for number in range(count):
            speaker.publish(f"/{name}", {"order": number}, ext=STORED)
    until(people["slow"].take)
    people["kitchen"].reject(until(people["kitchen"].take), "user.update.illegalArgument", "the price is no number")
    people["printer"].reject(until(people["printer"].take)[:1], "user.update.holdback", "out of paper")
    speaker.disconnect()
    desk = Desk(server)
    until(lambda: "token" in [each["kind"] for each in desk.get("/sessions/clerk/1")["causes"]])
    until(lambda: [each for each in desk.get("/sessions/archive/1")["causes"] if each.get("count") == 5])


class Finger:
    """An operator with a phone, whose taps since the overview are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.taps = 0

    def begin(self) -> None:
        self.page.get_by_role("navigation").get_by_role("link", name="Overview").tap()
        expect(self.page.get_by_role("heading", name="What is wrong")).to_be_visible(timeout=SEEN_MS)
        self.taps = 0

    def tap(self, what: Locator) -> None:
        what.tap()
        self.taps += 1
        assert self.taps <= 2

    def finding(self, title: str) -> Locator:
        found = self.page.locator("article", has_text=title)
        expect(found).to_be_visible(timeout=SLOW_MS)
        return found


@pytest.fixture
def console(browser: Browser, broken: Broken) -> Iterator[Console]:
    operator = Console(browser, broken.server, **PHONE, color_scheme="light")
    operator.refusals += ["503"]
    yield operator
    operator.close()


FAULTS = (
    ("client/kitchen/1 rejects messages", "It rejects all its messages, 6 of 6"),
    ("client/printer/1 is on hold", "user.update.holdback: out of paper"),
    ("client/archive/1 is full", "Its queue is full: 3 of 3 messages"),
    ("client/clerk/1 has an expired token", "Its token has expired"),
    ("client/away/1 is away, 4 messages waiting", "Its client is away"),
    ("client/slow/1 falls behind", "Its oldest message waits"),
)
"""The title of each fault in the overview, and its cause on the page of the receiver, which is on the first screen of it."""


def test_each_fault_is_in_the_overview_and_its_cause_one_tap_away(console: Console) -> None:
    finger = Finger(console.open().page)
    for title, cause in FAULTS:
        finger.begin()
        finger.tap(finger.finding(title).get_by_role("link"))
        expect(console.page.locator("main").get_by_text(cause).first).to_be_in_viewport(timeout=SEEN_MS)
    finger.begin()
    titles = console.page.locator(".wrong article h3")
    expect(titles).to_have_count(len(FAULTS))
    assert all(box["y"] < 2 * SCREEN for each in titles.all() if (box := each.bounding_box()))
    look_at(console.page, "faults", {"phone": PHONE})
    for title, _ in FAULTS:
        advice = finger.finding(title)
        advice.locator("summary").tap()
        expect(advice.locator(".advice")).to_be_visible()


def test_a_number_beside_a_view_is_whole_and_leads_to_what_is_worst(console: Console) -> None:
    page = console.open().page
    for number in (page.locator(".badge").nth(each) for each in range(2)):
        box = number.bounding_box()
        arrow = page.locator("nav").bounding_box()
        assert box is not None
        assert arrow is not None
        assert box["x"] + box["width"] < arrow["x"] + arrow["width"] - 24, "the arrow of the menu lies over it"
    page.locator(".badge").first.tap()
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("client/printer/1")
    expect(rows.first.locator("td.cause")).to_be_in_viewport()
    heights = rows.evaluate_all("each => each.map((one) => one.getBoundingClientRect().height)")
    assert max(heights) < ROW, heights
    look_at(page, "faults-receivers", {"phone": PHONE})
    page.get_by_text("Filter and sort").tap()
    page.get_by_role("combobox", name=re.compile("^State")).select_option("full")
    expect(rows).to_have_count(1)
    expect(page.get_by_role("combobox", name=re.compile("^State"))).to_be_visible()  # what is set is in view


def test_what_can_be_done_stands_below_the_cause(console: Console) -> None:
    page = console.open("/receivers/client/printer/1").page
    expect(page.get_by_role("button", name="Release")).to_be_in_viewport(timeout=SEEN_MS)
    broken_words = "each => each.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
    assert page.locator("dt, td").evaluate_all(broken_words) == []
    look_at(page, "faults-receiver", {"phone": PHONE})


def test_what_tells_rejected_messages_is_in_the_report_that_the_page_names(console: Console, broken: Broken) -> None:
    picky = Receiver(broken.server).be("picky/1", token=signed(sub="picky", **EVERYTHING))
    picky.subscribe("/picky")
    speaker = Receiver(broken.server).be(token=TOKEN)
    for number in range(6):
        speaker.publish("/picky", {"order": number}, ext=STORED)
    taken = until(picky.take)
    picky.reject(taken[:4], "user.update.illegalArgument", "no such dish")
    picky.accept(taken[4:])
    page = console.open("/receivers/client/picky/1").page
    why = page.locator("article", has_text="4 of 6 messages")
    expect(why).to_contain_text("crewel pipeline report")
    page.goto(f"{broken.server.base}/admin/#/receivers/client/kitchen/1")
    expect(page.locator("article", has_text="It rejects all its messages")).to_be_visible(timeout=SEEN_MS)
    expect(page.locator("article", has_text="crewel pipeline report")).to_have_count(0)  # nothing was taken
    picky.disconnect()


def test_a_dead_store_and_a_full_disk_come_first(console: Console, broken: Broken) -> None:
    finger = Finger(console.open().page)
    store = store_pid(broken.server)
    os.kill(store, signal.SIGSTOP)
    try:
        first = finger.finding("The store cannot be used")
        expect(first).to_be_in_viewport()
        expect(first).to_contain_text("The store cannot be reached: no answer in time")
        finger.tap(first.get_by_role("link"))
        expect(console.page.locator("tbody tr").first).to_contain_text("the store could not be used")
        look_at(console.page, "faults-store", {"phone": PHONE})
    finally:
        os.kill(store, signal.SIGCONT)
    finger.begin()
    expect(console.page.get_by_role("heading", name="Over, in the last hour")).to_be_visible(timeout=SEEN_MS)
    if broken.disk is not None:
        try:
            broken.disk.fill(broken.server)
            expect(finger.finding("The disk of the store is full")).to_be_in_viewport()
            # The store ends if it writes before the server has looked at its disk.
            cause = re.compile(r"has \d+ MiB left|no space left on its disk")
            expect(console.page.locator("article").first).to_contain_text(cause)
            look_at(console.page, "faults-disk", {"phone": PHONE})
        finally:
            broken.disk.free(broken.server)
        expect(console.page.locator("article", has_text="The disk of the store is full")).to_have_count(
            0, timeout=SLOW_MS
        )
