"""What the page says of receivers and servers: plain states, a cause for each, and the same figure wherever it stands."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.admin.desk import SETS, Desk, Receiver, publish
from tests.browser.test_console import Console
from tests.browser.test_looks import DESKTOP, PHONE, look_at
from tests.faults.health import store_pid
from tests.functional.wire import until
from tests.server_process import Server

FRESH_MS = 20_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a receiver in each of the states, a group, and a second start."""
    directory = tmp_path_factory.mktemp("receivers")
    sets = [f"--set={text}" for text in (*SETS, "storage.url=", "bayeux.max_interval_ms=600000")]
    first = Server(["--port=0", *sets], directory)
    until(lambda: Desk(first).get("/timeline")["events"])
    first.kill()
    started = Server(["--port=0", *sets, *(f"--set={text}" for text in first.store_sets)], directory)
    in_each_state(started)
    yield started
    started.end_well()


def in_each_state(server: Server) -> None:
    retries = {"retries": 5, "delay": 600_000}
    asked = {"full": {"queue": {"maxEntries": 3}}, "retry": {"dispatcher": retries}, "busy": {"maxOpen": 1}}
    people = {name: Receiver(server).be(f"{name}/1", **asked.get(name, {})) for name in ("well", "held", *asked)}
    for name, person in people.items():
        person.subscribe(f"/{name}")
    desk = Desk(server)
    assert Receiver(server).shake(name="away/1", update=True)["successful"]
    for _ in range(3):
        assert Receiver(server).shake(name="away/1", token="nonsense")["successful"] is False
    desk.post("/sessions/held/1/hold", {"reason": "out of paper"})
    for name, count in (("full", 8), ("held", 2), ("retry", 1), ("busy", 2)):
        publish(server, f"/{name}", count)
    people["retry"].reject(until(people["retry"].take), "communication.timeout", "the oven is cold")
    until(people["busy"].take)
    worker = Receiver(server).be("worker/1")
    joined = worker.send(worker.message("/meta/subscribe", subscription="/jobs", ext={"subscribe": {"group": "g"}}))
    assert joined[-1]["successful"] is True
    desk.post("/sessions/worker/1/hold")
    publish(server, "/jobs", 4)
    for person in (worker, *people.values()):
        person.stay()
    until(lambda: [each for each in desk.get("/sessions/full/1")["causes"] if each.get("count") == 5])
    until(lambda: desk.get("/receivers?kind=group")["receivers"][0]["waiting"] == 4)


@pytest.fixture
def console(browser: Browser, server: Server) -> Iterator[Console]:
    operator = Console(browser, server)
    yield operator
    operator.close()


def row(page: Page, name: str) -> list[str]:
    """State and cause of a receiver in the list."""
    cells = page.locator("tbody tr", has_text=name)
    expect(cells.first).to_be_visible()
    return [cells.locator(f"td[data-label={heading}]").inner_text() for heading in ("State", "Why")]


def test_each_receiver_has_a_plain_state_and_a_cause_and_the_worst_come_first(console: Console) -> None:
    page = console.open("/receivers").page
    rows = page.locator("tbody tr")
    expect(rows.first).to_contain_text("/jobs g")  # as on the overview
    expect(rows.first.locator(".mark")).to_have_class("mark bad")
    expect(rows.nth(1)).to_contain_text("client/held/1")
    state, why = row(page, "client/full/1")
    assert state == "full"
    assert re.match(r"Its queue is full: 3 of 3 messages; 5 messages became dead letters \(since 2\d{3}-", why)
    state, why = row(page, "client/away/1")
    assert state == "away"
    assert "3 logins of its name were refused: user.security.authentication.accessDenied" in why
    assert re.search(r"at \S+ \S+, \S+ (ms|s|min).* ago, from 127\.0\.0\.1$", why)
    state, why = row(page, "client/retry/1")
    assert state == "waiting to retry"
    assert re.match(r"communication\.timeout: the oven is cold the next try in \d+ min.*, number 1 of 5$", why)
    state, why = row(page, "client/busy/1")
    assert (state, why.partition(" for ")[0]) == (
        "connected",
        "Its client is busy: 1 message sent and not acknowledged, of at most 1",
    )
    assert row(page, "client/well/1") == ["connected", ""]
    state, why = row(page, "/jobs g")
    assert state == "away"
    assert re.match(r"All its members are away or on hold since 2\d{3}-\S+ \S+, \S+ (ms|s|min).* ago$", why)
    expect(page.locator("td .mark", has_text="full").first).to_have_attribute(
        "title", re.compile("State in the API: ALIVE")
    )
    expect(page.locator("tbody tr").last).to_contain_text("client/well/1")
    page.get_by_role("combobox", name=re.compile("^State")).select_option("full")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page).to_have_url(re.compile("condition=full"))


