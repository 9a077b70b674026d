"""The panel "Break it": the page's own listener fails, and what became of the message is watched, as people see it."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.breaker import TOKEN, Breaker
from tests.browser.conftest import Meet
from tests.browser.person import Person
from tests.cli.command import crewel
from tests.conftest import StartServer
from tests.server_process import ROOT, Server
from tests.store_process import until

SETS = (f"admin.token={TOKEN}", "bayeux.max_interval_ms=60000")
HELD = re.compile(r"^on hold since ")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose administrator the tests know."""
    server = Server(["--port=0", *(f"--set={text}" for text in SETS)], tmp_path_factory.mktemp("break"))
    yield server
    server.end_well()


def come(meet: Meet, server: Server, transport: str) -> tuple[Breaker, Person]:
    """Joe, who breaks things, and Sue, who says them."""
    joe = Breaker.of(meet(server.base, "joe").join(transport=transport))
    sue = meet(server.base, "sue").join(transport=transport)
    joe.sees_members(2)
    return joe, sue


@pytest.mark.parametrize(
    ("transport", "choice", "code", "reason"),
    [
        ("websocket", "user.update.error", "user.update.error", "the page broke it on purpose"),
        ("long-polling", "user.update.deadMessage", "user.update.deadMessage", "the page broke it on purpose"),
        ("websocket", "a plain exception", "user.update.internalError", "the page's listener has a bug"),
    ],
)
def test_a_dead_letter_is_shown_and_sent_again(
    server: Server, meet: Meet, transport: str, choice: str, code: str, reason: str
) -> None:
    joe, sue = come(meet, server, transport)
    joe.opens().is_operator()
    joe.arms(choice)
    sue.say("eat this")
    sue.say("and this")
    joe.sees("and this")
    expect(joe.tag("eat this")).to_have_text(code)
    fate = joe.fate("eat this")
    expect(fate.locator("code")).to_have_text(code)
    expect(fate.locator("p").first).to_have_text(re.compile(rf"^Dead letter \d+-\d+: “{reason}”\.$"))
    expect(joe.delivery).to_have_text("running")
    expect(joe.waiting).to_have_text("0")
    joe.press("Send again: eat this")
    expect(joe.line("eat this")).to_have_count(2)
    expect(joe.tag("eat this").last).to_have_text("redriven")
    expect(fate.locator("p").first).to_have_text("Sent again by an operator.")
    sue.sees("eat this", times=1)
    joe.sees("and this", times=1)


@pytest.mark.parametrize("transport", ["websocket", "long-polling"])
def test_a_holdback_is_watched_and_released(server: Server, meet: Meet, transport: str) -> None:
    joe, sue = come(meet, server, transport)
    joe.opens()
    joe.arms("user.update.holdback")
    sue.say("not now")
    expect(joe.delivery).to_have_text(HELD)
    expect(joe.fate("not now").locator("p").first).to_have_text("On hold, first in the queue.")
    sue.say("second")
    sue.say("third")
    sue.sees("third")
    joe.is_operator()
    expect(joe.waiting).to_have_text("3")
    joe.sees_not("second")
    joe.press("Release")
    joe.sees("third")
    expect(joe.delivery).to_have_text("running")
    expect(joe.waiting).to_have_text("0")
    expect(joe.fate("not now").locator("p").first).to_have_text("Acknowledged at delivery 2.")
    expect(joe.tag("not now")).to_have_text("taken")
    expect(joe.line("not now").locator(".again")).to_have_text(re.compile(r"^sent again .1$"))
    assert joe.texts() == ["not now", "second", "third"]
    expect(joe.page.get_by_role("button", name="Release", exact=True)).to_be_disabled()


def test_a_retry_counts_its_deliveries(server: Server, meet: Meet) -> None:
    joe, sue = come(meet, server, "websocket")
    joe.opens()
    joe.arms("communication.timeout", 2)
    sue.say("again, please")
    fate = joe.fate("again, please")
    expect(fate.locator(".count")).to_have_text("delivery 1")
    expect(fate.locator("p").first).to_contain_text("The server sends it again in 2 s. After 4 failures in a row")
    sue.say("in the meantime")
    expect(fate.locator(".count")).to_have_text("delivery 2")
    expect(fate.locator("p").first).to_have_text("Acknowledged at delivery 3.")
    joe.sees("in the meantime")
    assert joe.texts() == ["again, please", "in the meantime"]
    expect(joe.line("again, please").locator(".again")).to_have_text(re.compile(r"^sent again .2$"))


def test_who_fails_too_often_is_given_up_and_what_waited_can_be_sent_to_the_room(server: Server, meet: Meet) -> None:
    joe, sue = come(meet, server, "websocket")
    joe.expect_complaint("404")  # the server is asked for a session that it has just given up
    joe.opens().is_operator()
    name = joe.figure("Name")
    before = name.inner_text()
    joe.arms("communication.timeout", 4)
    sue.say("four times")
    expect(joe.fate("four times").locator("p").first).to_contain_text("Dead letter", timeout=20_000)
    expect(joe.fate("four times").locator("code")).to_have_text("communication.timeout")
    expect(name).not_to_have_text(before)
    joe.sees_state("Connected")
    joe.press("Send to the room: four times")
    sue.sees("four times", times=2)
    expect(joe.line("four times").last.locator(".fate")).to_have_text("redriven")


