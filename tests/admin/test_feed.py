"""The live feed: operators hear what happens, over Bayeux and by a webhook, and nothing is worked out without listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crewel.admin.administration import Administration
from crewel.admin.feed import NOTICES, OVERVIEW, Feed
from tests.admin.desk import SETS, Desk, Receiver, publish
from tests.broker.stored_world import StoredWorld
from tests.conftest import StartServer
from tests.functional.bayeux import Client, Message
from tests.functional.hook import Hook
from tests.functional.people import Person
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

pytestmark = pytest.mark.server

LIMIT_S = 40.0


class Listener:
    """A page that follows the feed with the token that its desk gets."""

    def __init__(self, server: Server, desk: Desk, *channels: str) -> None:
        self.feed = desk.post("/feed")
        self.client = Person(server)
        self.client.acknowledges = False
        self.heard: list[Any] = []
        assert self.client.shake(token=self.feed["token"])["successful"] is True
        self.client.connect(advice={"timeout": 0})
        self.client.subscribe(*channels)

    def hears(self, kind: str, **fields: Any) -> Message:
        """Wait for a notice of this kind with these fields."""
        wanted = {"kind": kind, **fields}
        return self._waits_for(lambda each: all(each.get(name) == value for name, value in wanted.items()))

    def hears_overview(self) -> Message:
        """Wait for an overview, which comes with each sample."""
        return self._waits_for(lambda each: "findings" in each)

    def _waits_for(self, is_wanted: Callable[[Message], bool]) -> Message:
        def found() -> Message | None:
            self.heard += [each["data"] for each in self.client.connect(advice={"timeout": 100})[:-1]]
            return next(filter(is_wanted, self.heard), None)

        message: Message = until(found, LIMIT_S)
        return message


def test_a_viewer_hears_of_holds_deaths_letters_and_jobs(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(*SETS, "security.policy=jwt", f"security.jwt_keys={secret_file(tmp_path)}")
    desk, viewer = Desk(server), Desk(server, signed(operator="view"))
    listener = Listener(server, viewer, NOTICES, OVERVIEW)
    assert listener.feed["channels"] == {"overview": OVERVIEW, "notices": NOTICES}
    assert listener.feed["path"] == "/cometd"
    name = "client/" + listener.client.login["name"].partition("/client/")[2]
    assert name in {each["name"] for each in desk.get("/sessions?count=1000")["sessions"]}
    assert name not in {each["name"] for each in desk.get("/receivers?kind=session&count=1000")["receivers"]}
    joe = Receiver(server).be("joe/1", token=signed(publish=["/**"], subscribe=["/**"]))
    joe.subscribe("/a")
    desk.post("/sessions/joe/1/hold", {"reason": "lunch", "code": "user.lunch"})
    held = listener.hears("held", session="client/joe/1")
    assert (held["node"], held["who"], held["code"], held["reason"]) == ("heron", "admin", "user.lunch", "lunch")
    desk.post("/sessions/joe/1/activate")
    listener.hears("released", session="client/joe/1")
    for number in range(2):
        joe.publish("/a", number, ext={"publish": {"persistent": True}})
    desk.post("/sessions/joe/1/kill")
    assert listener.hears("died", session="client/joe/1")["waiting"] == 2
    assert listener.hears("letters")["count"] >= 1
    job = desk.post("/jobs", {"what": "discard", "all": True})
    assert listener.hears("job", id=job["id"], state="done")["done"] == 2
    shown = listener.hears_overview()
    assert len(shown["samples"]["at"]) == 1
    assert {"sessions", "store", "findings", "node"} <= shown.keys()


def test_the_feed_is_for_operators_only(server: Server, desk: Desk) -> None:
    token = desk.post("/feed")["token"]
    forged = Person(server)
    assert forged.shake(token=token[:-2] + "xx")["successful"] is False
    named = Person(server)
    assert named.shake(token=token, name="joe/1")["successful"] is False  # it is the operator's, who is not joe
    plain = Client(server).start()
    for channel in (NOTICES, OVERVIEW):
        [reply] = plain.send(plain.message("/meta/subscribe", subscription=channel))
        assert reply["successful"] is False


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook = Hook()
    yield hook
    hook.close()


def test_holds_and_deaths_with_a_backlog_are_posted(start_server: StartServer, hook: Hook) -> None:
    hook.statuses = [500]
    server = start_server(*SETS, f"admin.notice_webhook={hook.url}", "admin.notice_webhook_token=sesame")
    desk, joe = Desk(server), Receiver(server).be("joe/1")
    joe.subscribe("/a")
    publish(server, "/a", 3)
    desk.post("/sessions/joe/1/hold", {"reason": "lunch"})
    desk.post("/sessions/joe/1/activate")
    Receiver(server).be("ann/1").disconnect()  # with nothing waiting, which is no news
    desk.post("/sessions/joe/1/kill")
    until(lambda: len(hook.taken) >= 3)  # the first attempt failed, and is repeated
    told = {each["kind"]: each for each in hook.taken}
    assert told.keys() == {"held", "died"}
    assert (told["held"]["session"], told["held"]["reason"]) == ("client/joe/1", "lunch")
    assert (told["died"]["session"], told["died"]["waiting"]) == ("client/joe/1", 3)
    assert {authorization for authorization, _ in hook.requests} == {"Bearer sesame"}


def test_nothing_is_worked_out_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    world = StoredWorld()
    try:
        admin = Administration(world.broker)
        feed = Feed(admin)
        feed.start()
        asked: list[str] = []
        monkeypatch.setattr(world.broker, "spawn", lambda work: asked.append("a task") or work.close())
        monkeypatch.setattr(world.broker.mailboxes.outbound, "fan_out", lambda *_: asked.append("a message"))
        admin.metrics_history.sample()
        assert admin.metrics_history.on_sample
        assert world.broker.dead_letters.notifier.on_stored
        for follow in admin.metrics_history.on_sample:
            follow()
        feed.notice("held", session="client/joe/1")
        for stored in world.broker.dead_letters.notifier.on_stored:
            stored(["1-0"])
        assert asked == []
    finally:
        world.close()
