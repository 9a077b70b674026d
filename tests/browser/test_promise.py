"""What was answered survives, as people see it: the server is killed and started again under pages that chat, its store goes
away and comes back, and nobody misses a line, sees one twice, or has to do anything."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from playwright.sync_api import WebSocket, expect

from tests.browser.conftest import Meet
from tests.browser.person import Person
from tests.conftest import StartServer
from tests.server_process import Server
from tests.store_process import StoreProcess, until

PATIENT = "bayeux.max_interval_ms=60000"
ALL_TRANSPORTS = "bayeux.transports=websocket,long-polling,callback-polling"
ROOM = ["joe", "sue"]


class Handshakes:
    """Counts the handshakes that a page sends, over any transport."""

    def __init__(self, person: Person) -> None:
        self.count = 0
        person.page.on("request", lambda request: self._look(f"{request.url} {request.post_data}"))
        person.page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        socket.on("framesent", self._look)

    def _look(self, sent: Any) -> None:
        text = sent if isinstance(sent, str) else sent.decode()
        self.count += "/meta/handshake" in text or "%2Fmeta%2Fhandshake" in text


def come(meet: Meet, server: Server, name: str, transport: str) -> tuple[Person, Handshakes]:
    """Somebody joins; what their browser says of a server that is away is expected."""
    person = meet(server.base, name)
    person.expect_complaint("net::ERR_")
    person.expect_complaint("already in CLOSING or CLOSED state")  # a line that meets the end is repeated
    handshakes = Handshakes(person)
    person.join(transport=transport)
    return person, handshakes


def refused(person: Person, text: str) -> None:
    """Wait until the page says that the line was not taken, and offers it for another try."""
    notice = person.page.locator("#log .notice .what").filter(has_text=f"Kept for another try: {text}")
    expect(notice.last).to_contain_text("503::resource.unavailable")
    expect(person.page.get_by_label("Message", exact=True)).to_have_value(text)


@pytest.mark.parametrize(
    ("end", "transports"),
    [
        ("kill", ("websocket", "long-polling")),
        ("kill", ("long-polling", "callback-polling")),
        ("terminate", ("websocket", "long-polling")),
    ],
)
def test_pages_go_on_after_a_restart_with_all_that_was_said(
    start_server: StartServer, meet: Meet, end: str, transports: tuple[str, str]
) -> None:
    server = start_server(PATIENT, ALL_TRANSPORTS)
    joe, joes = come(meet, server, "joe", transports[0])
    sue, sues = come(meet, server, "sue", transports[1])
    joe.sees_members(2)
    said = [f"line {number}" for number in range(12)]
    for text in said[:6]:
        joe.say(text)
    getattr(server, end)()
    for text in said[6:9]:
        joe.say(text)
    joe.sees_state("Connection lost, trying again…")
    server = start_server(PATIENT, ALL_TRANSPORTS, *server.store_sets, port=server.port)
    for person in (joe, sue):
        person.sees_state("Connected")
    for text in said[9:]:
        joe.say(text)
    for person in (joe, sue):
        person.sees(said[-1])
        assert person.texts() == said
        person.sees_not(
            "The server no longer had this session, so the page opened a new one. Messages that came meanwhile are lost."
        )
    eve, _ = come(meet, server, "eve", "websocket")
    for person in (joe, sue, eve):
        person.sees_member("joe", "sue", "eve")
    sue.say("joe::are you still there?")
    joe.sees("are you still there?")
    assert (joes.count, sues.count) == (1, 1)


def test_what_was_answered_just_before_a_kill_is_there_with_a_store_of_its_own(
    start_server: StartServer, meet: Meet, tmp_path: Path
) -> None:
    server = start_server(PATIENT, "storage.url=", f"storage.data_dir={tmp_path / 'own'}")
    joe, joes = come(meet, server, "joe", "long-polling")
    sue, sues = come(meet, server, "sue", "websocket")
    sue.press("Go offline")
    sue.sees_state("Offline, as you asked")
    for number in range(3):
        for text in (f"before {number}", f"answered {number}"):
            joe.say(text)
            joe.sees(text)
        server.kill()
        server = start_server(PATIENT, *server.store_sets, port=server.port)
        joe.sees_state("Connected")
    sue.press("Go online")
    sue.sees("answered 2")
    expected = [f"{word} {number}" for number in range(3) for word in ("before", "answered")]
    assert joe.texts() == sue.texts() == expected
    for person in (joe, sue):
        person.sees_members(2)
    assert (joes.count, sues.count) == (1, 1)


def test_what_is_not_acknowledged_is_marked_and_not_shown_twice_after_a_kill(
    start_server: StartServer, meet: Meet
) -> None:
    server = start_server(PATIENT)
    joe, _ = come(meet, server, "joe", "websocket")
    sue, sues = come(meet, server, "sue", "long-polling")
    sue.acknowledge(False)
    for text in ("same", "same", "other"):
        joe.say(text)
    sue.sees("other")
    server.kill()
    start_server(PATIENT, *server.store_sets, port=server.port)
    sue.sees_state("Connected")
    sue.sees_again("other", at_least=2)
    sue.acknowledge(True)
    expect(sue.figure("Not acknowledged")).to_have_text("0")
    assert sue.texts() == ["same", "same", "other"]
    assert sues.count == 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreProcess]:
    """A store that this test alone stops and starts."""
    directory = tmp_path / "store"
    directory.mkdir()
    store = StoreProcess(directory)
    yield store
    store.close()


@pytest.mark.parametrize(("goes", "comes"), [("kill", "start"), ("stop", "go_on")], ids=["killed", "hanging"])
def test_a_line_that_the_store_could_not_take_is_kept_for_another_try(
    start_server: StartServer, meet: Meet, store: StoreProcess, picture: Any, goes: str, comes: str
) -> None:
    server = start_server(PATIENT, f"storage.url={store.url}")
    joe, sue = [meet(server.base, name).join() for name in ROOM]
    joe.say("before")
    sue.sees("before")
    getattr(store, goes)()
    joe.say("hello?")
    refused(joe, "hello?")
    if goes == "kill":
        picture(joe, "refused", whole=True)
    joe.press("Send")
    expect(joe.page.locator("#log .notice")).to_have_count(2)
    refused(joe, "hello?")
    sue.say("joe::I hear you")
    joe.sees("I hear you")
    getattr(store, comes)()
    until(lambda: is_ready(server))
    joe.press("Send")
    for person in (joe, sue):
        person.sees("hello?")
    joe.say("after")
    sue.sees("after")
    assert joe.texts() == ["before", "I hear you", "hello?", "after"]
    assert sue.texts() == ["before", "I hear you", "hello?", "after"]
    expect(joe.page.get_by_label("Message", exact=True)).to_have_value("")


def test_who_comes_while_the_store_is_away_is_told_and_let_in_later(
    start_server: StartServer, meet: Meet, store: StoreProcess
) -> None:
    server = start_server(PATIENT, f"storage.url={store.url}")
    store.kill()
    joe = meet(server.base, "joe")
    joe.try_to_join()
    expect(joe.page.get_by_role("alert")).to_have_text("The server replied 503::resource.unavailable. Trying again…")
    store.start()
    joe.sees_state("Connected")
    joe.say("at last")
    joe.sees("at last")


def is_ready(server: Server) -> bool:
    try:
        with urlopen(f"{server.base}/health/ready", timeout=30) as response:
            return bool(response.status == 200)
    except URLError:
        return False


def test_refused_lines_wait_for_one_another_in_the_input(start_server: StartServer, meet: Meet) -> None:
    server = start_server("storage.enabled=false")
    joe = meet(server.base, "joe").join()
    entry = joe.page.get_by_label("Message", exact=True)
    for text in ("one", "two"):
        joe.say(text)
        joe.page.locator("#log .notice").filter(has_text=f"Kept for another try: {text}").wait_for()
        if text == "one":
            entry.fill("something else")
            joe.press("Send")
            joe.page.locator("#log .notice").filter(has_text="Kept for another try: something else").wait_for()
            expect(entry).to_have_value("something else")
    expect(entry).to_have_value("two")


def test_a_server_without_a_store_carries_lines_that_are_not_reliable(start_server: StartServer, meet: Meet) -> None:
    server = start_server("storage.enabled=false")
    joe = meet(server.base, "joe").join(reliable=False)
    sue = meet(server.base, "sue").join()
    joe.say("light as a feather")
    sue.sees("light as a feather")
    sue.say("and heavy")
    refused(sue, "and heavy")
    assert joe.texts() == ["light as a feather"]


FORGETFUL = """
from crewel import Service

