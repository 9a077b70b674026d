"""Checks of handshakes, sessions and the fields that all replies have."""

from __future__ import annotations

import math
import re
from typing import Any

from crewel.conformance.check_table import Level, check
from crewel.conformance.trial import HELD_S, Client, Trial
from crewel.conformance.verdicts import CALLBACK_POLLING, HTTP, LONG_POLLING, TRANSPORTS, NotOffered, Untested, expect

_UNKNOWN_TYPE = "conformance-no-such-transport"
_MANY = 20
_RANDOM_BITS = 128
META = ("handshake", "connect", "subscribe", "unsubscribe", "disconnect")


async def _all_meta(trial: Trial) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """One request to each meta channel that succeeds, and its reply: channel, request, reply."""
    client = trial.client()
    found = []
    for name in META:
        channel = f"/meta/{name}"
        fields: dict[str, Any] = {}
        if name == "handshake":
            fields = {"version": "1.0", "supportedConnectionTypes": [trial.transport], "clientId": None}
        elif name == "connect":
            fields = {"connectionType": trial.transport, "advice": {"timeout": 0}}
        elif name.endswith("subscribe"):
            fields = {"subscription": trial.root}
        request = client.message(channel, **fields)
        # A server that holds the first connect is right here.
        (reply,) = await client.send(request, limit_s=HELD_S if name == "connect" else None)
        if name == "handshake":
            client.client_id = str(reply.get("clientId", ""))
        if name == "disconnect":
            client.client_id = ""
        found.append((channel, request, reply))
    return found


async def refusals(client: Client) -> dict[str, dict[str, Any]]:
    """The replies to requests with an unknown `clientId`, by channel."""
    found = {}
    for name in META[1:]:
        fields: dict[str, Any] = {"clientId": "conformancenosuchclient"}
        if name == "connect":
            fields |= {"connectionType": client.transport, "advice": {"timeout": 0}}
        elif name.endswith("subscribe"):
            fields["subscription"] = "/conformance/x"
        found[f"/meta/{name}"] = await client.ask(f"/meta/{name}", **fields)
    return found


@check("meta-reply", Level.MUST, "Messages", "A server responds to each request on a meta channel.")
async def _meta_reply(trial: Trial) -> None:
    """One request to each of the five meta channels; each reply arrives, with the channel of its request."""
    await _all_meta(trial)


@check("meta-id", Level.MUST, "id", "The response to a message on a meta channel has the `id` of the message.")
async def _meta_id(trial: Trial) -> None:
    """One request to each meta channel, and one to each with an unknown `clientId`: equal ids, as strings."""
    for channel, request, reply in await _all_meta(trial):
        expect(reply.get("id") == request["id"], f"the id {request['id']!r} in the reply on {channel}", reply)
    await refusals(trial.client())


@check("meta-successful", Level.MUST, "successful", "Responses on the meta channels have the boolean `successful`.")
async def _meta_successful(trial: Trial) -> None:
    """One request to each meta channel: true; one to each but the handshake with an unknown `clientId`: false."""
    for channel, _, reply in await _all_meta(trial):
        expect(reply.get("successful") is True, f"successful: true on {channel}", reply)
    for channel, reply in (await refusals(trial.client())).items():
        expect(reply.get("successful") is False, f"successful: false on {channel} without a session", reply)


@check("publish-successful", Level.MUST, "successful", "A response to a publish has the boolean `successful`.")
async def _publish_successful(trial: Trial) -> None:
    """A publish to a channel of its own."""
    client = await trial.open()
    reply = await client.ask(trial.root, data=1)
    expect(isinstance(reply.get("successful"), bool), "successful: true or false", reply)


@check("message-channel", Level.MUST, "Messages", "Each message has exactly one `channel`.")
async def _message_channel(trial: Trial) -> None:
    """A subscriber publishes to itself; every message that arrives in the whole exchange has a channel, as a string."""
    client = await trial.open(trial.root)
    await client.publish(trial.root, 1)
    await client.receives(trial.root, 1)
    await client.ask("/meta/unsubscribe", subscription=trial.root)
    for each in client.arrived:
        expect(isinstance(each.get("channel"), str), "a channel in each message", each)


@check("message-array", Level.MUST, "Messages", "A server accepts an array of several messages.")
async def _message_array(trial: Trial) -> None:
    """Two subscribes and a publish in one payload: three replies."""
    client = await trial.open()
    subscribes = [client.message("/meta/subscribe", subscription=f"{trial.root}/{name}") for name in "ab"]
    replies = await client.send(*subscribes, client.message(f"{trial.root}/c", data=1))
    expect([each.get("successful") for each in replies] == [True] * 3, "three successful replies", replies)


