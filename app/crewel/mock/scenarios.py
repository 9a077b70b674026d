"""Named scenarios: situations in which clients of Salesforce's streaming API failed, each from a thread or the documentation.

`naive` is the mistake of such a client. `tests/mock` has a client with each of these mistakes, which fails, and a right one,
which passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens, and the mistake of a client that it reveals."""

    name: str
    summary: str
    naive: str
    source: str
    script: str = ""
    """The faults that clients meet. What else happens in the org, `scenario_acts` does."""


_ALL: Final = (
    Scenario(
        "net-43",
        "the session is forgotten: 403::Unknown client with the advice to handshake",
        "repeats the connect instead of the handshake",
        "CometD.NetCore.Salesforce#43",
        "after 2 connects: unknown client",
    ),
    Scenario(
        "camel-3247",
        "the session is forgotten every three hours",
        "does not subscribe again after the second handshake",
        "camel PR 3247",
        "after 2 connects: unknown client",
    ),
    Scenario(
        "jsforce-1709",
        "an event is published while the client has no session",
        "subscribes again with the replay id that it began with, -1",
        "jsforce#1709",
    ),
    Scenario(
        "emp-15",
        "the harsh variant: /meta/disconnect and the advice none",
        "stops for good at reconnect: none",
        "EMP-Connector#15",
        "after 2 connects: unknown client, disconnect",
    ),
    Scenario(
        "restforce-589",
        "the token is revoked while the connect is held",
        "handshakes again with the same token",
        "restforce#589",
    ),
    Scenario(
        "net-20",
        "the replay id is refused",
        "takes the failed subscribe for a subscription",
        "CometD.NetCore.Salesforce#20",
        "next subscribe: invalid replay id",
    ),
    Scenario(
        "emp-41",
        "the replay map is refused because the channel is not in it",
        "gives up at the first failed subscribe",
        "EMP-Connector#41",
        "next subscribe: replay id not found",
    ),
    Scenario(
        "restforce-498",
        "a replay id of null is refused",
        "sends null where it has no replay id yet",
        "restforce#498",
    ),
    Scenario(
        "emp-79",
        "the server is busy: the subscribe is denied twice",
        "does not repeat a denied subscribe",
        "EMP-Connector#79",
        "next subscribe: server busy\nnext subscribe: server busy",
    ),
    Scenario(
        "daily-limit",
        "the events of the day are used up for a while",
        "stops for good at the limit",
        "Streaming API limits",
        "after 2 connects: daily limit",
    ),
    Scenario(
        "cometd-1142",
        "the connection of a held connect ends without an answer",
        "does not survive a closed connection",
        "cometd#1142",
        "after 2 connects: drop",
    ),
    Scenario(
        "reset",
        "the connection of a connect is reset",
        "does not survive a reset",
        "load balancers",
        "after 2 connects: reset",
    ),
    Scenario(
        "half-body",
        "a response ends in the middle, with an event in it",
        "takes half a body for the end of the stream",
        "proxies",
        "after 2 connects: half body",
    ),
    Scenario(
        "bad-gateway",
        "a page in HTML with status 502 comes instead of JSON",
        "parses whatever comes",
        "EMP-Connector threads on maintenance",
        "after 2 connects: 502 page",
    ),
    Scenario(
        "maintenance",
        "the handshake is answered with a page and status 503",
        "handshakes once",
        "instance refresh",
        "next handshake: 503 page",
    ),
    Scenario(
        "jetstream-cookies",
        "cookies have characters that need no encoding",
        "encodes the values of cookies once more",
        "Jetstream's source",
    ),
    Scenario(
        "no-cookies",
        "the cookies of the handshake have to come back",
        "sends no cookies",
        "Streaming API, clients and cookies",
    ),
    Scenario(
        "wso2-4768",
        "ids have gaps: the next one is not the last one plus one",
        "asks for what comes after the next number",
        "wso2#4768",
    ),
    Scenario(
        "first-connect",
        "the first connect is answered at once and without events, also if there are some",
        "takes an empty answer for the end",
        "cometd#775",
    ),
    Scenario(
        "dns-change",
        "the org moves to another address, which only the login knows",
        "keeps the address of the first login",
        "instance refresh",
    ),
    Scenario(
        "long-absence",
        "the client is away for 80 hours, and its replay id has expired",
        "repeats the subscribe with the same id",
        "Streaming API, durable streaming",
    ),
    Scenario(
        "concurrent-clients",
        "there are too many clients for a moment",
        "gives up at the first denied handshake",
        "Streaming API limits",
        "next handshake: concurrent limit",
    ),
    Scenario(
        "twice",
        "the new session is forgotten as well",
        "recovers once only",
        "Oyatel#23",
        "after 2 connects: unknown client\nafter 1 connect: unknown client",
    ),
    Scenario(
        "gap-overflow",
        "a change event says only that others were left out: GAP_OVERFLOW, with an empty record id",
        "takes the first record id of every change event for a record",
        "Change Data Capture, gap events",
    ),
    Scenario(
        "merged-changes",
        "one change event is about three records",
        "handles the first record of a change event",
        "Change Data Capture, merged events",
    ),
)

SCENARIOS: Final = {each.name: each for each in _ALL}
"""All scenarios by name."""


def scenario_of(name: str) -> Scenario:
    """Return the scenario of this name. Raises ValueError for an unknown one."""
    if name not in SCENARIOS:
        raise ValueError(f"there is no scenario {name!r}; known are {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