def test_a_wrong_token_is_refused_plainly_and_nothing_is_kept_of_it(server: Server, meet: Meet) -> None:
    joe, _ = come(meet, server, "long-polling")
    joe.expect_complaint("401")
    joe.opens().shows_token("not-the-token")
    trouble = joe.page.get_by_role("alert")
    expect(trouble).to_have_text("The server does not accept this token.")
    expect(joe.page.get_by_label("Admin token")).to_be_focused()
    expect(joe.waiting).to_have_text("visible to operators")
    joe.shows_token("tök en")
    expect(trouble).to_have_text("A token has ASCII characters only, and no spaces.")
    requests: list[str] = []
    joe.page.on("request", lambda request: requests.append(f"{request.url} {request.post_data or ''}"))
    joe.is_operator()
    expect(joe.waiting).to_have_text("0")
    assert not [text for text in requests if TOKEN in text]
    kept = joe.page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href])")
    assert TOKEN not in kept
    expect(joe.page.get_by_label("Admin token")).to_have_value("")
    joe.press("Forget")
    expect(joe.waiting).to_have_text("visible to operators")


def test_without_a_token_the_panel_says_what_to_type(server: Server, meet: Meet) -> None:
    joe, sue = come(meet, server, "websocket")
    joe.opens()
    name = joe.figure("Name").inner_text()
    assert re.fullmatch(r"client/anonymous/-\d+", name)
    commands = joe.page.get_by_label("Commands").get_by_role("listitem")
    expect(commands).to_have_text(
        [
            f"crewel sessions activate {name}",
            f"crewel dead-letters list --receiver {name}",
            f"crewel dead-letters redrive --all --receiver {name}",
        ]
    )
    joe.arms("user.update.holdback")
    sue.say("wait")
    until_held(server, joe)
    expect(joe.page.locator("#releaseHint")).to_have_text("Only an operator can release it: see below.")
    type_in_terminal(server, "sessions", "activate", name)
    expect(joe.delivery).to_have_text("running")
    expect(joe.fate("wait").locator("p").first).to_have_text("Acknowledged at delivery 2.")
    joe.arms("user.update.error")
    sue.say("refuse me")
    expect(joe.fate("refuse me").locator("p").first).to_have_text("A dead letter. Operators can see it.")
    listed = until_listed(server, name)
    assert "refuse me" in listed
    type_in_terminal(server, "dead-letters", "redrive", "--all", "--receiver", name)
    expect(joe.tag("refuse me").last).to_have_text("redriven")


def test_a_server_that_is_away_is_told_plainly(start_server: StartServer, meet: Meet) -> None:
    server = start_server(*SETS)
    joe, sue = come(meet, server, "websocket")
    joe.expect_complaint("net::ERR_")
    joe.opens().is_operator()
    joe.arms("user.update.holdback")
    sue.expect_complaint("net::ERR_")
    sue.say("before the end")
    until_held(server, joe)
    server.kill()
    expect(joe.page.get_by_role("alert")).to_have_text("The server cannot be reached.")
    start_server(*SETS, *server.store_sets, port=server.port)
    for person in (joe, sue):
        person.sees_state("Connected")
    expect(joe.page.get_by_role("alert")).to_have_count(0)
    expect(joe.waiting).to_have_text(re.compile(r"^[1-9]"))  # lists of members wait too
    expect(joe.delivery).to_have_text(HELD)
    joe.press("Release")
    expect(joe.tag("before the end")).to_have_text("taken")


@pytest.mark.parametrize("transport", ["websocket", "long-polling", "callback-polling"])
def test_opening_the_panel_keeps_the_session_and_what_is_said_meanwhile(
    start_server: StartServer, meet: Meet, transport: str
) -> None:
    server = start_server(*SETS, "bayeux.transports=websocket,long-polling,callback-polling")
    joe, sue = come(meet, server, transport)
    joe.acknowledge(False)
    sue.say("before")
    joe.sees_again("before")
    sue.say("1")
    joe.page.locator("#breaking > summary").press("Enter")
    for number in range(2, 6):
        sue.say(str(number))
        joe.say(f"joe {number}")
    joe.sees_state("Connected")
    expect(joe.arm_button).to_be_enabled()
    joe.sees("5")
    for number in range(2, 6):
        sue.sees(f"joe {number}")
        joe.sees(f"joe {number}")
    expect(joe.page.get_by_label("Acknowledge incoming messages")).to_be_disabled()
    for person in (joe, sue):
        person.sees_members(2)
        assert sorted(person.texts()) == sorted(["before", *"12345", *(f"joe {number}" for number in range(2, 6))])
        expect(person.page.locator("#log .notice")).to_have_count(0)
    expect(sue.line("joe has left")).to_have_count(0)


