"""Checks of connects, disconnects, advice, and several clients in one browser."""

from __future__ import annotations

import asyncio

from crewel.conformance.check_table import Level, check
from crewel.conformance.handshake_checks import refusals
from crewel.conformance.trial import Trial
from crewel.conformance.verdicts import HTTP, LONG_POLLING, WEBSOCKET, Failed, Gone, Untested, expect

_SHORT_MS = 300


@check("connect-unknown", Level.MUST, "Connect", "A server responds to a connect even if the session is unknown.")
async def _connect_unknown(trial: Trial) -> None:
    """A connect with a `clientId` that does not exist is unsuccessful."""
    reply = (await refusals(trial.client()))["/meta/connect"]
    expect(reply.get("successful") is False, "successful: false", reply)


@check(
    "connect-timeout-0",
    Level.SHOULD,
    "advice",
    "A server honours `advice.timeout` 0 of a client: the connect is not held.",
)
async def _connect_timeout_0(trial: Trial) -> None:
    """Two connects with `advice: {"timeout": 0}` after each other: both are answered at once."""
    await _connect_twice(trial, 0)


@check("connect-timeout", Level.SHOULD, "advice", "A server honours a shorter `advice.timeout` of a client.")
async def _connect_timeout(trial: Trial) -> None:
    """Two connects with `advice: {"timeout": 300}` after each other while nothing is published: both are answered within the
    limit."""
    await _connect_twice(trial, _SHORT_MS)


async def _connect_twice(trial: Trial, timeout_ms: int) -> None:
    """Twice, because many servers answer the first connect at once in any case."""
    client = await trial.client().begin()
    client.require_hold_beyond_limit()
    for _ in range(2):
        reply = await client.connect(advice={"timeout": timeout_ms})
        expect(reply.get("successful") is True, "a successful connect", reply)


@check(
    "two-requests",
    Level.MUST,
    "HTTP transport",
    "Two requests at a time are enough: while a connect is held, another request is answered.",
)
async def _two_requests(trial: Trial) -> None:
    """A subscribe while the connect of the same client is held."""
    client = await trial.open()
    await client.hold()
    reply = await client.ask("/meta/subscribe", subscription=trial.root)
    expect(reply.get("successful") is True, "a successful subscribe beside a held connect", reply)


@check(
    "prefer-response",
    Level.SHOULD,
    "Delivery",
    "Messages go out with a response that is due at once rather than with a held connect.",
    [LONG_POLLING],
)
async def _prefer_response(trial: Trial) -> None:
    """A client publishes to itself while its connect is held: the message has arrived with the reply to the publish. Not over
    callback-polling: scripts run in any order, and CometD delivers there with connects only."""
    client = await trial.open()
    await client.subscribe(trial.root)
    await client.hold()
    before = len(client.arrived)
    await client.publish(trial.root, 1)
    came = client.arrived[before:]
    expect([each.get("channel") for each in came] == [trial.root] * 2, "the message and the reply to its publish", came)


@check("disconnect-ends", Level.MUST, "Disconnect", "A disconnect removes what the server has of the client.")
async def _disconnect_ends(trial: Trial) -> None:
    """After a disconnect, a subscribe with the same `clientId` fails."""
    client = await trial.open()
    reply = await client.ask("/meta/disconnect")
    expect(reply.get("successful") is True, "a successful disconnect", reply)
    reply = await client.ask("/meta/subscribe", subscription=trial.root)
    expect(reply.get("successful") is False, "a refused subscribe after the disconnect", reply)


@check("disconnect-releases", Level.SHOULD, "Disconnect", "A disconnect releases a connect that is held.", HTTP)
async def _disconnect_releases(trial: Trial) -> None:
    """A connect is held; the client disconnects; the connect is answered."""
    client = await trial.open()
    client.require_hold_beyond_limit()
    held = await client.hold()
    await client.ask("/meta/disconnect")
    await trial.within(asyncio.shield(held), "an answer to the held connect")


@check("expiry", Level.SHOULD, "Connect", "A session whose connect stays away is treated as disconnected.")
async def _expiry(trial: Trial) -> None:
    """A client connects once and is silent for as long as --expiry says; its subscribe then fails."""
    if trial.expiry_s is None:
        raise Untested("--expiry was not given: the seconds for which the server keeps a silent session")
    client = await trial.open()
    await asyncio.sleep(trial.expiry_s)
    reply = await client.ask("/meta/subscribe", subscription=trial.root)
    expect(reply.get("successful") is False, f"a refused subscribe after {trial.expiry_s:g} s of silence", reply)


