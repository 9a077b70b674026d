"""The planted mixtures of faults (`planted`), played by clients of a real server: who rejects which message, and whose fault
it is."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from crewel.client import Client
from tests.pipeline.planted import MIXTURES, PAUSE_MS, POISON, STEP_MS, Mixture, Truth
from tests.pipeline.rejections import CODE, Scene

SEED = 1
PREFETCH = 20
GROUP, TRANSIENT = "group", "transient"
"""The mixtures that are played in another way: by members of a group, and with some messages that are not stored."""


@dataclass(frozen=True)
class Planned:
    """One message: its channel, its data, and with which code each receiver rejects it."""

    channel: str
    data: dict[str, Any]
    codes: dict[str, str]
    causes: dict[str, str]
    is_stored: bool = True

    @property
    def key(self) -> str:
        """What its data bears, so that its dead letters are known."""
        key: str = self.data["key"]
        return key


class _Notes(Scene):
    """Notes what is to be published."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: dict[int, tuple[str, Any, dict[str, str]]] = {}

    def publish(self, number: int, channel: str, took: Any = (), rejected: Any = (), **letter: Any) -> None:
        super().publish(number, channel, took, rejected, **letter)
        code = letter.get("code", CODE)
        self.bodies[number] = (channel, json.loads(letter["body"])["data"], dict.fromkeys(rejected, code))


def _planned(name: str, number: int) -> tuple[list[str], list[Planned]]:
    """Return the receivers and the messages of a mixture."""
    notes, truth = _Notes(), Truth()
    mixture = Mixture(name, notes, truth, Random(SEED * 100 + number), number * PAUSE_MS)
    MIXTURES[name](mixture)
    causes: dict[str, dict[str, str]] = defaultdict(dict)
    for (message, receiver), cause in truth.items():
        causes[message][receiver] = cause
    if name == GROUP:
        return mixture.names, [*_of_group(mixture, notes, causes)]
    planned = [
        Planned(channel, {**data, "key": f"{name}-{at}"}, codes, causes[str(at)])
        for at, (channel, data, codes) in notes.bodies.items()
    ]
    for letter in notes.letters if name == TRANSIENT else ():
        receiver = letter["receiver"]
        data = {"key": letter["message_id"]}
        planned.append(
            Planned(letter["channel"], data, {receiver: CODE}, causes[letter["message_id"]], is_stored=False)
        )
    return mixture.names, planned


def _of_group(mixture: Mixture, notes: Scene, causes: dict[str, dict[str, str]]) -> Iterator[Planned]:
    """Bad messages are rejected by each member, and one member rejects all."""
    for row in notes.published:
        number = (row["log_id"] // 1000 - mixture.first_ms) // STEP_MS
        is_bad = POISON in causes[str(row["log_id"])].values()
        members = mixture.names if is_bad else mixture.names[:1]
        data = {**mixture.data(number), "key": f"{GROUP}-{number}"}
        yield Planned(row["channel"], data, dict.fromkeys(members, CODE), dict.fromkeys(mixture.names, POISON))


@dataclass
class Play:
    """All mixtures, and what their receivers have answered."""

    receivers: dict[str, list[str]] = field(default_factory=dict)
    messages: dict[str, list[Planned]] = field(default_factory=dict)
    accepted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    rejected: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Receiver -> keys."""
    acknowledged: int = 0

    def __post_init__(self) -> None:
        for number, name in enumerate(MIXTURES, 1):
            self.receivers[name], self.messages[name] = _planned(name, number)
        self.by_key = {each.key: each for messages in self.messages.values() for each in messages}

    @property
    def stored(self) -> int:
        """How many messages are stored."""
        return sum(each.is_stored for each in self.by_key.values())

    @property
    def poison(self) -> set[str]:
        """The keys of the messages that are the cause of their rejections."""
        return {key for key, each in self.by_key.items() if POISON in each.causes.values() and _is_rejected(each)}

    def share(self, begin: float, end: float) -> list[Planned]:
        """Return a part of each mixture's messages, from 0 to 1."""
        found = []
        for messages in self.messages.values():
            found += messages[round(len(messages) * begin) : round(len(messages) * end)]
        return found

    def is_answered(self, mixture: str) -> bool:
        """Whether all receivers have answered the stored messages of a mixture."""
        keys = {each.key for each in self.messages[mixture] if each.is_stored}
        names = self.receivers[mixture]
        if mixture != GROUP:
            return all(keys <= self.accepted[name] | self.rejected[name] for name in names)
        taken = set[str]().union(*(self.accepted[name] for name in names))
        return keys <= taken | set[str].intersection(*(self.rejected[name] for name in names))

    async def receive(self, url: str, directory: Path, mixture: str, name: str) -> None:
        """Answer what a receiver gets, until all of its mixture are answered."""
        options: dict[str, Any] = {"group": "workers"} if mixture == GROUP else {}
        short = name.removeprefix("client/")
        options |= {"name": short, "resume_file": directory / short.replace("/", "-"), "prefetch": PREFETCH}

        async def take() -> None:
            async with Client(url) as client:
                async for message in client.consume(f"/{mixture}/*", **options):
                    planned = self.by_key[message.data["key"]]
                    code = planned.codes.get(name)
                    if code is None:
                        message.acknowledge()
                        self.acknowledged += 1
                        self.accepted[name].add(planned.key)
                    else:
                        message.reject(code, f"cannot take {planned.key}")
                        self.rejected[name].add(planned.key)

        taking = asyncio.create_task(take())
        try:
            while not self.is_answered(mixture):
                if taking.done():
                    taking.result()
                await asyncio.sleep(0.2)
            await asyncio.sleep(1)  # the last statuses are on their way
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


def _is_rejected(planned: Planned) -> bool:
    return len(planned.codes) > 1


def key_of(body: str) -> str | None:
    """Return the key of a dead letter's message; None if it is of no mixture."""
    data = json.loads(body)["data"]
    return data.get("key") if isinstance(data, dict) else None