forgetful = Service("forgetful")

@forgetful.listener("/service/forget")
def forget(session, message):
    forgetful.publish("/members/demo", ["eve"])
"""


WATCH_FOR_EVE = """() => {
    new MutationObserver((changes) => {
        window.sawEve ||= changes.some((each) => [...each.addedNodes].some((node) => node.textContent === "eve"));
    }).observe(document.querySelector("#members"), {childList: true});
}"""


def test_a_page_that_is_missing_on_the_list_joins_again(start_server: StartServer, meet: Meet, tmp_path: Path) -> None:
    """As after a restart that was so quick that no connect of this page failed."""
    (tmp_path / "forgetful.py").write_text(FORGETFUL)
    server = start_server(PATIENT, service="forgetful")
    joe, sue = [meet(server.base, name).join(room="demo") for name in ROOM]
    joe.sees_members(2)
    for person in (joe, sue):
        person.page.evaluate(WATCH_FOR_EVE)
    joe.page.evaluate(
        """async () => {
            const {CometD} = await import("/static/vendor/cometd/cometd.js");
            const cometd = new CometD();
            cometd.configure({url: location.origin + "/cometd", logLevel: "warn"});
            await new Promise((resolve) => cometd.handshake(resolve));
            await new Promise((resolve) => cometd.publish("/service/forget", null, resolve));
            await new Promise((resolve) => cometd.disconnect(resolve));
        }"""
    )
    for person in (joe, sue):
        person.page.wait_for_function("() => window.sawEve")  # it was missing on the list
        person.sees_member("joe", "sue")
        person.sees_members(2)
