"""How the pages look: pictures for a person to judge, and what a program can judge."""

import re
from collections.abc import Mapping
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.browser.breaker import TOKEN, Breaker
from tests.browser.conftest import Meet, keep_picture
from tests.browser.person import Person
from tests.conftest import StartServer

DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
NARROW: dict[str, Any] = {"viewport": {"width": 360, "height": 740}, "has_touch": True}
SIZES = {"desktop": DESKTOP, "phone": PHONE}

CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const rgb = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = ([r, g, b]) => {
        const part = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const ground = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const colour = rgb(getComputedStyle(e).backgroundColor);
            if (colour[3] === 255) return colour;
        }
        return [255, 255, 255, 255];
    };
    const poor = [];
    for (const element of document.body.querySelectorAll("*")) {
        const text = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim() !== "");
        if (!text || !element.checkVisibility() || element.matches(":disabled, option")) continue;
        const [a, b] = [light(rgb(getComputedStyle(element).color)), light(ground(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push(`${element.tagName} ${element.className} "${element.textContent.trim()}": ${ratio}`);
    }
    return poor;
}"""
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def judged(page: Page) -> None:
    """Every text has the contrast that WCAG AA asks for, and nothing is wider than the window."""
    assert page.evaluate(CONTRASTS) == []
    overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
    assert overflow <= 0, f"{overflow} pixels too wide"


def look_at(
    page: Page, name: str, sizes: Mapping[str, Mapping[str, Any]] = SIZES, *, part: Locator | None = None
) -> None:
    """Judge the page in each size, by day and by lamplight, and keep a picture of each: whole, or where this part is.

    The page stays in the last size, so that what people do between two looks is done on a small screen.
    """
    page.emulate_media(reduced_motion="reduce")  # a button that changes its colour has other colours on the way
    for size, look in sizes.items():
        page.set_viewport_size(look["viewport"])
        if part is not None:
            part.scroll_into_view_if_needed()
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            page.evaluate(TWO_FRAMES)  # charts are drawn again
            keep_picture(page, f"{name}-{size}-{scheme}", whole=part is None)
            judged(page)
    page.emulate_media(color_scheme="light")


def test_the_pages_look_well(start_server: StartServer, meet: Meet) -> None:
    base = start_server("bayeux.max_interval_ms=60000").base
    sue = meet(base, "sue").join()
    joe = meet(base, "joe", **PHONE)
    look_at(joe.page, "join")
    joe.join()
    sue.sees_members(2)
    talk(joe, sue)
    look_at(joe.page, "chat")
    joe.press("Go offline")
    joe.say("I will be back")
    joe.sees_state("Offline, as you asked")
    look_at(joe.page, "offline")
    joe.page.goto(f"{base}/")
    look_at(joe.page, "welcome")


def talk(joe: Person, sue: Person) -> None:
    """Fill the log with one line of each kind."""
    joe.say("Good morning! Is the <linen> here?")
    sue.sees("Good morning! Is the <linen> here?")
    sue.say("It is, and so is the wool: madder red, indigo blue, and a green that nobody can name.")
    sue.say("joe::Keep the green for us.")
    joe.sees("Keep the green for us.")
    joe.say("nobody::hello?")
    joe.sees("Nobody here is called nobody")
    joe.acknowledge(False)
    sue.say("Does this reach you?")
    joe.sees_again("Does this reach you?", at_least=2)


def test_the_panel_that_breaks_things_looks_well(start_server: StartServer, meet: Meet) -> None:
    sizes = {"desktop": DESKTOP, "narrow": NARROW}
    base = start_server(f"admin.token={TOKEN}", "bayeux.max_interval_ms=60000").base
    sue = meet(base, "sue").join()
    joe = Breaker.of(meet(base, "joe", **NARROW).join())
    sue.sees_members(2)
    joe.opens()
    look_at(joe.page, "break", sizes)
    joe.is_operator()
    joe.arms("communication.timeout")
    sue.say("Is the green wool dry?")
    expect(joe.fate("Is the green wool dry?")).to_contain_text("Acknowledged")
    joe.arms("user.update.error")
    sue.say(
        "I ordered four bundles of madder, and a very-long-word-that-nobody-can-break-in-the-middle-of-its-letters."
    )
    joe.arms("user.update.holdback")
    sue.say("And when does the indigo come?")
    expect(joe.waiting).to_have_text(re.compile("^[1-9]"))
    expect(joe.page.locator("#fates")).to_contain_text("Dead letter")
    joe.arms("a plain exception", 3)
    look_at(joe.page, "broken-there", sizes, part=joe.page.locator("#fatesTitle"))
    look_at(joe.page, "broken", sizes)


def test_the_chat_fits_a_small_window_and_prints_whole(start_server: StartServer, meet: Meet) -> None:
    joe = meet(start_server().base, "joe", viewport={"width": 1280, "height": 800}).join()
    page = joe.page
    assert page.evaluate("document.documentElement.scrollHeight") <= 800
    panel = page.evaluate("[panel.scrollHeight, panel.clientHeight]")
    assert panel[0] <= panel[1], panel
    expect(page.get_by_text("Break it")).to_be_in_viewport()
    for number in range(40):
        joe.say(f"line {number}")
    expect(page.locator("#log li", has_text="line 39")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_role("button", name="Send")).to_be_hidden()
    expect(page.get_by_label("Members and connection")).to_be_hidden()
    assert page.evaluate("log.scrollHeight <= log.clientHeight"), "the paper lacks what the window scrolls"
