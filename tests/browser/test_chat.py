"""People chat in Chromium, through the official client, on a real server."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Meet
from tests.browser.person import COUNT_CHANGES
from tests.conftest import StartServer
from tests.server_process import Server

ALL_TRANSPORTS = "bayeux.transports=websocket,long-polling,callback-polling"
PATIENT = "bayeux.max_interval_ms=60000"
TRANSPORTS = ["websocket", "long-polling", "callback-polling"]
MAIN = TRANSPORTS[:2]
"""Where callback-polling is to the page what long-polling is. What the page does for it alone, when it goes offline, is part of
`test_two_pages_chat_and_going_offline_and_back_brings_what_was_missed`."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with every transport that keeps sessions long enough for a slow machine."""
    server = Server(
        ["--port=0", *(f"--set={text}" for text in (ALL_TRANSPORTS, PATIENT))], tmp_path_factory.mktemp("chat")
    )
    yield server.base
    server.end_well()


def test_two_pages_chat_without_reliable_messaging_and_have_nothing_to_acknowledge(base: str, meet: Meet):
    joe, sue = [meet(base, name).join(transport="long-polling", reliable=False) for name in ("joe", "sue")]
    joe.sees("sue has joined")
    joe.sees_member("joe", "sue")
    joe.say("hello")
    sue.sees("hello")
    sue.say("hi joe")
    for person in (joe, sue):
        person.sees("hi joe")
        assert person.texts() == ["hello", "hi joe"]
        expect(person.page.get_by_label("Acknowledge incoming messages")).to_be_hidden()
        expect(person.figure("Last batch")).to_have_text("\u2013")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_pages_chat_and_going_offline_and_back_brings_what_was_missed(base: str, meet: Meet, transport: str):
    joe = meet(base, "joe").join(transport=transport)
    sue = meet(base, "sue").join(transport=transport)
    joe.sees("sue has joined")
    joe.sees_member("joe", "sue")
    for person in (joe, sue):
        expect(person.figure("Transport")).to_have_text(transport)
        expect(person.figure("Server offers")).to_have_text("websocket, long-polling, callback-polling")
    joe.say("before")
    sue.sees("before")
    sue.press("Go offline")
    sue.sees_state("Offline, as you asked")
    missed = [f"missed {number}" for number in range(5)]
    for text in missed:
        joe.say(text)
    joe.sees(missed[-1])
    sue.sees_not(missed[0])
    sue.press("Go online")
    sue.sees_state("Connected")
    sue.sees(missed[-1])
    joe.say("after")
    sue.sees("after")
    sue.say("hi joe")
    for person in (joe, sue):
        person.sees("hi joe")
        assert person.texts() == ["before", *missed, "after", "hi joe"]
    sue.sees_members(2)


@pytest.mark.parametrize("transport", MAIN)
def test_a_device_that_is_offline_is_shown_at_once_and_brings_what_was_missed(base: str, meet: Meet, transport: str):
    joe, sue = [meet(base, name).join(transport=transport) for name in ("joe", "sue")]
    joe.sees_members(2)
    sue.expect_complaint("ERR_INTERNET_DISCONNECTED")
    sue.page.context.set_offline(True)
    sue.sees_state("Connection lost, trying again…")
    expect(sue.page.locator("#hint")).to_contain_text("This device is offline.")
    joe.say("missed")
    sue.say("typed meanwhile")
    sue.page.context.set_offline(False)
    sue.sees("missed")
    joe.sees("typed meanwhile")
    sue.sees_state("Connected")
    expect(sue.page.locator("#hint")).to_be_empty()


def test_what_is_typed_offline_is_sent_afterwards(base: str, meet: Meet):
    joe, sue = [meet(base, name).join(transport="long-polling") for name in ("joe", "sue")]
    sue.press("Go offline")
    sue.sees_state("Offline, as you asked")
    sue.say("one")
    sue.say("two")
    expect(sue.page.locator("#hint")).to_contain_text("2 of your messages wait to be sent")
    expect(sue.page.locator("#offlineHint")).to_contain_text("Connects again.")
    sue.press("Go online")
    joe.sees("two")
    assert joe.texts() == ["one", "two"]
    expect(sue.page.locator("#hint")).to_be_empty()
    expect(sue.page.locator("#offlineHint")).to_contain_text("Cuts the connection")


