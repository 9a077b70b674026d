"""An operator's questions, answered from the page alone, on one server and on two workers.

The operator knows the overview and nothing else: each step is a click on a text that is on the screen, or a text typed into a
field that says what it takes. With `-s` the table of clicks and seconds is printed. The full form asks on two workers too.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.admin.desk import STORED, TOKEN, Desk, Receiver
from tests.browser.mess import HOSTILE, IS_FULL, Mess, in_a_mess, take_and_accept_all
from tests.browser.test_console import Console, confirm
from tests.functional.wire import until
from tests.house.source import ROOT
from tests.security.issuer import signed
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)

SEEN_MS = 60_000
SINCE = re.compile(r"since 2\d{3}-.* ago")
WORKERS = ("cluster.workers=2", "cluster.lease_ms=600000")


class Newcomer:
    """An operator at the overview, whose clicks and typed texts are counted until the answer is on the screen."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.steps = 0

    def click(self, what: Locator) -> None:
        what.click()
        self.steps += 1

    def link(self, name: str | re.Pattern[str], within: str = "main") -> None:
        self.click(self.page.locator(within).get_by_role("link", name=name).first)

    def menu(self, name: str) -> None:
        self.click(self.page.get_by_role("navigation").get_by_role("link", name=name, exact=True))

    def types(self, field: str, text: str) -> None:
        """Type into the field of this name, and press Enter."""
        box = self.page.get_by_label(field)
        box.fill(text)
        box.press("Enter")
        self.steps += 1

    def finding(self, text: str) -> Locator:
        found = self.page.locator("article", has_text=text)
        expect(found).to_be_visible(timeout=SEEN_MS)
        return found

    def opens(self, text: str) -> None:
        """Follow the link of the finding with this text."""
        self.click(self.finding(text).get_by_role("link").first)

    def confirms(self, button: str, reason: str) -> str:
        """Press the button, give a reason, and confirm; what the question said."""
        self.steps += 3
        return confirm(self.page, button, reason)

    def reads(self, text: str | re.Pattern[str]) -> None:
        expect(self.page.locator("main").get_by_text(text).first).to_be_visible(timeout=SEEN_MS)

    def row(self, table: str, text: str) -> Locator:
        return self.page.get_by_role("table", name=table).locator("tbody tr", has_text=text)


@dataclass
class Asked:
    """A server in a mess, and the client that is to take what is sent again."""

    mess: Mess
    bakery: Receiver


@pytest.fixture(scope="module", params=["one server", "two workers"] if IS_FULL else ["one server"])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    sets = WORKERS if request.param == "two workers" else ()
    mess = in_a_mess(tmp_path_factory.mktemp("questions"), "storage.url=", *sets, letters=60, sessions=30)
    bakery = more_of_it(mess)
    yield Asked(mess, bakery)
    mess.server.end_well()


def more_of_it(mess: Mess) -> Receiver:
    """An expired token, two orders with keys, a dead letter for want of flour, two messages that a full queue turned away, and
    two that were discarded by mistake."""
    server, desk = mess.server, mess.desk
    everything: dict[str, Any] = {"subscribe": ["/**"], "publish": ["/**"]}
    speaker = Receiver(server).be("speaker/2", token=TOKEN, timeout=600_000)
    clerk = Receiver(server).be("clerk/1", token=signed(sub="clerk", exp=int(time.time()) + 3, **everything))
    clerk.subscribe("/office/orders")
    bakery = Receiver(server).be("bakery/1", token=signed(sub="bakery", **everything))
    bakery.subscribe("/bakery/orders")
    for number in (1000, 100):
        keyed = {"publish": {"persistent": True, "key": f"order-{number}"}}
        speaker.publish("/office/orders", {"order": number}, ext=keyed)
    for number in range(2):
        speaker.publish("/archive/pages", number, ext=STORED)
    speaker.publish("/bakery/orders", {"loaves": 3}, ext=STORED)
    bakery.reject(until(bakery.take), "user.update.error", "no flour")
    speaker.disconnect()
    Receiver(server).shake(name="guest0/1", token="nonsense")
    ids = [each["id"] for each in desk.letters("receiver=client/kitchen/1&count=2")]
    desk.post("/dead-letters/discard", {"ids": ids, "reason": "by mistake"})
    until(lambda: "token" in [each["kind"] for each in desk.get("/sessions/clerk/1")["causes"]])
    return bakery