@check(
    "handshake-fields",
    Level.MUST,
    "Handshake",
    "A successful response has channel, version, supportedConnectionTypes, clientId.",
)
async def _handshake_fields(trial: Trial) -> None:
    """A handshake with the usual fields; the types of the fields of its reply."""
    reply = await trial.client().handshake()
    expect(reply.get("successful") is True, "a successful handshake", reply)
    expect(re.fullmatch(r"\d+(\.[A-Za-z0-9][\w-]*)*", str(reply.get("version"))), "a `version`", reply)
    expect(isinstance(reply.get("clientId"), str), "a `clientId`", reply)
    types = reply.get("supportedConnectionTypes")
    expect(isinstance(types, list) and all(isinstance(each, str) for each in types), "an array of strings", types)


@check(
    "handshake-common",
    Level.MUST,
    "Handshake",
    "supportedConnectionTypes has at least one element in common with the request.",
)
async def _handshake_common(trial: Trial) -> None:
    """A handshake that offers the transport and one that does not exist."""
    reply = await trial.client().handshake(supportedConnectionTypes=[_UNKNOWN_TYPE, trial.transport])
    expect(trial.transport in reply.get("supportedConnectionTypes", []), f"{trial.transport} among the types", reply)


@check(
    "handshake-none-common", Level.MUST, "Handshake", "With no connection type in common the handshake is unsuccessful."
)
async def _handshake_none_common(trial: Trial) -> None:
    """A handshake that offers a transport that does not exist, and nothing else."""
    reply = await trial.client().handshake(supportedConnectionTypes=[_UNKNOWN_TYPE])
    expect(reply.get("successful") is False, "successful: false", reply)


@check(
    "handshake-failure",
    Level.MUST,
    "Handshake",
    "An unsuccessful response has channel, `successful` false, and an `error` text.",
)
async def _handshake_failure(trial: Trial) -> None:
    """A handshake without a common transport; where that succeeds, there is no failure to look at."""
    reply = await trial.client().handshake(supportedConnectionTypes=[_UNKNOWN_TYPE])
    if reply.get("successful") is True:
        raise Untested("the server refuses no handshake that this program knows of")
    expect(isinstance(reply.get("error"), str) and reply["error"], "an `error` text", reply)
    expect("clientId" not in reply, "no `clientId` in a failed handshake", reply)


@check(
    "handshake-alone",
    Level.MUST,
    "Handshake",
    "A server ignores any other message in the request of a handshake.",
    HTTP,
)
async def _handshake_alone(trial: Trial) -> None:
    """A publish of a live session before and after a handshake in one request: a subscriber gets neither. Refusing the whole
    request is a way to ignore them."""
    subscriber = await trial.open(trial.root)
    publisher = await trial.open()
    shakes = publisher.message(
        "/meta/handshake", version="1.0", supportedConnectionTypes=[trial.transport], clientId=None
    )
    for batch in (
        [shakes, publisher.message(trial.root, data="after")],
        [publisher.message(trial.root, data="before"), shakes],
    ):
        await publisher.try_to_send(*batch)
    await publisher.publish(trial.root, "marker")
    await subscriber.receives(trial.root, "marker")
    ignored = subscriber.data_on(trial.root)
    expect(ignored == ["marker"], "that nothing beside a handshake has an effect", f"deliveries of {ignored}")


@check("client-id-unique", Level.MUST, "Client ID", "Client ids are unique.", [LONG_POLLING])
async def _client_id_unique(trial: Trial) -> None:
    """Twenty handshakes of one client."""
    ids = await _client_ids(trial)
    expect(len(set(ids)) == len(ids), f"{len(ids)} different ids", sorted(ids))


@check("client-id-alphanumeric", Level.MUST, "Client ID", "A client id consists of letters and digits.", [LONG_POLLING])
async def _client_id_alphanumeric(trial: Trial) -> None:
    """Twenty handshakes."""
    for each in await _client_ids(trial):
        expect(re.fullmatch(r"[A-Za-z0-9]+", each), "letters and digits", each)


@check("client-id-random", Level.SHOULD, "Client ID", "A client id has at least 128 random bits.", [LONG_POLLING])
async def _client_id_random(trial: Trial) -> None:
    """Twenty handshakes: the places in which the ids differ, times the bits of the alphabet in use. This is an upper bound, so
    a failure is certain, and a pass is not."""
    ids = await _client_ids(trial)
    alphabet = len({char for each in ids for char in each})
    width = min(map(len, ids))
    varying = sum(len({each[place] for each in ids}) > 1 for place in range(width))
    bits = varying * math.log2(max(alphabet, 2))
    expect(bits >= _RANDOM_BITS, f"{_RANDOM_BITS} bits", f"{bits:.0f} at most, such as {ids[0]}")


async def _client_ids(trial: Trial) -> list[str]:
    client = trial.client()
    ids = []
    for _ in range(_MANY):
        reply = await client.handshake()
        if not isinstance(reply.get("clientId"), str):
            raise Untested(f"the handshake fails: {reply.get('error', reply)}")
        ids.append(reply["clientId"])
        client.client_id = reply["clientId"]
        await client.ask("/meta/disconnect")
        client.client_id = ""
    return ids


