"""Faults that are planted among many messages, and the cause of each dead letter: what the findings are measured by.

Each mixture has channels and receivers of its own, so all are computed at once. Messages are published 20 ms apart, and have
data of one shape, unless that is the fault. The server samples the shapes of what is taken, unless the mixture is of a time
before it did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.pipeline.rejections import Scene

MESSAGES = 400
STEP_MS = 20
PAUSE_MS = 600_000
POISON, OF_RECEIVER, OF_CHANNEL = "message", "receiver", "channel"

Truth = dict[tuple[str, str], str]
"""Message and receiver -> the cause of the dead letter."""


@dataclass
class Mixture:
    """Receivers of a few channels, and what happens to their messages."""

    name: str
    scene: Scene
    truth: Truth
    random: Random
    first_ms: int
    receivers: int = 5
    is_sampled: bool = True
    at: int = field(default=0, init=False)

    @property
    def names(self) -> list[str]:
        """The receivers."""
        return [f"client/{self.name}{number}/1" for number in range(self.receivers)]

    def numbers(self) -> Iterator[int]:
        """The messages, in order."""
        yield from range(MESSAGES)

    def data(self, number: int) -> dict[str, Any]:
        """What a usual message holds."""
        return {"order": number, "amount": 10 + number * 37 % 90, "country": ("CH", "DE", "FR", "IT")[number % 4]}

    def publish(self, number: int, refusing: dict[str, str], data: dict[str, Any] | None = None, **letter: Any) -> None:
        """A message that these receivers reject for these causes, and all others take."""
        ms = self.first_ms + number * STEP_MS
        log_id = ms * 1000
        body = json.dumps({"channel": self.channel(number), "data": data or self.data(number)})
        usual = {"body": body, "ms": ms + 5, "sender": f"client/shop-{self.name}/1", **letter}
        took = [name for name in self.names if name not in refusing]
        self.scene.publish(log_id, self.channel(number), took, refusing, **usual)
        if took and self.is_sampled:
            self.scene.sample(log_id, self.channel(number), body, ms, usual["sender"])
        self.truth |= {(str(log_id), name): cause for name, cause in refusing.items()}

    def channel(self, number: int) -> str:
        """One of two."""
        return f"/{self.name}/{number % 2}"

    def all_for(self, cause: str) -> dict[str, str]:
        """Every receiver rejects it."""
        return dict.fromkeys(self.names, cause)


def _poison(mixture: Mixture) -> None:
    bad = set(mixture.random.sample(range(MESSAGES), 13))
    for number in mixture.numbers():
        # One is wise enough to take some.
        refusing = mixture.all_for(POISON) if number in bad else {}
        if number % 2:
            refusing.pop(mixture.names[-1], None)
        mixture.publish(number, refusing, {"order": None, "amount": 1, "country": "CH"} if number in bad else None)


def _sick_for_a_while(mixture: Mixture) -> None:
    for number in mixture.numbers():
        mixture.publish(number, {mixture.names[0]: OF_RECEIVER} if 100 <= number < 180 else {})


def _sick_for_ever(mixture: Mixture) -> None:
    bad = set(mixture.random.sample(range(MESSAGES), 5))
    for number in mixture.numbers():
        # Poison beside it is still poison, for the sick receiver too.
        mixture.publish(number, mixture.all_for(POISON) if number in bad else {mixture.names[0]: OF_RECEIVER})


def _one_bug_for_one_shape(mixture: Mixture) -> None:
    for number in mixture.numbers():
        has_note = number % 33 == 7
        data = {**mixture.data(number), "note": "gift"} if has_note else mixture.data(number)
        mixture.publish(number, {mixture.names[0]: OF_RECEIVER} if has_note else {}, data)


def _one_bug_for_a_value(mixture: Mixture) -> None:
    for number in mixture.numbers():
        is_italian = mixture.data(number)["country"] == "IT" and number % 5 == 0
        mixture.publish(number, {mixture.names[1]: OF_RECEIVER} if is_italian else {})


def _flaky(mixture: Mixture) -> None:
    for number in mixture.numbers():
        refusing = {name: OF_RECEIVER for name in mixture.names[:2] if mixture.random.random() < 0.03}
        mixture.publish(number, refusing)


def _group_retries(mixture: Mixture) -> None:
    """Members of a group: a message that one rejects goes to the next one. The third attempt makes a dead letter."""
    bad = set(mixture.random.sample(range(MESSAGES), 6))
    for number in mixture.numbers():
        members = [mixture.names[(number + each) % mixture.receivers] for each in range(3)]
        ms = mixture.first_ms + number * STEP_MS
        log_id, channel = ms * 1000, mixture.channel(number)
        mixture.scene.published.append({"log_id": log_id, "channel": channel})
        failing = members if number in bad else members[:1] if members[0] == mixture.names[0] else []
        for member in failing[:2]:
            mixture.scene.failed.append(
                {"message_id": str(log_id), "session": member, "channel": channel, "code": "user.update.error",
                 "outcome": "waits", "place": f"{ms + 1}-0", "index": len(mixture.scene.failed)}
            )  # fmt: skip
        if number in bad:
            mixture.scene.rejected(log_id, members[2], channel=channel, ms=ms + 5)
            mixture.truth[str(log_id), members[2]] = POISON
        else:
            mixture.scene.took(log_id, members[len(failing)], ms=ms + 5)


def _downstream_outage(mixture: Mixture) -> None:
    for number in mixture.numbers():
        mixture.publish(
            number, mixture.all_for(OF_RECEIVER) if 150 <= number < 260 else {}, code="user.update.error.db"
        )


def _two_of_three_sick(mixture: Mixture) -> None:
    mixture.receivers = 3
    for number in mixture.numbers():
        mixture.publish(number, dict.fromkeys(mixture.names[:2], OF_RECEIVER) if number >= 120 else {})


def _two_of_three_partly_sick(mixture: Mixture) -> None:
    mixture.receivers = 3
    for number in mixture.numbers():
        mixture.publish(number, {each: OF_RECEIVER for each in mixture.names[:2] if mixture.random.random() < 0.4})


def _transient_beside(mixture: Mixture) -> None:
    """Transient messages: no fact tells that any was taken, and a receiver rejects a few of them."""
    for number in mixture.numbers():
        mixture.publish(number, {})
        if number % 50 == 3:
            ms = mixture.first_ms + number * STEP_MS
            mixture.scene.letters.append(
                {"message_id": f"t{mixture.name}{number}", "receiver": mixture.names[2], "code": "user.update.error",
                 "channel": f"/{mixture.name}/ticks", "reason": "bad", "body": '{"data":1}', "ms": ms}
            )  # fmt: skip
            mixture.truth[f"t{mixture.name}{number}", mixture.names[2]] = OF_RECEIVER


def _publisher_changes(mixture: Mixture) -> None:
    for number in mixture.numbers():
        is_new = number >= 300
        data = {**mixture.data(number), "amount": str(number)} if is_new else None
        refusing = dict.fromkeys(mixture.names[:-1], OF_CHANNEL) if is_new else {}
        # What a single receiver rejected before shows the earlier shape.
        refusing |= {mixture.names[0]: OF_RECEIVER} if number in (50, 51) else {}
        mixture.publish(number, refusing, data)


def _outage_of_two_shapes(mixture: Mixture) -> None:
    """Each shape was taken before, and is rejected with the other one."""
    for number in mixture.numbers():
        data = {**mixture.data(number), "note": "gift"} if number % 10 > 3 else None
        mixture.publish(number, mixture.all_for(OF_RECEIVER) if 150 <= number < 260 else {}, data)


CHANGES: dict[str, Callable[[int], dict[str, Any]]] = {
    "field": lambda number: {"order": number, "sum": 10 + number % 90, "country": "CH"},
    "type": lambda number: {"order": number, "amount": str(10 + number % 90), "country": "CH"},
    "worth": lambda number: {"order": number, "amount": 10 + number % 90, "country": "Switzerland"},
}
"""What a publisher sends from some time on: another field, another type, or only another value."""


def _changes(mixture: Mixture, data: Callable[[int], dict[str, Any]], *, most: bool, beside: bool) -> None:
    """The publisher of one channel changes what it sends: all of three receivers reject it, or two. Beside it, the first one
    has had an outage, and the second one a bug."""
    mixture.receivers = 3
    for number in range(240):
        changed = number >= 120 and number % 2 == 1
        refusing = dict.fromkeys(mixture.names[: 2 if most else 3], OF_CHANNEL) if changed else {}
        if beside and 40 <= number < 80:
            refusing[mixture.names[0]] = OF_RECEIVER
        if beside and not changed and mixture.random.random() < 0.1:
            refusing[mixture.names[1]] = OF_RECEIVER
        mixture.publish(number, refusing, data(number) if changed else {**mixture.data(number), "country": "CH"})


def _changed(name: str, *, most: bool, sampled: bool, beside: bool) -> Callable[[Mixture], None]:
    def play(mixture: Mixture) -> None:
        mixture.is_sampled = sampled
        _changes(mixture, CHANGES[name], most=most, beside=beside)

    return play


MIXTURES: dict[str, Callable[[Mixture], None]] = {
    "poison": _poison,
    "while": _sick_for_a_while,
    "ever": _sick_for_ever,
    "shape": _one_bug_for_one_shape,
    "value": _one_bug_for_a_value,
    "flaky": _flaky,
    "group": _group_retries,
    "outage": _downstream_outage,
    "three": _two_of_three_sick,
    "partly": _two_of_three_partly_sick,
    "transient": _transient_beside,
    "change": _publisher_changes,
    "twofold": _outage_of_two_shapes,
}
"""Those that are also played by clients of a real server."""

COMPUTED: dict[str, Callable[[Mixture], None]] = MIXTURES | {
    "-".join(
        (name, "most" if most else "all", "sampled" if sampled else "old", "beside" if beside else "alone")
    ): _changed(name, most=most, sampled=sampled, beside=beside)
    for name in CHANGES
    for most in (False, True)
    for sampled in (True, False)
    for beside in (False, True)
}
"""All of them."""


def plant(seed: int) -> tuple[Scene, Truth]:
    """Return the rows of all mixtures, and the cause of each dead letter."""
    scene, truth = Scene(), Truth()
    for number, (name, play) in enumerate(COMPUTED.items(), 1):
        play(Mixture(name, scene, truth, Random(seed * 100 + number), number * PAUSE_MS))
    return scene, truth