ONE_LINE = 30
"""Pixels of a line, less than those of two."""


def test_names_and_causes_have_one_line_and_the_rest_is_there_on_demand(console: Console) -> None:
    page = console.open("/receivers").page
    page.set_viewport_size(DESKTOP["viewport"])
    expect(page.locator("tbody tr", has_text="client/full/1")).to_be_visible()
    heights = "each => each.map((one) => one.getBoundingClientRect().height)"
    assert max(page.locator("tbody td.name .parts, tbody .why .line").evaluate_all(heights)) < ONE_LINE
    headings = page.locator("thead th")
    assert not {"Transport", "Address", "Client", "State in the API"} & set(headings.all_inner_texts())
    page.get_by_label("Columns").select_option("all")
    expect(page.locator("td[data-label='State in the API']").first).to_have_text(re.compile("ALIVE|POLLING"))
    expect(headings.filter(has_text="Address")).to_be_visible()
    too_wide = "each => each.scrollWidth - each.clientWidth"
    assert page.locator(".scroll").evaluate(too_wide) <= 0  # all columns fit, and the cause has room
    assert page.locator("td.cause").first.evaluate("each => each.clientWidth") > 200
    page.goto(f"{console.server.base}/admin/#/receivers?transport=none")
    expect(headings.filter(has_text="Address")).to_be_visible()  # for those who ask for certain clients
    page.goto(f"{console.server.base}/admin/#/receivers?contains=full")
    cause = page.locator(".why")
    cause.locator("summary").click()
    old = cause.element_handle()
    page.wait_for_function("each => !each.isConnected", arg=old, timeout=FRESH_MS)  # the next answer is there
    expect(cause).to_have_attribute("open", "")
    menu = page.get_by_role("navigation")
    badge = menu.get_by_role("link", name=re.compile(r"^\d in trouble$"))
    expect(badge).to_have_attribute(
        "title", re.compile("^The group g on /jobs has no member .*; 2 receivers are on hold; client/full/1 is full; ")
    )
    expect(menu.get_by_role("link", name=re.compile(r"^\d dead letters$"))).to_be_visible()
    badge.click()
    expect(page.locator("tbody tr").first).to_contain_text("/jobs g")
    page.set_viewport_size(PHONE["viewport"])
    expect(menu.get_by_text("in trouble")).to_have_css("width", "1px")  # the number alone: the menu continues beside it


def test_the_page_of_a_receiver_says_why_since_when_and_what_to_do(console: Console) -> None:
    page = console.open("/receivers/client/full/1").page
    why = page.locator(".finding.bad")
    expect(why).to_contain_text("Its queue is full: 3 of 3 messages; 5 messages became dead letters (since 2")
    expect(why).to_contain_text("Make its client process messages faster")
    expect(why).to_contain_text("Draining does not help")
    expect(page.locator("dt", has_text="State").locator("+ dd")).to_have_text("full")
    event = page.get_by_role("table", name="What happened").locator("tbody tr")
    expect(event).to_contain_text("its queue was full, and turned messages away")
    expect(event).to_contain_text("they became dead letters")
    expect(event.locator("td").nth(2)).to_have_text("5")
    page.goto(f"{console.server.base}/admin/#/receivers/client/away/1")
    expect(page.locator(".finding").first).to_contain_text("from 127.0.0.1")
    expect(page.locator(".finding").first).to_contain_text("Give its client a token or a name that holds.")
    page.goto(f"{console.server.base}/admin/#/receivers/client/well/1")
    expect(page.locator("dt", has_text="State").locator("+ dd")).to_have_text("connected")
    expect(page.locator(".finding")).to_have_count(0)


def number_in(text: str) -> int:
    found = re.search(r"\d[\d,]*", text)
    assert found is not None, text
    return int(found[0].replace(",", ""))