@pytest.mark.parametrize("transport", MAIN)
def test_leaving_while_offline_ends_the_session(base: str, meet: Meet, transport: str):
    joe = meet(base, "joe").join(transport=transport)
    sue = meet(base, "sue").join(transport=transport)
    sue.press("Go offline")
    sue.sees_state("Offline, as you asked")
    sue.press("Leave")
    expect(sue.page.get_by_label("Your name")).to_be_focused()
    joe.sees("sue has left")
    joe.sees_members(1)


@pytest.mark.parametrize("transport", MAIN)
def test_a_cleared_acknowledge_box_shows_resends_and_checking_it_ends_them(base: str, meet: Meet, transport: str):
    joe = meet(base, "joe").join(transport=transport)
    sue = meet(base, "sue").join(transport=transport)
    joe.acknowledge(False)
    sue.say("again")
    joe.sees("again")
    joe.sees_again("again", at_least=2)
    sue.say("again")
    joe.sees("again", times=2)
    joe.sees_again("again")
    joe.acknowledge(True)
    expect(joe.figure("Not acknowledged")).to_have_text("0")
    resends = joe.figure("Sent again").inner_text()
    sue.say("only once")
    sue.say("and this too")
    joe.sees("and this too")
    sue.sees("and this too")
    expect(joe.figure("Not acknowledged")).to_have_text("0")
    assert joe.figure("Sent again").inner_text() == resends
    for text in ("only once", "and this too"):
        expect(joe.line(text).locator(".again")).to_be_hidden()
    assert joe.texts() == sue.texts()


def test_private_messages_reach_only_those_they_are_for(base: str, meet: Meet):
    joe, sue, eve = [meet(base, name).join() for name in ("joe", "sue", "eve")]
    expect(joe.figure("Transport")).to_have_text("websocket")  # the automatic choice
    joe.sees_members(3)
    joe.page.get_by_role("button", name="sue", exact=True).click()
    expect(joe.page.get_by_label("Message", exact=True)).to_be_focused()
    joe.say("for sue")
    sue.say("joe,sue::for both")
    eve.say("for all")
    for person in (joe, sue):
        expect(person.sees("for sue").locator(".scope")).to_have_text("private to sue")
        expect(person.sees("for both").locator(".scope")).to_have_text("private to joe,sue")
        person.sees("for all")
    eve.sees("for all")
    assert eve.texts() == ["for all"]
    joe.say("nobody::hello?")
    joe.sees("Nobody here is called nobody")


def test_many_addressees_fit_a_telephone(base: str, meet: Meet):
    joe, sue = meet(base, "joe", viewport={"width": 390, "height": 844}).join(), meet(base, "sue").join()
    joe.sees_members(2)
    sue.say(f"joe,{','.join(f'somebody who is not here {number}' for number in range(9))}::hello")
    joe.sees("hello")
    assert joe.page.evaluate("log.scrollWidth <= log.clientWidth")


def test_a_private_line_stays_private_when_its_addressee_has_left(base: str, meet: Meet):
    joe, sue, eve = [meet(base, name).join() for name in ("joe", "sue", "eve")]
    joe.sees_members(3)
    joe.page.get_by_role("button", name="sue", exact=True).click()
    sue.press("Leave")
    joe.sees_members(2)
    joe.say("for sue")
    joe.sees("Nobody here is called sue")
    joe.page.get_by_label("To", exact=True).select_option("everyone")
    joe.say("for all")
    eve.sees("for all")
    assert eve.texts() == ["for all"]


def test_the_list_of_members_keeps_the_focus_and_the_state_is_read_aloud_once(base: str, meet: Meet):
    joe, sue = [meet(base, name).join(transport="long-polling") for name in ("joe", "sue")]
    joe.sees_members(2)
    button = joe.page.get_by_role("button", name="sue", exact=True)
    button.focus()
    joe.page.locator("#state").evaluate(COUNT_CHANGES)
    meet(base, "eve").join()
    joe.sees_members(3)
    expect(button).to_be_focused()
    sue.say("hello")
    joe.sees("hello")
    assert joe.page.evaluate("changes") == 0


