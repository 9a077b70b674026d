"""Random rounds of everything that happens to messages whose receivers fail, over the real broker and a real store.

`tests/delivery/failing.py` has the same idea over a model of the broker, and is a thousand times as fast; here it is the
broker itself that moves messages. The facts in the store say how each message ended: at the end the sums must be exact.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import orjson

from crewel.broker.dead_letters.redrive import Chosen, Limits
from crewel.broker.mailboxes.mailbox import Mailbox
from crewel.broker.mailboxes.offers import LEAVES, NOTHING, WAITS
from crewel.broker.session import Session
from crewel.delivery.entry import in_order, place_of
from tests.broker.stored_world import Receiver, StoredWorld, origin
from tests.broker.world import Request

KINDS: Final[dict[str, dict[str, Any]]] = {
    "joe/1": {"dispatcher": {"retries": 1, "delay": 1000}, "queue": {"maxEntries": 12}},
    "joe/2": {
        "settle": "message", "ackWait": 4000, "dispatcher": {"retries": 3, "delay": 0},
        "queue": {"maxEntries": 8, "onOverflow": "dropOldest"},
    },
    "eve/1": {"settle": "message", "burst": {"maxEntries": 2}, "dispatcher": {"retries": -1, "delay": 2000}},
    "eve/2": {"settle": "message", "ackWait": 3000, "queue": {"maxEntries": 6, "onOverflow": "disconnect"}},
}  # fmt: skip
"""How each session logs in."""
SAID: Final = (
    *({"state": "OK"},) * 16,
    {"state": "WORKING"},
    {"state": "DONE"},
    *({"errorCode": "user.update.error"},) * 2,
    *({"errorCode": "communication.noConnection"},) * 3,
    *({"errorCode": "user.update.holdback"},) * 2,
    {"errorCode": "user.security.authentication"},
)


class Crossed(AssertionError):
    """A promise that did not hold."""


class Round:
    """One round. All randomness comes from the seed, but for when the store answers."""

    def __init__(self, seed: int, make: Callable[..., StoredWorld]) -> None:
        self.random = random.Random(seed)
        self._make = make
        self._cuts = seed % 2 == 1
        self._sets = ("delivery.on_user_error=dead",) if seed % 4 == 3 else ()
        self.life = 0.0
        """Seconds by which messages are older than the clock says."""
        self.accepted: dict[int, float] = {}
        """How many these were when the message of this number was accepted: its life counts from there, as long as the server
        runs that has accepted it, and from the time of its id in a later one."""
        self.world = self._made()
        self.clients: dict[str, Receiver] = {}
        self.got: dict[str, list[dict[str, Any]]] = {name: [] for name in KINDS}
        """What each client can say something of."""
        self.pending: Counter[tuple[str, str]] = Counter()
        self.number = 0
        for name in KINDS:
            self._log_in(name)

    def run(self, steps: int) -> None:
        """Do so many steps, let everything be settled, and look at the sums."""
        choices = [
            step
            for weight, step in (
                (12, self._publish),
                (4, self._push),
                (22, self._connect),
                (5, self._lose),
                (6, self._say),
                (5, self._pass_time),
                (4, self._age),
                (3, self._sweep),
                (5, self._operate),
                (2, self._redrive),
                (1, self._be_away),
                (1, self._take_over),
                (1, self._leave),
                (1, self._crash),
                (1, self._restart),
            )
            for _ in range(weight)
        ]
        for _ in range(steps):
            self.random.choice(choices)()
            self.check()
        self._settle_all()
        self._add_up()

    # What happens

    def _made(self, **options: Any) -> StoredWorld:
        world = self._make(*self._sets, **options)
        world.broker.mailboxes.outbound.expiry.clock = self._now
        if self._cuts:  # as if each message had many receivers
            fan_outs = world.broker.mailboxes.outbound.fan_outs
            fan_outs.at_once, fan_outs.step, fan_outs.slice_s = 1, 1, -1.0
            fan_outs.looked_up = 1
            node = world.access.node
            node.max_changes = node.max_dead_letters = 1
        return world

    def _now(self) -> float:
        return time.time() + self.life

    def _log_in(self, name: str) -> None:
        client = self.clients[name] = Receiver(self.world)
        self.got[name].clear()
        self.world.commit()  # the session before it leaves the store
        client.started("/a", name=name, **KINDS[name])

    def _present(self) -> str:
        """The name of any client, which logs in if it has to."""
        name = self.random.choice(list(KINDS))
        if not self.clients[name].is_known:
            self._log_in(name)
        return name

    def _publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            there = [client.session.durable for client in self.clients.values() if client.is_known]
            self._count()
            message_id = self.world.wait(self.world.broker.publish_stored("/a", self.number, qos=self._qualities()))
            for durable in there:
                assert durable is not None
                # Its end may have been stored before the message: one that it had no room for is still being handed out.
                if durable.ending is None or durable.ending >= int(message_id):
                    self.pending[durable.name, message_id] += 1

    def _count(self) -> None:
        self.number += 1
        self.accepted[self.number] = self.life

    def _push(self) -> None:
        self._count()
        self.world.broker.publish("/a", self.number, qos=self._qualities())
        self.world.settle()

    def _qualities(self) -> dict[str, Any]:
        """What a publisher asks for; a life is as much longer as the others are older."""
        asked: dict[str, Any] = {"priority": self.random.choice([5, 5, 5, 0, 3, 9])}
        if self.random.random() < 0.3:
            asked["lifeTime"] = int(self.life * 1000) + self.random.choice([5000, 20_000])
            asked["forceDestroy"] = self.random.random() < 0.8
        return asked

    def _age(self) -> None:
        self.life += self.random.choice([3.0, 10.0])

    def _sweep(self) -> None:
        now = int(self._now() * 1_000_000)
        self.world.broker.sweep()
        for client in self.clients.values():
            if client.is_known and (left := _left_over(client.session, now)):
                raise Crossed(f"{left} should not wait for {client.session.name} any more")
        self.world.settle()

    def _statuses(self, name: str) -> list[dict[str, Any]]:
        got = self.got[name]
        named = self.random.sample(got, self.random.randint(0, min(3, len(got))))
        if self.random.random() < 0.8:  # else it does not hear that it was understood
            self.got[name] = [each for each in got if each not in named]
        return [{"id": origin(each)["id"], **self.random.choice(SAID)} for each in named]

    def _connect(self) -> None:
        name = self._present()
        client = self.clients[name]
        request = client.reconnect(*self._statuses(name), advice={"timeout": 0})
        for message in self._answer(client, request):
            self._heard(name, message)

    def _answer(self, client: Receiver, request: Request) -> list[dict[str, Any]]:
        before = self._now()
        while request.is_held:
            self.world.advance(0.1)  # the pause of a client that makes no progress
        messages = client.heard(request)
        fresh = [origin(each).get("priority", 5) for each in messages if "redeliver" not in origin(each)]
        if fresh != sorted(fresh, reverse=True):
            raise Crossed(f"messages of the priorities {fresh} came in this order")
        if over := [origin(each) for each in messages if _is_over(origin(each), before - self.accepted[each["data"]])]:
            raise Crossed(f"the lives of {over} were over at {before}")
        return messages

    def _heard(self, name: str, message: dict[str, Any]) -> None:
        told = origin(message)
        if told.get("persistent") and "clientProperties" not in told and not self.pending[f"client/{name}", told["id"]]:
            raise Crossed(f"{told['id']} was delivered to {name} and is not pending to it")
        self.got[name].append(message)

    def _lose(self) -> None:
        """A reply does not arrive."""
        client = self.clients[self._present()]
        client.reconnect(advice={"timeout": 0})

    def _say(self) -> None:
        name = self._present()
        self.clients[name].tell(*self._statuses(name))

    def _pass_time(self) -> None:
        self.world.advance(self.random.choice([0.3, 1.5, 4.5]))

    def _be_away(self) -> None:
        self.world.sweep_after(15)

    def _operate(self) -> None:
        dispatchers, session = self.world.broker.mailboxes.dispatchers, self.clients[self._present()].session
        match self.random.choice(["hold", *["activate"] * 6, "skip", "skip", "drain", "remove", "peek", "clear"]):
            case "hold":
                self.world.wait(dispatchers.hold(session, "admin"))
            case "activate":
                self.world.wait(dispatchers.activate(session))
            case "skip":
                self.world.wait(dispatchers.skip(session))
            case "drain":
                self.world.wait(dispatchers.drain(session))
            case "remove":
                self.world.wait(dispatchers.remove(session, self.random.randint(1, 3)))
            case "clear":
                self.world.wait(dispatchers.clear(session))
            case "peek":
                self.world.wait(dispatchers.peek(session, 5))
        self.world.settle()

    def _redrive(self) -> None:
        letters = self.world.letters()
        chosen = tuple(each.dead_id for each in self.random.sample(letters, min(len(letters), 3)))
        self.world.wait(self.world.broker.dead_letters.redrive.redrive(Chosen(ids=chosen), Limits()))
        self.world.settle()

    def _take_over(self) -> None:
        name = self._present()
        old, new = self.clients[name], Receiver(self.world)
        new.taking_over(old, **KINDS[name])
        self.clients[name] = new
        self.got[name].clear()

    def _leave(self) -> None:
        self.clients[self._present()].say("/meta/disconnect")

    def _crash(self) -> None:
        self.world.crash()
        self._begin_again()

    def _restart(self) -> None:
        self.world.close()
        self._begin_again()

    def _begin_again(self) -> None:
        self.world = self._made(prefix=self.world.prefix)
        for client in self.clients.values():
            client.world = self.world

    # What must hold

    def check(self) -> None:
        """Everything that has not ended is somewhere, once; unless it is being handed out just now."""
        if self.world.broker.mailboxes.outbound.fan_outs.pending:
            return
        for client in self.clients.values():
            if client.is_known:
                _check(client.session)

    def _settle_all(self) -> None:
        self._sets = ()
        self._restart()  # which ends what rejects everything, with its next handshake
        for name in KINDS:
            self._present()
            if self.clients[name].is_known:
                self._take_over_of(name)
            self._settle(name)
            self.check()

    def _take_over_of(self, name: str) -> None:
        old, new = self.clients[name], Receiver(self.world)
        new.taking_over(old, **KINDS[name])
        self.clients[name] = new

    def _settle(self, name: str) -> None:
        client, dispatchers = self.clients[name], self.world.broker.mailboxes.dispatchers
        if not client.is_known:
            return
        self.world.wait(dispatchers.activate(client.session))
        for _ in range(60):
            request = client.reconnect(advice={"timeout": 0})
            client.tell(*({"id": origin(each)["id"], "state": "OK"} for each in self._answer(client, request)))
            if not client.session.mailbox.view().depth:
                return
        raise Crossed(f"{client.session.mailbox.view().depth} still wait for {name}")

    def _add_up(self) -> None:
        ends = self.world.ended()
        moved = _redriven(self.world)
        pending = self.pending + Counter((session, str(log_id)) for session, log_id, _ in moved)
        ended = Counter((session, str(log_id)) for session, _, log_id in ends)
        if pending != ended:
            raise Crossed(
                f"pending and not ended: {pending - ended}; ended and not pending, or twice: {ended - pending}"
            )
        letters = [*(each.id for each in self.world.letters()), *(message for _, _, message in moved)]
        stored = sum("-" not in each for each in letters)
        dead = sum(reason == "dead" for _, reason, _ in ends)
        if dead != stored:
            raise Crossed(f"{dead} are dead, and {stored} letters were made")


def _redriven(world: StoredWorld) -> list[tuple[str, int, str]]:
    """What was sent again: to whom, under which id, and the id that it had before."""
    found: Any = world.wait(world.store.reader.xrange(world.store.keys.facts))
    told = [orjson.loads(fields[b"d"]) for _, fields in found if fields[b"t"] == b"redriven"]
    return [(each["session"], each["id"], each["message"]) for each in told]


def _is_over(told: dict[str, Any], now: float) -> bool:
    """Whether it should not have been delivered any more."""
    is_again = "__redriveOf" in told.get("clientProperties", {})
    return (
        told.get("forceDestroy", False)
        and not is_again
        and int(told["rcvTimestamp"]) / 1e9 + told["lifeTime"] / 1e3 <= now
    )


def _left_over(session: Session, now: int) -> set[int]:
    """What should not wait any more, and is not at the client either."""
    assert session.durable is not None
    sent = [
        *session.mailbox._dispatcher.messages.entries,
        *session.mailbox._batches.unacknowledged,
    ]
    return {*session.durable.expired(now)} - {entry.position for entry in sent}


def true_news(mailbox: Mailbox) -> int:
    """What a mailbox has to say of what waits in it, whatever it was told since it last said it."""
    if not mailbox._queue:
        return NOTHING
    is_full = mailbox._limit is not None and not mailbox._limit.lets_some_leave(mailbox._queue, mailbox._batches)
    return WAITS if mailbox._is_paused or mailbox._is_patient or is_full else LEAVES


def _check(session: Session) -> None:
    durable, batches, dispatcher = session.durable, session.mailbox._batches, session.mailbox._dispatcher
    assert durable is not None
    is_open = {*durable.pending, *durable.inbox}
    if session.mailbox.news != true_news(session.mailbox):
        raise Crossed(f"{session.name} has {len(session.mailbox._queue)} waiting, and news {session.mailbox.news}")
    waiting = [each.position for each in session.mailbox._queue if each.position]
    waiting += [each for each in map(place_of, durable.evicted) if each in is_open]
    if len(waiting) != len(set(waiting)):
        raise Crossed(f"{session.name} would get something twice: {waiting}")
    sent = [*dispatcher.messages.entries, *batches.unacknowledged]
    somewhere = {*waiting, *(each.position for each in sent if each.position)}
    if lost := is_open - somewhere:
        raise Crossed(f"{sorted(lost)} are open for {session.name}, and nowhere")
    if ghosts := set(waiting) - is_open:
        raise Crossed(f"{sorted(ghosts)} have ended for {session.name}, and would be sent")
    if batches.must_resend and session.mailbox._queue[: batches.resending] != in_order(batches.unacknowledged):
        raise Crossed(f"what {session.name} is sent again is not at the front")
    if session.requests:
        raise Crossed(f"{session.name} waits for a request that is answered")
