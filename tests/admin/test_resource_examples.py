"""Each example of a resource is sent to a server that has what it is about, and its answer has what the example says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import redis

from crewel.admin.example import SAMPLES
from crewel.admin.resource_path import VARIABLE
from crewel.admin.rest import ROUTES
from crewel.admin.route import Route
from crewel.storage.keys import Keys
from tests.admin.company import job, say, work
from tests.admin.desk import SETS, TOKEN, Desk, Receiver
from tests.functional.people import Person
from tests.functional.test_presence import call
from tests.functional.wire import close_connections, until
from tests.server_process import Server
from tests.store_process import own_prefix, shared_store

pytestmark = pytest.mark.server

ORDERS = "/kitchen/orders"


class Kitchen:
    """A server on which joe gets orders, with something of all that operators ask for."""

    def __init__(self, directory: Path) -> None:
        prefix = own_prefix()
        sets = (*SETS, f"storage.url={shared_store().url}", f"storage.prefix={prefix}", "limits.max_deliver_after_ms=0")
        options = ["--port=0", "--service=tests.admin.slow_service", *(f"--set={text}" for text in sets)]
        self.server = Server(options, directory)
        self.desk, self.speaker = Desk(self.server), Receiver(self.server).be("speaker/1", token=TOKEN)
        self.log_in()
        self.names = work(self.desk, self.speaker, self.joe, ORDERS, "pizza", "order-")
        self.names["job"] = job(self.desk, what="redrive", ids=[self.letter()])
        self.joe.publish("/service/print", {"page": 1})
        call(Person(self.server).be("ann/1", token=TOKEN), ORDERS, "enter", {"name": "Ann"})
        bob = Receiver(self.server).be("bob/1")
        bob.send(bob.message("/meta/subscribe", subscription=ORDERS, ext={"subscribe": {"group": "cooks"}}))
        self.desk.post("/sessions/bob/1/hold", {"reason": "database is down"})
        alert = {"since": 1795324804876, "raised": 1795324864876, "held_ms": 60000, "code": "", "who": "admin"}
        with redis.Redis.from_url(shared_store().url) as store:
            raised = {"client/bob/1": json.dumps({**alert, "reason": "database is down"})}
            store.hset(Keys(prefix).alerts, mapping=raised)
        self.say()
        self.speaker.publish(ORDERS, {}, ext={"publish": {"destination": [{"to": "client/joe", "forceQueuing": True}]}})

    def log_in(self) -> None:
        """Let joe come, and get orders; what is addressed to him waits."""
        self.joe = Receiver(self.server).be("joe/1", ptp=False)
        self.joe.subscribe(ORDERS)

    def say(self) -> str:
        """Publish one more order; its id."""
        return say(self.speaker, ORDERS, {"word": "pasta"})

    def letter(self) -> str:
        """The id of a new dead letter of joe."""
        self.say()
        *others, last = self.joe.take_all()
        self.joe.accept(others)
        known = {each["id"] for each in self.desk.letters()}
        self.joe.reject([last], text="no pizza")
        found: str = until(lambda: next((each["id"] for each in self.desk.letters() if each["id"] not in known), None))
        return found

    def prepare(self, route: Route) -> None:
        """Let joe be there, with one message if the example is about his queue, and a message if it is about a history."""
        if self.desk.ask("GET", "/sessions/joe/1").status == 404:
            self.desk.ask("POST", "/subjects/joe/unblock")
            self.log_in()
        if route.method != "GET":
            self.desk.post("/sessions/joe/1/activate")
        if route.path.endswith(("/skip", "/drain", "/clear")):
            self.desk.post("/sessions/joe/1/clear")
            self.say()
        if (route.method, route.path) == ("DELETE", "/history/{channel}"):
            self.say()
        if route.path.endswith(("/ping", "/trace")):
            self.joe.stay()

    def steered(self, verb: str) -> str:
        """The id of a job that may be steered so: it waits for its rate."""
        letters = [self.letter(), self.letter()]
        begun: str = self.desk.post("/jobs", {"what": "redrive", "ids": letters, "rate": 0.001})["id"]
        if verb == "resume":
            self.desk.post(f"/jobs/{begun}/pause")
        return begun

    def found(self, route: Route) -> dict[str, str]:
        """What stands for the samples of the example."""
        verb = route.path.rpartition("/")[2]
        kind = "scheduled" if route.path.startswith("/scheduled") else "accepted"
        found = {SAMPLES["message"]: self.names[kind], "the-admin-token": TOKEN}
        if "{job}" in route.path:
            found[SAMPLES["job"]] = self.names["job"] if route.method == "GET" else self.steered(verb)
        if "{id}" in route.path or SAMPLES["id"] in json.dumps(route.example.fields):
            kept = {"{id}": "binned" if "/bin/" in route.path else "letter", "restore": "binned", "end": "redriven"}
            found[SAMPLES["id"]] = self.names[kept[verb]] if verb in kept else self.letter()
        return found

    def ask(self, route: Route) -> tuple[int, Any]:
        """Send the example; the status, and the JSON of the answer, a list if it has lines."""
        self.prepare(route)
        path = VARIABLE.sub(lambda name: SAMPLES[name[1]], route.path)
        fields, body = json.dumps(route.example.fields), None
        for sample, value in self.found(route).items():
            path, fields = path.replace(sample, value), fields.replace(sample, value)
        if route.query:
            words = (
                (name, value if isinstance(value, str) else json.dumps(value))
                for name, value in json.loads(fields).items()
            )
            path += "?" + urlencode(list(words))
        elif route.example.fields:
            body = json.loads(fields)
        with self.desk.send(route.method, path, body) as connection:
            if route.path.endswith("/trace"):
                until(lambda: "trace session" in self.server.stderr)
                self.say()
            if route.path.endswith(("/ping", "/trace")):
                self.joe.polling.response()
                self.joe.take()
            response = connection.response()
        lines = [json.loads(line) for line in response.body.splitlines() if line]
        return response.status, lines if route.is_stream else lines[0]


def has(answer: Any, example: Any) -> bool:
    """Whether the answer has what the example has, where ids and times are all alike."""
    if isinstance(example, Mapping):
        return isinstance(answer, Mapping) and all(
            name in answer and has(answer[name], each) for name, each in example.items()
        )
    if isinstance(example, list):
        return isinstance(answer, list) and all(any(has(found, each) for found in answer) for each in example)
    return _alike(answer) == _alike(example)


def _alike(value: Any) -> str:
    return re.sub(r"\d{5,}(-\d+)?", "#", json.dumps(value))


def test_what_an_example_leaves_out_may_be_there() -> None:
    answer = {"jobs": [{"id": "1795335085761-17", "done": 5}, {"id": "1795335085762-18", "done": 6}], "next": ""}
    assert has(answer, {"jobs": [{"id": "1795335085700-1", "done": 6}]})
    assert not has(answer, {"jobs": [{"done": 7}]})
    assert not has(answer, {"jobs": [], "total": 0})


def test_each_example_is_answered_as_it_says(tmp_path: Path) -> None:
    kitchen = Kitchen(tmp_path)
    differ = []
    try:
        for route in sorted(ROUTES, key=_order):
            status, answer = kitchen.ask(route)
            example = [route.example.answer] if route.is_stream else route.example.answer
            if status != 200 or not has(answer, example):
                differ.append(f"{route.method} {route.path}: {route.example}\n  {status} {json.dumps(answer)[:1500]}")
    finally:
        close_connections()
        kitchen.server.end_well()
    assert not differ, "\n".join(differ)


def _order(route: Route) -> tuple[bool, bool]:
    """What looks comes first, and what ends what others look at last."""
    ends = any(word in f"{route.method} {route.path}" for word in ("kill", "block", "DELETE", "sign-out"))
    return route.method != "GET", ends