def test_members_leave_by_the_button_and_by_vanishing(start_server: StartServer, meet: Meet):
    # A closed socket leaves its session the rest of the hold, so the hold is short here.
    server = start_server("bayeux.timeout_ms=1000", "bayeux.max_interval_ms=2500", "bayeux.sweep_ms=200")
    joe, sue, eve = [meet(server.base, name).join() for name in ("joe", "sue", "eve")]
    joe.sees_members(3)
    sue.page.get_by_role("button", name="Leave", exact=True).dblclick()
    joe.sees("sue has left")
    joe.sees_members(2)
    eve.page.close()
    joe.sees("eve has gone silent")
    joe.sees_members(1)


def test_markup_is_shown_as_text(base: str, meet: Meet):
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;"
    joe = meet(base, "<b>joe</b>").join()
    sue = meet(base, "sue").join()
    joe.say(evil)
    sue.sees(evil)
    sue.sees_member("<b>joe</b>", "sue")
    sue.page.get_by_role("button", name="<b>joe</b>", exact=True).click()
    sue.say(evil)
    joe.sees(evil, times=2)
    for person in (joe, sue):
        assert person.page.locator("main img, main script, main b b").count() == 0


def test_what_other_clients_send_is_shown_whatever_it_is(base: str, meet: Meet):
    joe = meet(base, "joe").join()
    odd = ["just text", 7, None, [1, 2], {"text": "hi"}, {"user": {"a": 1}, "chat": ["x"]}, {"user": "x", "chat": 0}]
    joe.page.evaluate(
        """async ([channel, odd]) => {
            const {CometD} = await import("/static/vendor/cometd/cometd.js");
            const cometd = new CometD();
            cometd.configure({url: location.origin + "/cometd", logLevel: "warn"});
            await new Promise((resolve) => cometd.handshake(resolve));
            for (const data of odd) {
                await new Promise((resolve) => cometd.publish(channel, data, resolve));
            }
            await new Promise((resolve) => cometd.disconnect(resolve));
        }""",
        [f"/chat/{joe.room}", odd],
    )
    joe.sees("0")
    assert joe.texts() == ["just text", "7", "null", "[1,2]", '{"text":"hi"}', '["x"]', "0"]


