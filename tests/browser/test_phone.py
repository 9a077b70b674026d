"""The operators' page on a phone: eight faults, each found from the overview with at most two taps, cured, and over."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.admin.desk import STORED, TOKEN, Receiver
from tests.browser.live_mess import CURES, EVERYTHING, PUBLISHED, LiveMess
from tests.browser.test_console import Console, confirm
from tests.browser.test_looks import DESKTOP, PHONE, look_at
from tests.faults.health import store_pid
from tests.functional.wire import until
from tests.security.issuer import signed

pytestmark = pytest.mark.timeout(300)

SLOW_MS = 90_000
"""A receiver is slow when a message has waited for a minute."""
SEEN_MS = 30_000
SCREEN = PHONE["viewport"]["height"]
ROW = 210
"""The pixels of a receiver in the list at most: four on a screen."""


@pytest.fixture(scope="module")
def mess(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMess]:
    live = LiveMess(tmp_path_factory.mktemp("phone"))
    yield live
    live.close()


class Finger:
    """An operator with a phone, whose taps since the overview are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.taps = 0

    def begin(self) -> None:
        self.page.get_by_role("navigation").get_by_role("link", name="Overview").tap()
        expect(self.page.get_by_role("heading", name=re.compile("wrong"))).to_be_visible(timeout=SEEN_MS)
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
def console(browser: Browser, mess: LiveMess) -> Iterator[Console]:
    operator = Console(browser, mess.server, **PHONE, color_scheme="light")
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
        finger.tap(finger.finding(title).get_by_role("link").first)
        expect(console.page.locator("main").get_by_text(cause).first).to_be_in_viewport(timeout=SEEN_MS)
    finger.begin()
    titles = console.page.locator(".wrong article h3")
    expect(titles).to_have_count(len(FAULTS))
    assert all(box["y"] < 2 * SCREEN for each in titles.all() if (box := each.bounding_box()))
    look_at(console.page, "faults", {"phone": PHONE})
    for title, _ in FAULTS:
        expect(finger.finding(title).locator(".advice")).to_be_visible()
    absent = finger.finding("client/archive/1 is full")
    expect(absent).to_contain_text("(away since")
    expect(absent).to_contain_text("Start its client: it takes what waits")


def test_a_number_beside_a_view_is_whole_and_leads_to_what_is_worst(console: Console) -> None:
    page = console.open().page
    expect(page.locator(".badge").first).to_be_visible()
    for number in (page.locator(".badge").nth(each) for each in range(2)):
        box = number.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= PHONE["viewport"]["width"]
    expect(page.get_by_role("link", name="Jobs")).to_be_hidden()
    page.get_by_role("button", name="Views", exact=True).tap()
    for view in ("Jobs", "Audit", "Commands"):
        expect(page.get_by_role("link", name=view)).to_be_in_viewport()
    page.get_by_role("button", name="Views", exact=True).tap()
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
    expect(
        page.get_by_text("Only: state full")
    ).to_be_in_viewport()  # what is set is in view, and the form is folded again
    expect(page.get_by_role("combobox", name=re.compile("^State"))).to_be_hidden()


def test_what_can_be_done_stands_below_the_cause(console: Console) -> None:
    page = console.open("/receivers/client/printer/1").page
    expect(page.get_by_role("button", name="Release")).to_be_in_viewport(timeout=SEEN_MS)
    broken_words = "each => each.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.textContent)"
    assert page.locator("dt, td").evaluate_all(broken_words) == []
    look_at(page, "faults-receiver", {"phone": PHONE})


FINGER = 44
"""The pixels of what a finger is to meet."""
POINTER = 24
"""The pixels of what a pointer is to meet, by WCAG 2.5.8."""
PRESSED = (
    "button, .button, select, input:not([type=checkbox]), summary, .box, nav a, h3 a, td.name a, .tiles a, .back a"
)
SMALLER = """(each, least) => each.filter((one) => one.checkVisibility()).map((one) => [one, one.getBoundingClientRect()])
    .filter(([, box]) => box.width < least || box.height < least)
    .map(([one, box]) => `${one.outerHTML.slice(0, 90)}: ${box.width} x ${box.height}`)"""


def test_what_is_pressed_is_large_enough(console: Console) -> None:
    page = console.open().page
    expect(page.locator(".wrong article").first).to_be_visible()
    found = {}
    for view in ("/", "/receivers", "/receivers/client/printer/1", "/dead-letters?receiver=client/kitchen/1", "/jobs"):
        console.show(view)
        for size, least in ((PHONE, FINGER), (DESKTOP, POINTER)):
            page.set_viewport_size(size["viewport"])
            found[view, least] = page.locator(PRESSED).evaluate_all(SMALLER, least)
    assert {each: small for each, small in found.items() if small} == {}


def test_each_button_says_what_it_does_and_what_cannot_be_undone_stands_apart(console: Console) -> None:
    page = console.open("/receivers/client/archive/1").page
    drain, clear = page.get_by_role("button", name="Drain"), page.get_by_role("button", name="Clear", exact=True)
    expect(drain).to_have_accessible_description("the whole queue becomes dead letters", timeout=SEEN_MS)
    apart = page.get_by_role("region", name="What cannot be undone")
    expect(apart.get_by_role("button")).to_have_text(["Clear", "End"])
    high, low = drain.bounding_box(), clear.bounding_box()
    assert high is not None
    assert low is not None
    assert low["y"] > high["y"] + 200
    expect(page.locator(".finding.warn", has_text="Its client is away")).to_be_visible(timeout=SLOW_MS)
    drain.tap()
    expect(page.get_by_role("dialog")).to_contain_text(
        "Its client is away: if you start it instead, it takes what waits."
    )
    page.get_by_role("button", name="Cancel").tap()


