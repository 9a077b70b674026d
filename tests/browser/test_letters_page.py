"""Dead letters on the operator's page: what is selected, undo of a discard, an edited message; a test message; groups."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.admin.desk import SETS, STORED, Desk, Receiver
from tests.browser.test_console import Console, confirm
from tests.browser.test_looks import PHONE
from tests.functional.bayeux import Message
from tests.functional.wire import until
from tests.server_process import Server

pytestmark = pytest.mark.timeout(300)

COUNT = 55
ROWS = 50
NUMBERS = (
    '{"order":9007199254740993,"id":18446744073709551617,"price":12345678901234567.89,"tiny":1e-400,'
    '"one":1.0,"hundred":1e2,"zero":-0.0,"text":"1.0 \\"2.0\\\\","note":"x"}'
)
"""Data whose numbers JavaScript would write otherwise."""


@pytest.fixture
def receivers(tmp_path: Path) -> Iterator[tuple[Server, Receiver, Receiver]]:
    """A server with two receivers, joe and ann."""
    server = Server(["--port=0", *(f"--set={text}" for text in SETS)], tmp_path)
    joe = Receiver(server).be("joe/1", dispatcher={"retries": -1, "delay": 1})
    ann = Receiver(server).be("ann/1")
    for each, channel in ((joe, "/kitchen/bar"), (ann, "/kitchen/orders")):
        each.subscribe(channel)
    yield server, joe, ann
    server.end_well()


@pytest.fixture
def letters(receivers: tuple[Server, Receiver, Receiver]) -> tuple[Server, Receiver]:
    """Their dead letters: one of joe, who has rejected it twice, and the others of ann."""
    server, joe, ann = receivers
    speaker = Receiver(server).be()
    for number in range(COUNT - 1):
        speaker.publish("/kitchen/orders", {"order": 100 + number}, ext=STORED)
    speaker.publish("/kitchen/bar", {"order": 1000, "price": "twelve"}, ext=STORED)
    joe.reject(until(joe.take), "communication.noConnection", "no printer")
    joe.reject(until(joe.take), "user.update.error", "the price 12 is no number")
    left = COUNT - 1
    while left:
        messages = until(ann.take)
        ann.reject(messages, text="")
        left -= len(messages)
    until(lambda: Desk(server).get("/dead-letters/count")["count"] == COUNT)
    return server, joe


def test_operator_selects_exactly_what_is_meant_and_undoes_a_discard(
    browser: Browser, letters: tuple[Server, Receiver]
) -> None:
    server, _ = letters
    console = Console(browser, server).open("/dead-letters")
    page = console.page
    redrive = page.get_by_role("button", name="Redrive", exact=True)
    expect(page.locator("tbody tr")).to_have_count(ROWS)
    expect(page.get_by_text("Nothing is selected.")).to_be_visible()
    expect(redrive).to_be_disabled()
    boxes = page.get_by_label(re.compile(r"^Select \d"))
    boxes.nth(2).click()
    boxes.nth(6).click(modifiers=["Shift"])
    expect(page.get_by_text("5 dead letters selected.")).to_be_visible()
    boxes.nth(6).uncheck()
    boxes.nth(5).click(modifiers=["Shift"])
    expect(page.get_by_text("3 dead letters selected.")).to_be_visible()
    page.get_by_label("Select this page").check()
    expect(page.get_by_text(f"{ROWS} dead letters selected.")).to_be_visible()
    page.get_by_role("button", name="Select none").click()
    expect(redrive).to_be_disabled()

    page.get_by_role("button", name=f"Select all {COUNT} that match").click()
    expect(page.get_by_text(f"All {COUNT} that match are selected.")).to_be_visible()
    told = confirm(page, "Discard", "by mistake")
    assert f"Discards {COUNT} dead letters of 2 receivers: client/ann/1 ({COUNT - 1}), client/joe/1 (1)." in told
    expect(page.get_by_text("0 dead letters in all.")).to_be_visible()
    expect(page.get_by_role("link", name=f"Bin: {COUNT} discarded dead letters")).to_be_visible()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".outcome")).to_contain_text(f"{COUNT} dead letters restored: ")
    expect(page.locator("tbody tr")).to_have_count(ROWS)

    boxes.first.check()
    confirm(page, "Discard", "this one")
    expect(page.locator(".outcome")).to_contain_text("1 dead letter discarded.")
    page.get_by_role("link", name="Bin: 1 discarded dead letter").click()
    expect(page.locator("tbody tr")).to_have_count(1)  # those of the view before are there until the bin is
    expect(page.locator("tbody tr")).to_contain_text("by admin")
    page.get_by_role("button", name="Select the one that matches").click()
    confirm(page, "Restore", "still needed")
    expect(page.locator(".outcome")).to_have_text(re.compile(r"^1 dead letter restored: \d+-\d+\.$"))
    expect(page.get_by_text("The bin is empty.")).to_be_visible()
    console.close()


def test_operator_finds_a_message_by_its_field_and_edits_it(browser: Browser, letters: tuple[Server, Receiver]) -> None:
    server, joe = letters
    console = Console(browser, server).open("/dead-letters")
    page = console.page
    groups = page.locator(".groups")
    expect(groups.get_by_text("without a reason")).to_be_visible()
    expect(groups.get_by_role("link", name="without a reason")).to_have_count(0)  # it would select all
    page.get_by_label("Field: order=100").fill("order=100")
    page.get_by_role("button", name="Filter").click()
    expect(page.get_by_text("1 dead letter matches.")).to_be_visible()  # and not that of order 1000
    page.get_by_label("Field: order=100").fill("")
    page.get_by_role("button", name="Filter").click()
    groups.get_by_role("link", name="the price # is no number").click()
    page.locator("td a").first.click()
    attempts = page.get_by_role("table", name="Attempts").locator("tbody tr")
    expect(attempts).to_contain_text(["no printer", "the price 12 is no number"])
    original = page.url.rpartition("/")[2]

    page.get_by_role("button", name="Edit and send again").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Data of the message").fill("{")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog).to_be_visible()  # that is not JSON
    dialog.get_by_label("Data of the message").fill(json.dumps({"order": 1000, "price": 12}))
    dialog.get_by_label("Reason").fill("a price is a number")
    console.refusals.append("404")
    dialog.get_by_role("button", name="Send").click()
    expect(page.locator(".outcome")).to_contain_text(f"The bin has the original, {original}.")
    expect(page.get_by_text("It was edited and sent again")).to_be_visible()
    expect(page.get_by_role("button", name="Restore")).to_be_visible()
    assert [each["data"] for each in until(joe.take)] == [{"order": 1000, "price": 12}]
    console.close()


def publish_text(server: Server, channel: str, data: str, **options: object) -> None:
    """Publish data with this text, stored."""
    speaker = Receiver(server).be()
    message = json.dumps([speaker.message(channel, data=0, ext={"publish": {"persistent": True} | options})])
    body = message.replace('"data": 0', f'"data": {data}').encode()
    speaker.command.request("POST", speaker.path, body, speaker.all_headers())
    assert speaker.command.response().messages[0]["successful"] is True


def take_text(receiver: Receiver) -> tuple[list[Message], str]:
    """The messages of one connect, and the text of the data of the one message that it brings."""
    response = receiver.ask_connect(advice={"timeout": 0}, ext={"ack": receiver.batch}).response()
    *messages, reply = response.messages
    receiver.batch = reply["ext"]["ack"]
    texts = re.findall(rb'"data":(\{[^{}]*\})', response.body)
    return messages, b"".join(texts).decode()


def test_numbers_of_data_that_is_shown_and_edited_keep_their_digits(
    browser: Browser, receivers: tuple[Server, Receiver, Receiver]
) -> None:
    server, joe, _ = receivers
    publish_text(server, "/kitchen/bar", NUMBERS, history={"maxEntries": 5})
    messages, text = until(lambda: next(filter(all, [take_text(joe)]), None))
    assert text == NUMBERS
    joe.reject(messages)
    (letter,) = until(Desk(server).letters)
    console = Console(browser, server).open("/dead-letters")
    page = console.page
    expect(page.locator("tbody code.data")).to_have_text(NUMBERS)
    for view in ("/message?contains=note", "/topics/kitchen/bar"):
        page.goto(f"{server.base}/admin/#{view}")
        expect(page.locator("tbody code.data").last).to_have_text(NUMBERS)
    for view, heading in ("message", "Message"), ("dead-letters", "Dead letter"):
        page.goto(f"{server.base}/admin/#/{view}/{letter['id']}")
        expect(page.get_by_role("heading", name=f"{heading} {letter['id']}")).to_be_visible()
        expect(page.locator("pre").first).to_contain_text('"order": 9007199254740993,')
        expect(page.locator("pre").first).to_contain_text('"one": 1.0,')

    page.get_by_role("button", name="Edit and send again").click()
    dialog = page.get_by_role("dialog")
    area = dialog.get_by_label("Data of the message")
    area.fill(area.input_value().replace('"x"', '"y"'))
    console.refusals.append("404")
    dialog.get_by_role("button", name="Send").click()
    expect(page.locator(".outcome")).to_contain_text("The bin has the original")
    expect(page.locator("pre").first).to_contain_text('"price": 12345678901234567.89,')  # of the bin
    messages, text = until(lambda: next(filter(all, [take_text(joe)]), None))
    assert text == NUMBERS.replace('"x"', '"y"')
    joe.accept(messages)

    page.goto(f"{server.base}/admin/#/topics/kitchen/bar")
    page.get_by_role("button", name="Publish a test message").click()
    dialog.get_by_label("Data").fill(NUMBERS)
    dialog.get_by_role("button", name="Publish").click()
    expect(page.locator(".outcome")).to_contain_text("Published.")
    assert until(lambda: take_text(joe)[1]) == NUMBERS
    page.goto(f"{server.base}/admin/#/receivers/client/joe/1")
    expect(page.locator("tbody code.data")).to_have_text(NUMBERS)
    console.close()


def test_operator_publishes_a_test_message_from_the_page_of_a_topic(
    browser: Browser, receivers: tuple[Server, Receiver, Receiver]
) -> None:
    server, joe, _ = receivers
    Receiver(server).be().publish("/kitchen/bar", 0, ext=STORED)  # as to any topic in use
    joe.accept(until(joe.take))
    console = Console(browser, server).open("/topics/kitchen/bar")
    page = console.page
    page.get_by_role("button", name="Publish a test message").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It has 1 subscriber.")
    dialog.get_by_label("Data").fill('{"test": 1}')
    dialog.get_by_label("Store it").check()
    dialog.get_by_role("button", name="Publish").click()
    expect(page.locator(".outcome")).to_contain_text("Published as message ")
    assert [each["data"] for each in until(joe.take)] == [{"test": 1}]
    page.locator(".outcome").get_by_role("link").click()
    expect(page.locator("tbody tr", has_text="client/joe/1")).to_be_visible()
    console.close()


def test_operator_releases_several_receivers_at_once(
    browser: Browser, receivers: tuple[Server, Receiver, Receiver]
) -> None:
    server, *_ = receivers
    desk = Desk(server)
    for name in ("joe/1", "ann/1"):
        desk.post(f"/sessions/{name}/hold")
    publisher = Receiver(server).be()
    publisher.publish("/kitchen/orders", 1, ext=STORED)
    console = Console(browser, server).open("/receivers")
    page = console.page
    for name in ("Release", "Skip one", "Clear queues"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    page.get_by_role("button", name=re.compile("^Select all")).click()
    told = confirm(page, "Release", "paper is in")
    assert "Delivers to 2 receivers: client/ann/1, client/joe/1 again. 1 message waits." in told
    expect(page.locator(".outcome")).to_have_text("2 receivers released.")
    assert all(desk.get(f"/sessions/{name}")["active"] for name in ("joe/1", "ann/1"))
    page.get_by_label("Select client/ann/1").check()
    page.get_by_role("button", name="Release", exact=True).click()
    expect(page.locator(".outcome")).to_have_text("None of them is on hold.")
    assert "Drops the whole queues of client/ann/1" in confirm(page, "Clear queues", "not needed")
    expect(page.locator(".outcome")).to_have_text("1 receiver cleared.")
    assert desk.get("/sessions/ann/1")["waiting"] == 0
    console.close()


def test_receiver_that_has_left_the_list_keeps_its_queue(
    browser: Browser, receivers: tuple[Server, Receiver, Receiver]
) -> None:
    """The question has the figures of the others as they are now, and the focus stays in the list."""
    server, *_ = receivers
    desk, publisher = Desk(server), Receiver(server).be()
    for name, channel in (("joe/1", "/kitchen/bar"), ("ann/1", "/kitchen/orders")):
        desk.post(f"/sessions/{name}/hold")
        publisher.publish(channel, 1, ext=STORED)
    console = Console(browser, server).open("/receivers?condition=on%20hold")
    page = console.page
    joe, ann = (page.get_by_label(f"Select client/{name}/1") for name in ("joe", "ann"))
    ann.check()
    joe.check()
    joe.focus()
    desk.post("/sessions/joe/1/activate")
    publisher.publish("/kitchen/orders", 2, ext=STORED)
    expect(joe).to_have_count(0)
    expect(ann).to_be_focused()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    told = confirm(page, "Clear queues", "not needed")
    assert "Drops the whole queues of client/ann/1 without dead letters. 2 messages wait. 1 other" in told
    of_question = [url for url in asked if "kind=session" in url]
    assert [re.findall("contains=client%2F(ann|joe)%2F1&", url) for url in of_question] == [["ann"], ["joe"]]
    expect(page.locator(".outcome")).to_have_text("1 receiver cleared.")
    assert [desk.get(f"/sessions/{name}/1")["waiting"] for name in ("joe", "ann")] == [1, 0]
    console.close()


LONG = "x" * 200
"""A name without a place to break."""
TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"


def test_long_names_fit_a_telephone(browser: Browser, receivers: tuple[Server, Receiver, Receiver]) -> None:
    server, *_ = receivers
    receiver, channel = Receiver(server).be(f"{LONG}/1"), f"/{LONG}/{LONG}"
    receiver.subscribe(channel)
    publisher = Receiver(server).be()
    publisher.publish(channel, 1, ext=STORED)
    receiver.reject(until(receiver.take))
    (letter,) = until(Desk(server).letters)
    publisher.publish(channel, 2, ext=STORED)
    console = Console(browser, server, **PHONE).open("/jobs")
    console.refusals.append("404")  # of a subject without a queue
    page = console.page
    found = {}
    for view in (
        "/receivers",
        f"/receivers?contains={LONG}",
        f"/receivers/client/{LONG}",
        f"/receivers/client/{LONG}/1",
        "/topics",
        f"/topics{channel}",
        f"/dead-letters?receiver=client/{LONG}/1",
        f"/dead-letters/{letter['id']}",
        f"/message/{letter['message']}",
    ):
        console.show(view)
        found[view] = page.evaluate(TOO_WIDE)
    console.show(f"/receivers/client/{LONG}/1")
    page.get_by_role("button", name="Hold", exact=True).click()
    found["question"] = page.get_by_role("dialog").evaluate("each => each.scrollWidth - each.clientWidth")
    page.get_by_role("dialog").locator(".primary").click()
    expect(page.locator(".outcome")).to_have_text("On hold.")
    console.show("/audit")
    found["audit"] = page.evaluate(TOO_WIDE)
    console.show(f"/commands?command=client/{LONG}/1/?dispatcherActive")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("list", name="Results").locator("li")).to_contain_text("false")
    found["command"] = page.evaluate(TOO_WIDE)
    assert {view: more for view, more in found.items() if more > 0} == {}
    console.close()


def test_operator_sees_which_member_of_a_group_has_what(
    browser: Browser, receivers: tuple[Server, Receiver, Receiver]
) -> None:
    server, *_ = receivers
    worker = Receiver(server).be("worker/1", maxOpen=1)
    worker.send(worker.message("/meta/subscribe", subscription="/jobs/*", ext={"subscribe": {"group": "workers"}}))
    speaker = Receiver(server).be()
    for number in range(3):
        speaker.publish("/jobs/print", number, ext=STORED)
    until(lambda: Desk(server).get("/groups/jobs/*?name=workers")["waiting"] == 2)
    console = Console(browser, server).open("/receivers?kind=group")
    page = console.page
    page.get_by_role("link", name="/jobs/* workers").click()
    expect(page.get_by_text("2 messages that no member has yet")).to_be_visible()
    row = page.get_by_role("table", name="Members").locator("tbody tr")
    expect(row).to_contain_text("client/worker/1")
    expect(row.locator("td.number").first).to_have_text("1")
    expect(page.locator("dt", has_text="Rate").locator("+ dd").get_by_role("img")).to_be_visible()
    page.goto(f"{server.base}/admin/#/topics/jobs/print")
    expect(page.locator("dt", has_text="Last ten minutes").locator("+ dd").get_by_role("img")).to_be_visible()
    page.get_by_role("link", name="workers on /jobs/*").click()
    expect(page.get_by_role("heading", name="Group workers on /jobs/*")).to_be_visible()
    console.close()