def test_everything_can_be_done_from_the_keyboard(base: str, meet: Meet):
    sue = meet(base, "sue").join(room="demo")  # which is in the form
    joe = meet(base, "joe")
    keys = joe.page.keyboard
    expect(joe.page.get_by_label("Your name")).to_be_focused()
    keys.type("joe")
    keys.press("Enter")
    expect(joe.page.get_by_label("Message", exact=True)).to_be_focused()
    joe.sees_member("joe", "sue")
    keys.type("hello")
    keys.press("Enter")
    sue.sees("hello")
    keys.press("Shift+Tab")
    expect(joe.page.get_by_label("To", exact=True)).to_be_focused()
    keys.type("sue")
    keys.press("Tab")
    keys.type("psst")
    keys.press("Enter")
    expect(sue.sees("psst").locator(".scope")).to_have_text("private to sue")
    stops = []
    for _ in range(7):
        keys.press("Tab")
        stops.append(joe.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert stops == ["Send", "sue", "offline", "acknowledge", "otherRoom", "roomButton", "leave"]
    keys.press("Enter")
    sue.sees("joe has left")
    expect(joe.page.get_by_label("Your name")).to_be_focused()


def test_another_room_is_entered_within_the_same_session(base: str, meet: Meet):
    joe = meet(base, "joe").join()
    sue = meet(base, "sue").join()
    wool = f"{joe.room}-wool"
    eve = meet(base, "eve").join(room=wool)
    joe.sees_members(2)
    joe.page.get_by_label("Another room").fill(wool)
    joe.press("Go there")
    sue.sees("joe has left")
    sue.sees_members(1)
    eve.sees("joe has joined")
    eve.sees_members(2)
    joe.sees_members(2)
    sue.say("still in demo")
    sue.sees("still in demo")
    joe.say("hello wool")
    eve.sees("hello wool")
    joe.sees("hello wool")
    joe.sees_not("still in demo")
    sue.sees_not("hello wool")


@pytest.mark.parametrize("transport", MAIN)
def test_a_reload_keeps_the_session(base: str, meet: Meet, transport: str):
    joe = meet(base, "joe").join(transport=transport)
    sue = meet(base, "sue").join(transport=transport)
    sue.page.reload()
    sue.sees_state("Connected")
    sue.sees_member("joe", "sue")
    joe.say("welcome back")
    sue.sees("welcome back")
    sue.say("thanks")
    joe.sees("thanks")
    joe.sees("sue has joined")
    joe.sees_members(2)


def test_pages_begin_anew_with_a_server_that_does_not_know_them(start_server: StartServer, meet: Meet):
    """The second server has a store of its own; tests/browser/test_promise.py has one that finds the store of the first."""
    server = start_server(PATIENT)
    joe = meet(server.base, "joe").join(transport="websocket")
    sue = meet(server.base, "sue").join(transport="long-polling")
    for person in (joe, sue):
        person.expect_complaint("net::ERR_")
    joe.say("before")
    sue.sees("before")
    server.kill()
    joe.sees_state("Connection lost, trying again…")
    joe.say("said meanwhile")
    start_server(PATIENT, port=server.port)
    for person in (joe, sue):
        person.sees(
            "The server no longer had this session, so the page opened a new one. Messages that came meanwhile are lost."
        )
        person.sees_state("Connected")
        person.sees_member("joe", "sue")
    joe.sees("said meanwhile")
    joe.say("after")
    sue.sees("after")
    sue.say("from here too")
    joe.sees("from here too")


def test_who_stays_offline_for_too_long_comes_back_in_a_new_session(start_server: StartServer, meet: Meet):
    server = start_server("bayeux.timeout_ms=1000", "bayeux.max_interval_ms=2500", "bayeux.sweep_ms=200")
    joe, sue = [meet(server.base, name).join(transport="websocket") for name in ("joe", "sue")]
    sue.press("Go offline")
    joe.sees("sue has gone silent")
    joe.sees_members(1)
    sue.say("typed in the dark")
    sue.press("Go online")
    sue.sees(
        "The server no longer had this session, so the page opened a new one. Messages that came meanwhile are lost."
    )
    joe.sees("typed in the dark")
    sue.sees("typed in the dark")
    joe.sees_members(2)


def test_a_transport_that_is_not_offered_is_named(start_server: StartServer, meet: Meet):
    server = start_server()
    joe = meet(server.base, "joe")
    joe.expect_complaint("status of 400")
    joe.try_to_join(transport="callback-polling")
    trouble = joe.page.get_by_role("alert")
    expect(trouble).to_have_text("This server does not offer callback-polling. It offers: websocket, long-polling.")
    joe.join(transport="long-polling")
    joe.press("Leave")
    missing = joe.page.locator("#transport option[value='callback-polling']")
    expect(missing).to_have_text("callback-polling (not offered by this server)")
    expect(missing).to_be_disabled()


def test_a_refused_websocket_is_named_and_the_automatic_choice_falls_back(start_server: StartServer, meet: Meet):
    server = start_server("bayeux.transports=long-polling")
    joe, sue = [meet(server.base, name) for name in ("joe", "sue")]
    for person in (joe, sue):
        person.expect_complaint("WebSocket connection")
    joe.try_to_join(transport="websocket")
    expect(joe.page.get_by_role("alert")).to_have_text("This server does not offer websocket. It offers: long-polling.")
    sue.join()
    expect(sue.figure("Transport")).to_have_text("long-polling")


def test_two_tabs_of_one_browser_are_told_why_they_are_slow(base: str, meet: Meet):
    joe = meet(base, "joe").join(transport="long-polling")
    other = joe.page.context.new_page()
    other.goto(f"{base}/chat/")
    other.get_by_label("Your name").fill("twin")
    # Another room, so that nothing ends the long poll of the first tab.
    other.get_by_label("Room", exact=True).fill(f"{joe.room}-wool")
    other.get_by_label("Transport", exact=True).select_option("long-polling")
    other.get_by_role("button", name="Join").click()
    expect(other.locator("#hint")).to_contain_text("Another tab of this browser")


def test_pages_are_served_under_a_strict_policy(base: str, meet: Meet):
    joe = meet(base, "joe")
    for path in ("/", "/chat/"):
        response = joe.page.goto(base + path)
        assert response is not None
        policy = response.headers["content-security-policy"]
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