def test_what_tells_rejected_messages_is_in_the_report_that_the_page_names(console: Console, mess: LiveMess) -> None:
    picky = Receiver(mess.server).be("picky/1", token=signed(sub="picky", **EVERYTHING))
    picky.subscribe("/picky")
    speaker = Receiver(mess.server).be(token=TOKEN)
    for number in range(6):
        speaker.publish("/picky", {"order": number}, ext=STORED)
    taken = until(picky.take)
    picky.reject(taken[:4], "user.update.illegalArgument", "no such dish")
    picky.accept(taken[4:])
    page = console.open("/receivers/client/picky/1").page
    why = page.locator("article", has_text="4 of 6 messages")
    expect(why).to_contain_text("crewel pipeline report")
    page.goto(f"{mess.server.base}/admin/#/receivers/client/kitchen/1")
    expect(page.locator("article", has_text="It rejects all its messages")).to_be_visible(timeout=SEEN_MS)
    expect(page.locator("article", has_text="crewel pipeline report")).to_have_count(0)  # nothing was taken
    picky.disconnect()


def redrive_all(page: Page, receiver: str) -> None:
    """Redrive all dead letters of the receiver; what came of it is on the screen."""
    page.goto(page.url.partition("#")[0] + f"#/dead-letters?receiver={receiver}")
    page.get_by_role("button", name="Select all").tap()
    confirm(page, "Redrive", "it is cured")
    expect(page.locator(".outcome")).to_have_text(re.compile(r"^\d dead letters redriven"), timeout=SEEN_MS)
    expect(page.locator(".outcome")).to_be_in_viewport()
    page.get_by_role("button", name="Close").tap()
    expect(page.locator(".outcome")).to_be_hidden()


def test_each_receiver_takes_its_messages_again_when_it_is_cured(console: Console, mess: LiveMess) -> None:
    page, taken = console.open("/receivers/client/archive/1").page, mess.receivers.taken
    expect(page.locator(".finding.warn", has_text="Its client is away")).to_be_visible(timeout=SLOW_MS)
    page.goto(f"{mess.server.base}/admin/#/dead-letters?receiver=client/archive/1")
    page.get_by_role("button", name="Select all").tap()
    page.get_by_role("button", name="Redrive", exact=True).tap()
    question = page.get_by_role("dialog")
    expect(question).to_contain_text(
        "The queue of client/archive/1 has room for 0 of 5 dead letters, and its client is away"
    )
    expect(question).to_contain_text("What has no room waits for it")
    look_at(page, "faults-redrive", {"phone": PHONE})
    page.get_by_role("button", name="Cancel").tap()
    page.get_by_role("button", name="Select none").tap()
    for box in page.get_by_label(re.compile(r"^Select \d")).all()[:2]:
        box.tap()
    confirm(page, "Redrive", "it will have room")
    result = page.locator(".outcome")
    expect(result).to_contain_text("0 of 2 dead letters redriven. The job is waiting for room", timeout=SEEN_MS)
    expect(result).to_be_in_viewport()
    page.get_by_role("button", name="Close").tap()
    for _ in range(2):  # the second is asked for after the page has read the first
        with page.expect_response(re.compile(r"/jobs/[^/?]+$"), timeout=SEEN_MS):
            pass
    expect(result).to_be_hidden()
    for name in CURES:
        mess.receivers.cure(name)
    # Until then "2 of 2 dead letters redriven. The job is running" may be there, and the result comes behind a Close.
    expect(result).to_contain_text("2 dead letters redriven. Job", timeout=SEEN_MS)
    page.get_by_role("button", name="Close").tap()
    redrive_all(page, "client/archive/1")
    redrive_all(page, "client/kitchen/1")
    page.goto(f"{mess.server.base}/admin/#/receivers/client/printer/1")
    confirm(page, "Release", "there is paper")
    expect(page.locator(".outcome")).to_have_text("Released.")
    expect(page.locator(".outcome")).to_be_in_viewport()
    look_at(page, "faults-released", {"phone": PHONE})
    until(lambda: taken == PUBLISHED)
    page.goto(f"{mess.server.base}/admin/#/")
    over = page.get_by_role("region", name="Over")
    for title in ("client/archive/1 was full", "client/printer/1 was on hold", "client/clerk/1 had an expired token"):
        expect(over.locator("article", has_text=title)).to_be_attached(timeout=SLOW_MS)
    over.locator("summary").tap()  # the last three are there at once
    expect(over.locator("article").last).to_be_visible()
    for title in ("is full", "is on hold", "expired token", "is away"):
        expect(page.locator(".wrong[aria-labelledby] article", has_text=title)).to_have_count(0, timeout=SLOW_MS)


def test_a_dead_store_and_a_full_disk_come_first(console: Console, mess: LiveMess) -> None:
    finger = Finger(console.open().page)
    store = store_pid(mess.server)
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
    if mess.disk is not None:
        try:
            mess.disk.fill(mess.server)
            expect(finger.finding("The disk of the store is full")).to_be_in_viewport()
            # The store ends if it writes before the server has looked at its disk.
            cause = re.compile(r"has \d+ MiB left|no space left on its disk")
            expect(console.page.locator("article").first).to_contain_text(cause)
            look_at(console.page, "faults-disk", {"phone": PHONE})
        finally:
            mess.disk.free(mess.server)
        expect(console.page.locator("article", has_text="The disk of the store is full")).to_have_count(
            0, timeout=SLOW_MS
        )
