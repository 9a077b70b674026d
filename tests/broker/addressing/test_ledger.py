"""Whatever happens in whatever order: of each message that was accepted nothing is lost, and none ends twice for somebody.

People log in and out, settle, fail and ignore what they get; time passes; answers of the store get lost; and the server dies at
any moment, also with questions to the store under way. At the end everybody comes and settles all; then the facts are counted.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crewel.delivery.records import DEAD_SESSION, EndReason
from crewel.errors import StoreError, StoreUnavailable, StoreUncertain
from crewel.storage.script_step import Step
from tests.broker.addressing.post import BOX, Clerk, one, queue
from tests.broker.stored_world import Receiver, StoredWorld, failed, ok
from tests.broker.world import Request, World, reply_to

pytestmark = pytest.mark.store

NAMES = ("joe/1", "joe/2", "joe/3", "ann/1")
WORK = "/jobs/a"
CODES = ("user.update.error", "user.update.deadMessage", "communication.timeout", "user.update.holdback")
STEPS = 100
LOST = ("send", "lease_queued", "requeue", "end")
"""Steps whose answers may get lost."""


class Life:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = StoredWorld("delivery.delay_ms=1000", "delivery.retries=2")
        self.clerk = Clerk(self.world)
        self.is_lossy = seed % 2 == 1
        self._lose()
        self.people: dict[str, Receiver] = {}
        self.accepted: dict[str, str] = {}
        """Id -> kind of each message that was accepted."""

    def _lose(self) -> None:
        """Let some answers of the store get lost, to steps that were done and to such that were not."""
        submit = self.world.store.submit

        def lossy(steps: Sequence[Step[Any]], done: Callable[[list[Any]], None]) -> None:
            errors: dict[int, StoreError] = {}
            for place, step in enumerate(steps):
                if self.is_lossy and step.script in LOST and self.random.random() < 0.1:
                    kind = StoreUncertain if self.random.random() < 0.5 else StoreUnavailable
                    errors[place] = kind("no answer")
            asked = [place for place in range(len(steps)) if type(errors.get(place)) is not StoreUnavailable]

            def answered(answers: list[Any]) -> None:
                told = dict(zip(asked, answers, strict=True))
                done([errors.get(place, told.get(place)) for place in range(len(steps))])

            submit([steps[place] for place in asked], answered)

        self.world.store.submit = lossy  # type: ignore[method-assign]

    # What people do

    def come(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.people or not self.people[name].is_known:
            self.people[name] = person = self._login(name, burst={"maxEntries": self.random.choice([2, 100])})
            if self.random.random() < 0.6:
                person.say("/meta/subscribe", subscription=WORK, ext={"subscribe": {"group": "workers"}})

    def _login(self, name: str, **session: Any) -> Receiver:
        person = Receiver(self.world)
        asked = {"name": name, "update": True, "settle": "message", "timeout": 30_000, **session}
        message = person.message("/meta/handshake", version="1.0", ext={"ack": True, "session": asked})
        peer = person.send(message)
        while not peer.payloads:  # the session that had the name before is still ending
            self.world.advance(0.1)
        reply = reply_to(peer, message["id"])
        assert reply["successful"], reply
        person.id, person.login = reply["clientId"], reply["ext"]["session"]
        return person

    def go(self) -> None:
        if self.people:
            person = self.people.pop(self.random.choice(list(self.people)))
            if person.is_known:
                person.say("/meta/disconnect")

    def look(self) -> None:
        """Take what comes, and say something about it, or nothing."""
        if not self.people:
            return
        name = self.random.choice(list(self.people))
        person = self.people[name]
        if not person.is_known:
            del self.people[name]
            return
        messages = person.take()
        statuses = []
        for message in messages:
            chance = self.random.random()
            if chance < 0.4:
                statuses.append(ok(message))
            elif chance < 0.8:
                statuses.append(failed(message, self.random.choice(CODES)))
        if statuses and person.is_known:
            request = person.reconnect(*statuses, advice={"timeout": 0})
            if request.payloads and request.answer[-1]["successful"]:
                person.heard(request)

    def wait(self) -> None:
        self.world.sweep_after(self.random.choice([0.1, 0.3, 1.0, 1.0, 15.0]))
        self.world.settle()

    def activate(self) -> None:
        for session in list(self.world.broker.sessions.by_id.values()):
            self.world.wait(self.world.broker.mailboxes.dispatchers.activate(session))
        self.world.settle()

    # What is published

    def post(self) -> None:
        kind, message = self._message()
        peer = self.clerk.send(message)
        self._accepted(kind, peer.received)

    def _message(self) -> tuple[str, dict[str, Any]]:
        kind = self.random.choice(["session", "subject", "one", "group"])
        data, priority = len(self.accepted), self.random.choice([5, 5, 9])
        if kind == "group":
            return kind, self.clerk.message(WORK, data=data, ext={"publish": {"priority": priority}})
        to: Any = {
            "session": {"to": self.random.choice(NAMES)},
            "subject": queue(self.random.choice(["joe", "ann"])),
            "one": one("joe", waits=True),
        }[kind]
        qos = {"destination": [to], "persistent": True, "priority": priority}
        return kind, self.clerk.message(BOX, data=data, ext={"publish": qos})

    def _accepted(self, kind: str, received: list[dict[str, Any]]) -> None:
        for reply in received:
            told = reply.get("ext", {}).get("publish", {})
            if reply.get("successful") and str(told.get("id", "")).isdecimal():
                self.accepted[told["id"]] = kind

    # What goes wrong

    def crash(self) -> None:
        """The server dies, perhaps with a publish or a logout under way, and another one goes on."""
        peer = kind = None
        if self.random.random() < 0.5:
            kind, message = self._message()
            peer = Request(self.clerk.browser)
            World.receive(self.world, peer, message)
        if self.people and self.random.random() < 0.5:
            person = self.people.pop(self.random.choice(list(self.people)))
            World.receive(self.world, Request(person.browser), person.message("/meta/disconnect"))
        if self.random.random() < 0.5:
            self.world.settle()
        self.world.crash()
        if peer is not None and kind is not None:
            self._accepted(kind, peer.received)
        self.world = StoredWorld("delivery.delay_ms=1000", "delivery.retries=2", prefix=self.world.prefix)
        self.clerk = Clerk(self.world)
        self._lose()
        self.people = {name: self._back(person) for name, person in self.people.items() if self._is_there(name)}

    def _is_there(self, name: str) -> bool:
        return self.world.broker.addressing.names.find(f"client/{name}") is not None

    def _back(self, person: Receiver) -> Receiver:
        return Receiver(self.world).taking_over(person, timeout=30_000)

    # The end

    def finish(self) -> None:
        """Everybody comes, gets what it has not settled once more, and settles all there is."""
        self.is_lossy = False
        self.activate()
        self.people = {name: self._back(person) for name, person in self.people.items() if person.is_known}
        for _ in range(60):
            for name in NAMES:
                if name not in self.people or not self.people[name].is_known:
                    self.people[name] = self._login(name)
            self.activate()
            for person in self.people.values():
                messages = person.take()
                while messages:
                    messages = person.take(*map(ok, messages))
            self.world.commit()
            if not any(self._open()):
                return
        raise AssertionError(f"something never ends: {list(self._open())}")

    def _open(self) -> list[int]:
        broker = self.world.broker
        return [
            *(each.mailbox.view().depth for each in broker.sessions.by_id.values()),
            *map(broker.addressing.shared_queues.waiting, broker.addressing.shared_queues.names()),
        ]

    def ends(self) -> dict[str, Counter[tuple[str, str]]]:
        """Of each message: how often it ended for whom and how, less what went back to its queue."""
        told: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
        for session, reason, log_id in self.world.ended():
            if reason != EndReason.RETURNED:
                told[str(log_id)][session, reason] += 1
        return told


def run(seed: int, steps: int = STEPS) -> None:
    life = Life(seed)
    actions: list[Callable[[], None]] = [life.come, life.go, life.look, life.post, life.wait, life.activate, life.crash]
    weights = [8, 2, 12, 12, 2, 3, 1]
    try:
        for _ in range(steps):
            life.random.choices(actions, weights)[0]()
        life.finish()
        check(life)
    finally:
        if not life.world.is_closed:
            life.world.close()


def check(life: Life) -> None:
    told = life.ends()
    for message_id, kind in life.accepted.items():
        how = told[message_id]
        assert how, f"{message_id} ({kind}) is lost"
        if kind == "subject":  # each of its sessions may have it, and whoever is called so later, until one settles it
            twice = [who for who, count in how.items() if who[1] == EndReason.SETTLED and count > 1]
            assert not twice, f"{message_id} was settled twice: {twice}"
        else:
            assert sum(how.values()) == 1, f"{message_id} ({kind}) has ended so: {dict(how)}"
    for letter in life.world.letters():
        # Such a message goes back, unless another session of the subject has settled it; neither leaves a letter.
        is_left = letter.code == DEAD_SESSION and life.accepted.get(letter.id) in ("subject", "one")
        assert not is_left, f"{letter.id} became a letter when a session ended"
    keys = life.world.store.keys
    left: Any = life.world.wait(life.world.store.reader.keys(f"{keys.base}ptp:*".replace("{", "\\{")))
    assert left == []


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_nothing_ends_twice(seed: int) -> None:
    run(seed)