def test_a_reload_keeps_the_panel_and_forgets_the_token(server: Server, meet: Meet) -> None:
    joe, sue = come(meet, server, "websocket")
    joe.opens().is_operator()
    joe.arms("user.update.holdback")
    sue.say("stay")
    until_held(server, joe)
    joe.page.reload()
    joe.sees_state("Connected")
    expect(joe.delivery).to_have_text(HELD)
    expect(joe.waiting).to_have_text("visible to operators")
    joe.is_operator()
    expect(joe.waiting).to_have_text(re.compile(r"^[1-9]"))
    joe.press("Release")
    joe.sees("stay")
    expect(joe.delivery).to_have_text("running")


def test_what_cannot_be_broken_is_said_why(start_server: StartServer, meet: Meet) -> None:
    server = start_server(*SETS, "bayeux.extensions=ack")
    joe = Breaker.of(meet(server.base, "joe").join())
    joe.expect_complaint("update: not granted")
    joe.page.locator("#breaking > summary").click()
    expect(joe.page.locator("#breakHint")).to_contain_text("the server does not have `update` in bayeux.extensions")
    joe.say("still talking")
    joe.sees("still talking")
    eve = Breaker.of(meet(server.base, "eve").join(reliable=False))
    eve.page.locator("#breaking > summary").click()
    expect(eve.page.locator("#breakHint")).to_contain_text("This needs reliable messaging")
    for person in (joe, eve):
        expect(person.arm_button).to_be_disabled()


def test_the_panel_is_worked_from_the_keyboard(server: Server, meet: Meet) -> None:
    joe, sue = come(meet, server, "websocket")
    keys = joe.page.keyboard
    joe.page.get_by_role("button", name="Leave").focus()
    keys.press("Tab")
    keys.press("Enter")
    expect(joe.arm_button).to_be_enabled()
    for key in ("Tab", "ArrowDown", "ArrowDown", "Tab", "Tab", "Enter"):
        keys.press(key)
    expect(joe.page.locator("#armed")).to_contain_text(": user.update.holdback.")
    sue.say("wait")
    expect(joe.delivery).to_have_text(HELD)
    keys.press("Tab")
    expect(joe.page.get_by_label("Admin token")).to_be_focused()
    keys.type(TOKEN)
    keys.press("Enter")
    forget = joe.page.get_by_role("button", name="Forget", exact=True)
    expect(forget).to_be_focused()
    keys.press("Shift+Tab")
    expect(joe.page.get_by_role("button", name="Release", exact=True)).to_be_focused()
    keys.press("Space")
    expect(joe.tag("wait")).to_have_text("taken")


def test_a_letter_is_thrown_away(server: Server, meet: Meet) -> None:
    joe, sue = come(meet, server, "websocket")
    joe.opens().is_operator()
    name = joe.figure("Name").inner_text()
    joe.arms("user.update.error")
    sue.say("away with it")
    joe.press("Discard: away with it")
    expect(joe.fate("away with it").locator("p").first).to_have_text("Discarded by an operator.")
    assert type_in_terminal(server, "dead-letters", "list", "--receiver", name).strip() == ""


SHIFTS = """() => {
    window.shifts = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries().filter(({hadRecentInput}) => !hadRecentInput)) {
            window.shifts.push(entry.sources.map(({node}) => node?.parentElement?.outerHTML.slice(0, 200)));
        }
    }).observe({type: "layout-shift"});
}"""


def test_nothing_moves_by_itself(server: Server, meet: Meet) -> None:
    joe, sue = come(meet, server, "websocket")
    joe.opens().is_operator()
    joe.arms("user.update.error", 2)
    joe.page.locator("#fatesTitle").scroll_into_view_if_needed()
    joe.page.evaluate(SHIFTS)
    for text in ("one", "two"):
        sue.say(text)
        expect(joe.fate(text).locator("p").first).to_contain_text("Dead letter")
    joe.arms("user.update.holdback")
    joe.page.wait_for_timeout(600)  # the browser excuses what moves within half a second of an input
    sue.say("three")
    expect(joe.delivery).to_have_text(HELD)
    expect(joe.waiting).to_have_text("1")
    joe.press("Release")
    expect(joe.tag("three")).to_have_text("taken")
    assert joe.page.evaluate("window.shifts") == []


def until_held(server: Server, person: Breaker) -> None:
    """Wait until the server knows of the holdback: what the page has thrown is on its way for a moment."""
    expect(person.delivery).to_have_text(HELD)
    name = person.figure("Name").inner_text()
    until(lambda: "false" in type_in_terminal(server, "cmd", f"__cmd:{name}/?dispatcherActive"))


def type_in_terminal(server: Server, *command: str) -> str:
    """What `crewel` prints, where the server runs."""
    done = crewel(*command, "--token", TOKEN, "--url", server.url, directory=ROOT)
    assert done.status == 0, done.err
    return done.out


def until_listed(server: Server, name: str) -> str:
    """What `crewel dead-letters list` prints as soon as there is a letter."""
    listed: list[str] = []

    def is_there() -> bool:
        listed[:] = [type_in_terminal(server, "dead-letters", "list", "--receiver", name)]
        return bool(listed[0].strip())

    until(is_there)
    return listed[0]
