"""What a publish with `retry_for` raises: what is in doubt counts more than what was certainly not sent."""

import asyncio
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import Client, ClientError, NotConnectedError, NotStored, PublishRefused, TransportError
from crewel.client.errors import RequestTimeoutError

LOST = TransportError("the socket was closed")
AWAY = NotConnectedError("no session within 10 s")
FORGOTTEN = PublishRefused({"channel": "/a", "error": "402::Unknown client"})
NOT_STORED = NotStored({"channel": "/a", "error": "500::resource.storage"})


class Waits:
    """An attempt without an end, before it is sent or after it."""

    def __init__(self, *, is_sent: bool) -> None:
        self.is_sent = is_sent


UNSENT, SENT = Waits(is_sent=False), Waits(is_sent=True)


class Session:
    """The session of a client, which the test plays: what comes of each attempt; of the last one, without an end."""

    def __init__(self, outcomes: tuple[Any, ...]) -> None:
        self._outcomes = list(outcomes)

    async def usable(self) -> None:
        if self._outcomes[0] in (AWAY, UNSENT):
            await self._comes()

    async def send(self, messages: list[Fields]) -> list[Fields]:
        await self._comes()
        raise AssertionError

    async def request(self, messages: list[Fields]) -> list[Fields]:
        await self.usable()
        return await self.send(messages)

    async def _comes(self) -> None:
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, Waits):
            await asyncio.Event().wait()
        raise outcome


@pytest.mark.parametrize(
    ("outcomes", "kind", "cause"),
    [
        ((LOST, AWAY), TransportError, None),
        ((NOT_STORED, FORGOTTEN), NotStored, None),
        ((LOST, UNSENT), TransportError, None),
        ((AWAY, SENT), RequestTimeoutError, AWAY),
        ((FORGOTTEN, SENT), RequestTimeoutError, FORGOTTEN),
        ((SENT,), RequestTimeoutError, None),
        ((LOST, SENT), TransportError, None),
        ((AWAY, UNSENT), NotConnectedError, None),
        ((FORGOTTEN, AWAY), NotConnectedError, None),
        ((UNSENT,), NotConnectedError, None),
    ],
)
async def test_a_publish_that_may_be_stored_is_never_said_to_be_unsent(
    monkeypatch: pytest.MonkeyPatch, outcomes: tuple[Any, ...], kind: type[ClientError], cause: ClientError | None
) -> None:
    client = Client("http://127.0.0.1:9/cometd")
    monkeypatch.setattr(client, "_session", Session(outcomes))
    with pytest.raises(kind) as raised:
        await client.publish("/a", 1, persistent=True, retry_for=0.3)
    assert type(raised.value) is kind
    assert raised.value.__cause__ is cause
