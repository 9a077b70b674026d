"""The list that all clients obey: what a client reports for what its listeners do."""

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client.callbacks import Callbacks
from crewel.client.client_message import Message
from crewel.client.config import Config
from crewel.client.connection import Connection
from crewel.client.errors import publish_refused
from crewel.client.publish_options import may_be_repeated
from crewel.client.router import Router, Unclaimed
from tests.client.support import LIMIT_S
from tests.client.test_router import subscribed
from tests.house.source import ROOT

URL = "http://localhost/cometd"
TABLE = json.loads((ROOT / "tests" / "clients" / "statuses.json").read_text("utf-8"))
GRANTED = {"ack": True, "session": {"update": True, "unclaimed": True, "reconnected": False}}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Logs nothing: the half characters of a case, in a report, would end a worker of pytest-xdist."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Thrown(Exception):
    """What a listener raises; with `error_code`, if the case has one."""


def plain(value: Any) -> Any:
    """A value of the list, with long texts written out."""
    if isinstance(value, dict) and "repeat" in value:
        text: str = value["repeat"] * value["times"]
        return text[: value.get("length", len(text))]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def thrown(step: Fields) -> Thrown:
    error = Thrown(*[step["message"]] * bool(step["message"]))
    if "errorCode" in step:
        error.error_code = step["errorCode"]  # type: ignore[attr-defined]
    return error


class Listener:
    """Does with each message what the case says."""

    def __init__(self, steps: list[Fields]) -> None:
        self.heard: list[str | None] = []
        self._steps = steps

    async def __call__(self, message: Message) -> None:
        step = self._steps[min(len(self.heard), len(self._steps) - 1)]
        self.heard.append(message.id)
        match step["does"]:
            case "work":
                message.working()
                message.defer()
            case "throw":
                raise thrown(step)
            case "resolve":
                await asyncio.sleep(0)
            case "reject":
                await asyncio.sleep(0)
                raise thrown(step)
            case other:
                assert other == "return"


class World:
    """A client's connection without a network: the test is the server."""

    def __init__(self) -> None:
        self.router = Router(Unclaimed())
        self.connection = Connection(Config(URL, update=True), self.router, (), lambda _: None, lambda _: None)
        self.callbacks = Callbacks()
        self.statuses: list[Fields] = []
        self._connects = 0
        self._receive([{"channel": "/meta/handshake", "successful": True, "id": "0", "ext": GRANTED}])

    def _receive(self, payload: list[Fields]) -> None:
        self.connection._receive(payload, whole=True)

    def listen(self, steps: list[Fields]) -> Listener:
        subscription = subscribed(self.router, "/a")
        listener = Listener(steps)
        self.callbacks.call(listener, subscription)
        return listener

    async def deliver(self, *messages: Fields) -> None:
        """Note what a connect says, answer it with messages, and let their listeners do what they do."""
        self._connects += 1
        held = {"channel": "/meta/connect", "id": str(self._connects)}
        sent = self.connection.pipe.outgoing(held)
        assert sent is not None
        self.statuses += sent.get("ext", {}).get("update", [])
        answer = {**held, "successful": True, "ext": {"ack": self._connects}}
        self._receive([*messages, answer])
        await self.turns()

    async def turns(self) -> None:
        """Let the listeners do what they do, which takes a few turns of the loop."""
        for _ in range(20):
            await asyncio.sleep(0)


def delivery(update: Fields) -> Fields:
    fields = {name: value for name, value in update.items() if name != "channel"}
    return {"channel": update.get("channel", "/a"), "data": {}, "ext": {"update": fields}}


def cases() -> list[Any]:
    chosen = [plain(case) for case in TABLE["cases"] if "python" in case.get("only", ["python"])]
    return [pytest.param(case, id=case["name"]) for case in chosen]


@pytest.mark.parametrize("case", cases())
async def test_the_statuses_are_those_of_the_list(case: Fields) -> None:
    async with asyncio.timeout(LIMIT_S):
        world = World()
        await world.deliver()
        listeners = [world.listen(steps) for steps in case["listeners"]]
        for update in case["deliver"]:
            await world.deliver(delivery(update))
            await world.deliver()
        listeners += [world.listen(steps) for steps in case.get("late", [])]
        await world.turns()
        await world.deliver()
        assert world.statuses == case["statuses"]
        assert [each.heard for each in listeners] == case["heard"]
        await world.callbacks.cancel()


@pytest.mark.parametrize("case", [pytest.param(case, id=case["error"]) for case in TABLE["publishes"]])
def test_the_list_says_which_refusals_of_a_publish_are_for_good(case: Fields) -> None:
    publish = {"errorCode": case["errorCode"], "message": "a reason"} if case["errorCode"] else {}
    refusal = publish_refused(
        {"channel": "/a", "successful": False, "error": case["error"], "ext": {"publish": publish}}
    )
    assert may_be_repeated(refusal) is case["isRepeated"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in TABLE["handshakes"]])
def test_the_handshake_asks_for_what_the_list_says(case: Fields) -> None:
    login = Config(URL, update=True, session=case["asked"]).login
    asked = {**login, "dispatcher": {"factor": 1, **login["dispatcher"]}}  # left out, it is 1
    assert asked == case["session"]