@check("long-polling-offered", Level.MUST, "Connection types", "All servers support long-polling.", [LONG_POLLING])
async def _long_polling_offered(trial: Trial) -> None:
    """The supportedConnectionTypes of a handshake that offers all transports."""
    reply = await trial.client().handshake(supportedConnectionTypes=list(TRANSPORTS))
    expect("long-polling" in reply.get("supportedConnectionTypes", []), "long-polling among the types", reply)


@check(
    "callback-polling-offered", Level.SHOULD, "Connection types", "Servers support callback-polling.", [LONG_POLLING]
)
async def _callback_polling_offered(trial: Trial) -> None:
    """The supportedConnectionTypes of a handshake that offers all transports. A server that leaves callback-polling out may
    support it all the same: the result is *not offered*."""
    reply = await trial.client().handshake(supportedConnectionTypes=list(TRANSPORTS))
    types = reply.get("supportedConnectionTypes", [])
    if CALLBACK_POLLING not in types:
        raise NotOffered(f"the types are {types}")


@check("error-format", Level.SHOULD, "error", "`error` is `code:args:text`, with three digits, or `code::text`.")
async def _error_format(trial: Trial) -> None:
    """The errors of requests with an unknown `clientId`, and of a subscribe to a meta channel."""
    replies = list((await refusals(trial.client())).values())
    client = await trial.open()
    replies.append(await client.ask("/meta/subscribe", subscription="/meta/connect"))
    errors = [reply["error"] for reply in replies if reply.get("successful") is False and "error" in reply]
    if not errors:
        raise Untested("the server refuses without an error")
    for error in errors:
        expect(isinstance(error, str) and re.fullmatch(r"\d{3}:[^:]*:.*", error), "code:args:text", error)


@check(
    "timestamp-format", Level.SHOULD, "timestamp", "A `timestamp` is in the ISO 8601 profile YYYY-MM-DDThh:mm:ss.ss."
)
async def _timestamp_format(trial: Trial) -> None:
    """The timestamps of all messages of a short exchange, if there are any."""
    client = await trial.open(trial.root)
    await client.publish(trial.root, 1)
    await client.receives(trial.root, 1)
    found = [each["timestamp"] for each in client.arrived if "timestamp" in each]
    if not found:
        raise Untested("the server sends no timestamps")
    for each in found:
        expect(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", str(each)), "ISO 8601", each)


@check(
    "browser-cookie",
    Level.SHOULD,
    "Multiple clients",
    "A server identifies an HTTP client by the cookie BAYEUX_BROWSER.",
    HTTP,
)
async def _browser_cookie(trial: Trial) -> None:
    """The cookies that a handshake over HTTP sets."""
    agent = await trial.agent()
    await trial.client(agent=agent).handshake()
    names = [each.key for each in agent.cookie_jar]
    expect("BAYEUX_BROWSER" in names, "the cookie BAYEUX_BROWSER", names or "no cookie")


@check(
    "bare-handshake",
    Level.CLIENTS,
    "Handshake",
    "Hand-written clients leave out `version` and `supportedConnectionTypes`.",
)
async def _bare_handshake(trial: Trial) -> None:
    """A handshake with a channel and an id alone is successful."""
    reply = await trial.client().handshake(version=None, minimumVersion=None, supportedConnectionTypes=None)
    expect(reply.get("successful") is True, "a successful handshake", reply)


@check(
    "unconnected-handshake-advice",
    Level.CLIENTS,
    "Connect",
    "A connect without a session is advised to handshake, with code 402.",
)
async def _unknown_code(trial: Trial) -> None:
    """A connect with an unknown `clientId`: `402…`, and `advice.reconnect` is `handshake`."""
    reply = (await refusals(trial.client()))["/meta/connect"]
    expect(str(reply.get("error")).startswith("402:"), "an error with 402", reply.get("error"))
    advice = reply.get("advice")
    expect(isinstance(advice, dict) and advice.get("reconnect") == "handshake", "the advice handshake", reply)


@check(
    "error-arguments",
    Level.CLIENTS,
    "error",
    "The error of a denied request has the reason between its colons, as with CometD.",
)
async def _error_arguments(trial: Trial) -> None:
    """The error of a subscribe to a meta channel that does not exist: `403:<reason>:<text>`."""
    client = await trial.open()
    reply = await client.ask("/meta/subscribe", subscription="/meta/conformance")
    expect(reply.get("successful") is False, "a refused subscribe", reply)
    expect(re.fullmatch(r"403:[^:]+:.+", str(reply.get("error"))), "403:<reason>:<text>", reply.get("error"))


@check(
    "unknown-meta",
    Level.CLIENTS,
    "Meta channels",
    "A message to a meta channel that does not exist has a reply that refuses it.",
)
async def _unknown_meta(trial: Trial) -> None:
    """A message to `/meta/conformance` of a connected client."""
    reply = await (await trial.open()).ask("/meta/conformance", data=1)
    expect(reply.get("successful") is False, "a refusal", reply)