def test_tile_legend_and_list_have_the_same_figures(console: Console) -> None:
    page = console.open().page
    desk = Desk(console.server)
    receivers = desk.get("/receivers?count=1000")["receivers"]
    backlog = sum(each["waiting"] for each in receivers)
    sessions = sum(each["kind"] == "session" for each in receivers)
    tile = page.locator(".tiles dd")
    expect(page.locator(".tiles div", has_text="Waiting").locator("dd")).to_contain_text(str(backlog), timeout=FRESH_MS)
    for chart, wanted in (("Backlog", f"waiting {backlog}"), ("Sessions", f"all {sessions},")):
        image = page.get_by_role("group", name=chart).get_by_role("img")
        expect(image).to_have_attribute("aria-label", re.compile(f"now: {wanted}"), timeout=FRESH_MS)
    legend = page.get_by_role("group", name="Backlog").locator(".u-value").last
    expect(legend).to_have_text(str(backlog), timeout=FRESH_MS)
    assert number_in(page.locator(".tiles div", has_text="Sessions").locator("dd").inner_text()) == sessions
    card = page.locator(".card", has=page.get_by_role("heading", name="Sessions", exact=True))
    there = [
        number_in(card.locator("dt", has_text=word).locator("+ dd").first.inner_text())
        for word in ("connected", "away")
    ]
    assert sum(there) == sessions
    assert tile.count() == 7
    card.get_by_role("link", name="away").click()
    expect(page.locator("tbody tr")).to_have_count(there[1])
    # A burst of some seconds is no rate of a minute.
    page.get_by_role("link", name="Overview").click()
    failures = page.get_by_role("group", name="Failures").get_by_role("img")
    made = desk.get("/overview")["store"]["lettersNew"]
    # Before the first sample it is a dash.
    expect(failures).to_have_attribute("aria-label", re.compile(r"dead letters \d"), timeout=FRESH_MS)
    label = failures.get_attribute("aria-label") or ""
    assert number_in(label.partition("dead letters ")[2]) <= made


def test_the_overview_has_one_finding_for_each_cause_with_its_time(console: Console) -> None:
    page = console.open().page
    findings = page.locator(".finding")
    expect(findings.filter(has_text="client/full/1 is full")).to_contain_text(re.compile(r"since 2\d{3}-"))
    expect(findings.filter(has_text="2 receivers are on hold")).to_contain_text("client/held/1: out of paper")
    expect(findings.filter(has_text="A login as client/away/1 was refused")).to_have_count(1)
    expect(findings.filter(has_text="client/retry/1 waits to retry")).to_have_count(1)
    for name in ("full", "away", "retry"):
        expect(findings.filter(has_text=f"client/{name}/1")).to_have_count(1)
    expect(page.get_by_role("meter")).to_be_visible()
    expect(page.locator("dt", has_text="Disk of the store").locator("+ dd")).to_contain_text("% used")
    day = page.get_by_role("table", name="The last day of the servers")
    expect(day.locator("tr", has_text="started").first).to_contain_text("it was killed, or has crashed")
    expect(day.locator("tr", has_text="logins were refused")).to_contain_text("3 with user.security.authentication")


def test_an_operator_signs_in_while_the_store_hangs_and_sees_what_is_unknown(browser: Browser, server: Server) -> None:
    store, desk = store_pid(server), Desk(server)
    os.kill(store, signal.SIGSTOP)
    try:
        until(lambda: desk.cmd("__cmd:?lastError") != "")
        console = Console(browser, server)
        console.refusals.append("503")
        page = console.open().page
        expect(page.locator(".finding", has_text="The store cannot be used")).to_contain_text("no answer in time")
        tile = page.locator(".tiles div", has_text="Dead letters").locator("dd")
        expect(tile).to_have_text(re.compile(r"^unknown since \d\d:\d\d$"))
        expect(page.locator("dt", has_text="Memory of the store").locator("+ dd")).to_have_text(tile.inner_text())
        expect(page.get_by_role("heading", name="What is wrong")).to_have_text(
            f"What is wrong: {page.locator('.wrong[aria-labelledby] article').count()}"
        )
        console.close()
    finally:
        os.kill(store, signal.SIGCONT)
    until(lambda: desk.cmd("__cmd:?lastError") == "")


def test_receivers_and_servers_look_well(browser: Browser, server: Server) -> None:
    console = Console(browser, server, **PHONE).open()
    page = console.page
    expect(page.get_by_role("table", name="The last day of the servers")).to_be_visible()
    expect(page.locator("canvas")).to_have_count(6)
    views = {"overview": "/", "receivers": "/receivers", "full": "/receivers/client/full/1", "timeline": "/timeline"}
    for name, view in (views | {"away": "/receivers/client/away/1", "topics": "/topics"}).items():
        console.show(view)
        look_at(page, f"state-{name}")
    console.close()
