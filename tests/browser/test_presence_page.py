"""Presence in real browsers: tabs of one person, a page that is closed, a server that is killed."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.conftest import StartServer
from tests.server_process import Server

LIMIT_MS = 60_000
ENTER = """
async ([name, data, enter]) => {
    const {connect} = await import("/extensions/connect.js");
    window.connection = connect({url: "/cometd", name, retry: {minDelay: 100, maxDelay: 400}});
    window.presence = connection.presence("/room", {data, enter});
    window.seen = [];
    presence.on((changes) => seen.push(...changes.map(({change, member}) => `${change} ${member.id}`)));
    await presence.ready;
}
"""
MEMBERS = "() => Object.fromEntries(presence.members.map(({id, sessions}) => [id, sessions]))"
SHOWS = f"(expected) => JSON.stringify(({MEMBERS})()) === JSON.stringify(expected)"


@pytest.fixture
def server(start_server: StartServer) -> Server:
    """A server whose sessions end soon after their page."""
    return start_server("bayeux.max_interval_ms=1000", "bayeux.sweep_ms=50")


def opened(context: BrowserContext, server: Server, name: str, data: Any = None, *, enter: bool = True) -> Page:
    page = context.new_page()
    page.goto(server.base)
    page.evaluate(ENTER, [name, data, enter])
    return page


def shows(page: Page, **expected: int) -> None:
    page.wait_for_function(SHOWS, arg=expected, timeout=LIMIT_MS)


def test_a_person_with_two_tabs_is_one_member(server: Server, context: BrowserContext) -> None:
    watcher = opened(context, server, "ann/1", enter=False)
    tabs = [opened(context, server, f"joe/{number}", {"name": "Joe"}) for number in (1, 2)]
    shows(watcher, joe=2)
    assert tabs[0].evaluate("presence.id") == "joe"
    tabs[0].evaluate("presence.update({name: 'Joe', typing: true})")
    watcher.wait_for_function("() => presence.members[0].data.typing", timeout=LIMIT_MS)
    tabs[0].evaluate("connection.close()")
    shows(watcher, joe=1)
    tabs[1].evaluate("presence.leave()")
    shows(watcher)
    seen = watcher.evaluate("seen")
    assert (seen[0], seen[-1], seen.count("join joe"), seen.count("leave joe")) == ("join joe", "leave joe", 1, 1)


def test_pages_are_present_again_after_a_restart_of_the_server(
    start_server: StartServer, context: BrowserContext
) -> None:
    server = start_server()
    joe, ann = opened(context, server, "joe/1"), opened(context, server, "ann/1")
    shows(joe, joe=1, ann=1)
    server.kill()
    start_server(*server.store_sets, port=server.port)
    for page in (joe, ann):
        page.wait_for_function(f"() => Object.keys(({MEMBERS})()).sort().join() === 'ann,joe'", timeout=LIMIT_MS)
    late = opened(context, server, "sue/1", enter=False)
    late.wait_for_function(f"() => Object.keys(({MEMBERS})()).sort().join() === 'ann,joe'", timeout=LIMIT_MS)