def _fell_out(server: Server) -> None:
    """The store is killed, and started again by the server."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    (store,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text().startswith(("valkey", "redis")))
    os.kill(int(store), signal.SIGKILL)
    until(lambda: [each for each in Desk(server).get("/timeline")["events"] if each["what"] == "store outage"])
    until(lambda: Desk(server).ask("GET", "/dead-letters?count=1").status == 200)


def _what_is_wrong(me: Newcomer, _: Asked) -> None:
    for text in ("client/printer/1 is on hold", "client/archive/1 is full", "client/clerk/1 has an expired token"):
        expect(me.finding(text)).to_contain_text(SINCE)


def _why_nothing(me: Newcomer, _: Asked) -> None:
    me.opens("client/printer/1 is on hold")
    why = me.page.locator(".finding", has_text="user.update.holdback: out of paper")
    expect(why).to_contain_text("by client/printer/1")
    expect(why).to_contain_text(SINCE)


def _which_message(me: Newcomer, _: Asked) -> None:
    me.opens("client/printer/1 is on hold")
    me.click(me.page.locator("dt", has_text="Held message").locator("+ dd").get_by_role("link"))
    me.reads('"one"')


def _full_queue(me: Newcomer, _: Asked) -> None:
    me.opens("client/archive/1 is full")
    me.reads("Its queue is full: 5 of 5 messages, and its client is away; 2 messages became dead letters")


def _expired_token(me: Newcomer, _: Asked) -> None:
    expect(me.finding("client/clerk/1 has an expired token")).to_contain_text(SINCE)


def _no_login(me: Newcomer, _: Asked) -> None:
    me.opens("A login as client/guest0/1 was refused")
    refused = me.row("What happened", "a login of its name was refused")
    expect(refused).to_contain_text("user.security.authentication.accessDenied")
    expect(refused).to_contain_text("from 127.0.0.1")


def _which_group(me: Newcomer, _: Asked) -> None:
    me.opens("The group workers on /jobs/*")
    me.reads("2 messages that no member has yet")
    expect(me.page.locator(".finding", has_text="No member takes its messages")).to_contain_text(SINCE)
    expect(me.row("Members", "client/worker/1")).to_contain_text("away")


def _longest_backlog(me: Newcomer, _: Asked) -> None:
    me.menu("Receivers")
    me.page.get_by_label("Sorted by").select_option("Waiting messages")
    me.steps += 1
    expect(me.page.locator("tbody tr").first).to_contain_text("client/slow/1")


def _is_it_worse(me: Newcomer, _: Asked) -> None:
    for chart in ("Backlog", "Failures"):
        expect(me.page.get_by_role("group", name=chart).get_by_role("img")).to_be_visible()


def _why_the_store_failed(me: Newcomer, asked: Asked) -> None:
    _fell_out(asked.mess.server)
    me.page.reload()  # a page that is open asks for the last day once a minute
    outage = me.finding("The store could not be used")
    expect(outage).to_contain_text(re.compile(r"for \d+ \w+.* ago; it is in order again"))
    expect(outage).to_contain_text("The server started it again, and nothing that was answered is lost.")
    expect(outage).to_contain_text("The store was killed by signal 9")
    row = me.row("The last day of the servers", "the store could not be used")
    age = row.locator("td").first.inner_text()
    expect(row.locator("td").first).not_to_have_text(age, timeout=SEEN_MS)
    (clerk,) = (each for each in asked.mess.desk.get("/receivers?contains=clerk")["receivers"])
    assert (clerk["address"], clerk["waiting"]) == ("127.0.0.1", 2)


def _by_key(me: Newcomer, _: Asked) -> None:
    me.menu("Message")
    me.types("idempotency key", "order-100")
    found = me.row("Messages with this idempotency key", '"order":100')
    expect(found).to_contain_text("waiting: client/clerk/1")
    me.click(found.get_by_role("link").first)
    expect(me.row("Receivers", "client/clerk/1")).to_contain_text("its token has expired")


def _did_it_arrive(me: Newcomer, _: Asked) -> None:
    me.menu("Message")
    me.types("field such as", "order=100")
    rows = me.page.get_by_role("table", name="Stored messages").locator("tbody tr")
    expect(rows).to_have_count(1)  # and not that of order 1000
    me.click(rows.get_by_role("link").first)
    expect(me.row("Receivers", "client/clerk/1")).to_contain_text("waiting")
    me.reads('"order": 100')


def _why_dead(me: Newcomer, _: Asked) -> None:
    me.menu("Dead letters")
    me.link("user.update.illegalState")
    me.reads("10 dead letters match.")
    me.click(me.page.locator("td a").first)
    expect(me.page.locator("dt", has_text="Reason").locator("+ dd")).to_have_text(HOSTILE)


def _poison(me: Newcomer, _: Asked) -> None:
    me.menu("Dead letters")
    me.link("came back 2 times")
    me.reads("1 dead letter matches.")
    me.click(me.page.locator("td a").first)
    me.reads('"price": "twelve"')


def _send_again(me: Newcomer, asked: Asked) -> None:
    me.menu("Dead letters")
    me.link("no flour")
    me.reads("1 dead letter matches.")
    me.click(me.page.get_by_role("button", name="Select the one that matches"))
    assert "Sends 1 dead letter" in me.confirms("Redrive", "there is flour")
    until(lambda: take_and_accept_all(asked.bakery))
    expect(me.page.locator(".outcome")).to_contain_text("1 dead letter redriven.")


def _did_it_help(me: Newcomer, _: Asked) -> None:
    me.menu("Jobs")
    me.click(me.row("Jobs", "there is flour").get_by_role("link"))
    me.reads("1 acknowledged")


def _undo_a_discard(me: Newcomer, _: Asked) -> None:
    me.menu("Dead letters")
    me.link(re.compile("^Bin: "))
    me.click(me.page.get_by_role("button", name="Select all 2 that match"))
    told = me.confirms("Restore", "they were needed")
    assert "Makes 2 discarded dead letters of the receiver client/kitchen/1 dead letters again, under new ids." in told
    expect(me.page.locator(".outcome")).to_contain_text("2 dead letters restored: ", timeout=SEEN_MS)
    expect(me.page.locator(".outcome").get_by_role("link")).to_have_count(2)


def _who_discarded(me: Newcomer, asked: Asked) -> None:
    me.menu("Audit")
    me.types("What begins with", "discard")
    me.click(me.row("Audit", "by mistake").get_by_role("link").first)
    me.reads("It was discarded, and restored by admin")


def _who_changed_what(me: Newcomer, _: Asked) -> None:
    me.menu("Audit")
    entry = me.row("Audit", "they were needed")
    expect(entry).to_contain_text("admin")
    expect(entry.get_by_role("link")).to_have_count(4)  # what was restored, and as what


def _from_where(me: Newcomer, _: Asked) -> None:
    me.menu("Receivers")
    me.types("Address", "127.0.0.1")
    expect(me.page.locator("tbody tr", has_text="client/bakery/1")).to_contain_text("127.0.0.1")
    me.types("Address", "10.1.2.3")
    me.reads("No receiver matches.")


def _go_on(me: Newcomer, _: Asked) -> None:
    me.opens("client/printer/1 is on hold")
    me.confirms("Skip one", "not needed")
    me.reads("1 message became a dead letter. The receiver is still on hold.")
    me.confirms("Release", "paper is in")
    expect(me.page.get_by_role("button", name="Hold", exact=True)).to_be_visible()


ANSWERS: dict[str, Callable[[Newcomer, Asked], None]] = {
    "What is wrong now, and since when?": _what_is_wrong,
    "Why does joe get nothing?": _why_nothing,
    "Which message stopped joe?": _which_message,
    "Is a queue full, since when, and what did it turn away?": _full_queue,
    "Whose token has expired?": _expired_token,
    "Why can joe not log in?": _no_login,
    "Which group lags behind?": _which_group,
    "Who has the longest backlog?": _longest_backlog,
    "Who is connected from 10.1.2.3, and with which client?": _from_where,
    "Is it getting worse?": _is_it_worse,
    "Why did the store fail an hour ago?": _why_the_store_failed,
    "Where is the message with the key order-17?": _by_key,
    "Did order 17 reach the kitchen?": _did_it_arrive,
    "Why did these messages die?": _why_dead,
    "Which message fails again and again?": _poison,
    "Send again what failed": _send_again,
    "Did the redrive help?": _did_it_help,
    "Undo a discard": _undo_a_discard,
    "Who discarded that dead letter, and why?": _who_discarded,
    "Who changed what?": _who_changed_what,
    "Let joe continue without that message": _go_on,
}
"""The questions of the manual, and the clicks from the overview that answer them."""


def test_the_manual_has_these_questions() -> None:
    manual = (ROOT / "docs" / "how-to" / "console.md").read_text("utf-8").partition("## Questions of an operator")[2]
    assert re.findall(r"^\| (.+?) \| .+ \|$", manual.partition("\n## ")[0], re.MULTILINE)[2:] == list(ANSWERS)


def test_an_operator_answers_each_question_from_the_page_alone(browser: Browser, asked: Asked) -> None:
    console = Console(browser, asked.mess.server).open()
    console.refusals += ["404", "503"]
    me = Newcomer(console.page)
    rows = []
    for question, answer in ANSWERS.items():
        me.page.get_by_role("link", name="Overview").click()
        expect(me.page.get_by_role("heading", name="What is wrong")).to_be_visible(timeout=SEEN_MS)
        me.steps, began = 0, time.monotonic()
        answer(me, asked)
        rows.append(f"| {question} | {me.steps} | {time.monotonic() - began:.1f} |")
    print("", *rows, sep="\n")
    console.close()