@check(
    "multiple-clients",
    Level.SHOULD,
    "Multiple clients",
    "Of two clients in one browser only one connect is held, and advice slows the other.",
    [LONG_POLLING],
)
async def _multiple_clients(trial: Trial) -> None:
    """Two sessions with the same cookies: while the connect of one is held, that of the other is answered with an
    `advice.interval` above 0."""
    agent = await trial.agent()
    first, second = [await trial.client(agent=agent).open() for _ in range(2)]
    await first.hold()
    reply = await second.connect()
    advice = reply.get("advice", {})
    expect(advice.get("interval", 0) > 0, "an advice.interval above 0", reply)


@check(
    "first-connect",
    Level.CLIENTS,
    "Connect",
    "The first connect after a handshake is answered at once: aiocometd and others wait for it.",
)
async def _first_connect(trial: Trial) -> None:
    """A connect without advice directly after the handshake."""
    client = trial.client()
    await client.handshake()
    client.require_hold_beyond_limit()
    reply = await client.connect()
    expect(reply.get("successful") is True, "a successful connect", reply)


@check(
    "newer-connect",
    Level.CLIENTS,
    "Connect",
    "A second connect takes the place of one that is held, and gets the messages.",
    HTTP,
)
async def _newer_connect(trial: Trial) -> None:
    """A second connect while one is held, then a publish of another client: the response to the second connect has the
    message."""
    client = await trial.open()
    await client.subscribe(trial.root)
    await client.hold()
    second = await client.begin_connect()
    await (await trial.open()).publish(trial.root, 1)
    reply = await trial.within(asyncio.shield(second), "an answer to the second connect")
    expect(reply.get("successful") is True, "a successful second connect", reply)
    expect(client.data_on(trial.root) == [1], "the message once", client.data_on(trial.root))


@check(
    "batched-connect",
    Level.CLIENTS,
    "Connect",
    "A connect that is not alone in its request is not held: Faye and aiocometd send it with subscribes.",
)
async def _batched_connect(trial: Trial) -> None:
    """A connect and a subscribe in one payload, after the first connect: both are answered within the limit."""
    client = await trial.open()
    client.require_hold_beyond_limit()
    replies = await client.send(client.connect_message(), client.message("/meta/subscribe", subscription=trial.root))
    expect([each.get("successful") for each in replies] == [True, True], "two successful replies", replies)


@check(
    "messages-first",
    Level.CLIENTS,
    "Delivery",
    "Within one response messages come before the reply to the connect.",
    HTTP,
)
async def _messages_first(trial: Trial) -> None:
    """Another client publishes while no connect is pending; the next connect brings the message, then its reply."""
    client = await trial.open()
    await client.subscribe(trial.root)
    await (await trial.open()).publish(trial.root, 1)
    before = len(client.arrived)
    await client.connect()
    channels = [each.get("channel") for each in client.arrived[before:]]
    expect(channels == [trial.root, "/meta/connect"], "the message, then the reply", channels)


@check(
    "socket-of-a-session",
    Level.CLIENTS,
    "Connect",
    "A session that began with long-polling can continue over a WebSocket, as Faye and aiocometd do.",
    [WEBSOCKET],
)
async def _socket_of_a_session(trial: Trial) -> None:
    """A handshake over long-polling that offers both; then a connect and a subscribe over a WebSocket with its `clientId`."""
    poller = trial.client(LONG_POLLING)
    await poller.handshake(supportedConnectionTypes=[LONG_POLLING, WEBSOCKET])
    client = trial.client()
    client.client_id = poller.client_id
    poller.client_id = ""
    try:
        reply = await client.connect(advice={"timeout": 0})
    except Failed as failed:
        raise Failed(f"{failed} on a new socket") from None
    expect(reply.get("successful") is True, "a successful connect on the new socket", reply)


@check(
    "broken-connection",
    Level.CLIENTS,
    "Connect",
    "A page that is closed breaks the connection of its connect; the server serves the others.",
    [LONG_POLLING],
    is_last=True,
)
async def _broken_connection(trial: Trial) -> None:
    """A client breaks its connection while its connect is held; another client then handshakes and connects. This check runs
    after all others."""
    client = await trial.open()
    await client.hold()
    await client.abort()
    for _ in range(3):
        try:
            await trial.open()
        except (Gone, Failed, Untested) as broken:
            raise Failed(f"expected a server that continues, got: {broken}") from None
