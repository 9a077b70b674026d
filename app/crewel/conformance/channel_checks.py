"""Checks of channels: subscribing, wildcards, meta and service channels, publishing and delivery."""

from __future__ import annotations

from typing import Any

from crewel.conformance.check_table import Level, check
from crewel.conformance.trial import Client, Trial
from crewel.conformance.verdicts import Untested, expect

_VALUES: tuple[Any, ...] = (
    {"text": 'ü ☃ 𝄞 \\ " </script> \u2028'},
    {"deep": [[], {}, [1, -2.5, 9007199254740991], {"none": None, "yes": True}]},
    ["a list"],
    "a text",
    0,
    False,
)


async def _marked(trial: Trial, subscriber: Client, publisher: Client, channel: str) -> list[Any]:
    """Publish a marker, wait for it, and return all the channels that were delivered before it."""
    await publisher.publish(channel, "marker")
    await subscriber.receives(channel, "marker")
    return [each.get("channel") for each in subscriber.deliveries if each.get("data") != "marker"]


@check(
    "subscribe-fields", Level.MUST, "Subscribe", "The response to a subscribe has channel, successful and subscription."
)
async def _subscribe_fields(trial: Trial) -> None:
    """A subscribe that succeeds and one with an unknown `clientId`: the reply has the `subscription` of the request."""
    client = await trial.open()
    reply = await client.ask("/meta/subscribe", subscription=trial.root)
    expect(reply.get("subscription") == trial.root, f"subscription: {trial.root}", reply)
    reply = await client.ask("/meta/subscribe", subscription=trial.root, clientId="conformancenosuchclient")
    expect(reply.get("subscription") == trial.root, f"subscription: {trial.root} in a refusal", reply)


@check("subscribe-array", Level.MUST, "Subscribe", "`subscription` may be an array of channels.")
async def _subscribe_array(trial: Trial) -> None:
    """One subscribe to two channels; the reply has the array, and a message to each arrives."""
    client = await trial.open()
    names = [f"{trial.root}/a", f"{trial.root}/b"]
    reply = await client.ask("/meta/subscribe", subscription=names)
    expect(reply.get("successful") is True, "a successful subscribe", reply)
    expect(reply.get("subscription") == names, f"subscription: {names}", reply)
    client.poll()
    for name in names:
        await client.publish(name, name)
        await client.receives(name, name)


@check(
    "unsubscribe-fields",
    Level.MUST,
    "Unsubscribe",
    "The response to an unsubscribe has channel, successful and subscription.",
)
async def _unsubscribe_fields(trial: Trial) -> None:
    """An unsubscribe that succeeds and one with an unknown `clientId`."""
    client = await trial.open(trial.root)
    reply = await client.ask("/meta/unsubscribe", subscription=trial.root)
    expect(reply.get("successful") is True, "a successful unsubscribe", reply)
    expect(reply.get("subscription") == trial.root, f"subscription: {trial.root}", reply)
    reply = await client.ask("/meta/unsubscribe", subscription=trial.root, clientId="conformancenosuchclient")
    expect(reply.get("subscription") == trial.root, f"subscription: {trial.root} in a refusal", reply)


@check(
    "unsubscribe-ends", Level.MUST, "Unsubscribe", "After an unsubscribe, messages to the channel are not delivered."
)
async def _unsubscribe_ends(trial: Trial) -> None:
    """Unsubscribe from one of two channels, by name and in an array; publish to it, then to the other one."""
    client = await trial.open(f"{trial.root}/a", f"{trial.root}/b", f"{trial.root}/c")
    await client.ask("/meta/unsubscribe", subscription=f"{trial.root}/a")
    await client.ask("/meta/unsubscribe", subscription=[f"{trial.root}/b"])
    publisher = await trial.open()
    for name in "ab":
        await publisher.publish(f"{trial.root}/{name}", 1)
    delivered = await _marked(trial, client, publisher, f"{trial.root}/c")
    expect(delivered == [], "nothing but the marker", delivered)


@check(
    "wildcard-one", Level.MUST, "Channels", "`/foo/*` matches one segment: /foo/bar, not /foo, /foobar or /foo/bar/boo."
)
async def _wildcard_one(trial: Trial) -> None:
    """Subscribe to the pattern; publish to a name of each kind, then to one that matches."""
    await _wildcard(trial, "*", matching=["/bar", "/boo"], others=["", "bar", "/bar/boo"])


@check("wildcard-many", Level.MUST, "Channels", "`/foo/**` matches one segment and more: not /foo, nor /foobar.")
async def _wildcard_many(trial: Trial) -> None:
    """Subscribe to the pattern; publish to a name of each kind, then to one that matches."""
    await _wildcard(trial, "**", matching=["/bar", "/boo", "/bar/boo", "/a/b/c/d"], others=["", "bar", "bar/boo"])


async def _wildcard(trial: Trial, wildcard: str, matching: list[str], others: list[str]) -> None:
    client = await trial.open(f"{trial.root}/{wildcard}")
    publisher = await trial.open()
    for name in [*others, *matching]:
        await publisher.publish(trial.root + name, 1)
    delivered = await _marked(trial, client, publisher, f"{trial.root}/marker")
    expected = [trial.root + name for name in matching]
    expect(sorted(delivered) == sorted(expected), f"messages on {expected}", delivered)


@check(
    "channel-characters", Level.MUST, "Channels", "A segment consists of letters, digits and the marks - _ ! ~ ( ) $ @."
)
async def _channel_characters(trial: Trial) -> None:
    """Subscribe and publish to a channel with all the marks."""
    channel = f"{trial.root}/aZ09-_!~()$@/(foobar)"
    client = await trial.open(channel)
    await client.publish(channel, 1)
    await client.receives(channel, 1)


@check("meta-not-distributed", Level.MUST, "Meta channels", "Messages to meta channels are not distributed to clients.")
async def _meta_not_distributed(trial: Trial) -> None:
    """A subscriber of `/**`, and of a meta channel if the server lets it; another client handshakes, subscribes and publishes
    to `/meta/conformance`."""
    client = await trial.open(f"{trial.root}/x")
    for pattern in ("/**", "/meta/**", "/meta/conformance"):
        await client.ask("/meta/subscribe", subscription=pattern)
    other = await trial.open()
    await other.subscribe(f"{trial.root}/y")
    await other.try_to_send(other.message("/meta/conformance", data="secret"))
    delivered = await _marked(trial, client, other, f"{trial.root}/x")
    expect(
        not [each for each in delivered if str(each).startswith("/meta/")], "no messages of meta channels", delivered
    )


@check(
    "service-not-distributed",
    Level.MUST,
    "Service channels",
    "Messages to service channels are not distributed to other clients.",
)
async def _service_not_distributed(trial: Trial) -> None:
    """Another client publishes to a service channel that this one has subscribed to, also by `/**`."""
    channel = f"/service{trial.root}"
    client = await trial.open(f"{trial.root}/x")
    for pattern in (channel, "/service/**", "/**"):
        await client.ask("/meta/subscribe", subscription=pattern)
    other = await trial.open()
    await other.try_to_send(other.message(channel, data="private"))  # there may be no reply to it
    delivered = await _marked(trial, client, other, f"{trial.root}/x")
    expect(channel not in delivered, "no message of the service channel", f"a delivery on {channel}")


@check(
    "service-id", Level.SHOULD, "Service channels", "A response to a message on a service channel has the same `id`."
)
async def _service_id(trial: Trial) -> None:
    """A publish to a service channel that no handler has: its reply, if there is one, has the id."""
    client = await trial.open()
    channel = f"/service{trial.root}"
    message = client.message(channel, data=1)
    await client.try_to_send(message)
    # A reply to the publish comes before that of this one.
    await client.ask("/meta/unsubscribe", subscription="/conformance/not/subscribed")
    replies = [each for each in client.arrived if each.get("channel") == channel and "data" not in each]
    if not replies:
        raise Untested("the server does not reply to a message on a service channel")
    expect(replies[0].get("id") == message["id"], f"a reply with id {message['id']!r}", replies[0])


@check("delivery", Level.MUST, "Delivery", "A message is delivered to all clients that are subscribed to its channel.")
async def _delivery(trial: Trial) -> None:
    """Two subscribers, of the name and of a pattern, one of which is the publisher: both get the message."""
    channel = f"{trial.root}/news"
    first, second = await trial.open(channel), await trial.open(f"{trial.root}/*")
    await first.publish(channel, {"n": 1})
    await second.receives(channel, {"n": 1})
    await first.receives(channel, {"n": 1})


@check(
    "delivery-data", Level.MUST, "Delivery", "A delivered message has the channel and the data as they were published."
)
async def _delivery_data(trial: Trial) -> None:
    """Objects, lists, texts with all kinds of characters, numbers and booleans; the data arrives unchanged."""
    client = await trial.open(trial.root)
    for value in _VALUES:
        await client.publish(trial.root, value)
    await client.until(lambda: len(client.data_on(trial.root)) >= len(_VALUES), f"{len(_VALUES)} messages")
    got = client.data_on(trial.root)
    same = len(got) == len(_VALUES) and all(a == b and type(a) is type(b) for a, b in zip(got, _VALUES, strict=True))
    expect(same, f"{list(_VALUES)!r}", got)


@check("delivery-has-data", Level.MUST, "Delivery", "A delivered message has `data`, whatever was published.")
async def _delivery_has_data(trial: Trial) -> None:
    """A publish without `data`, if the server accepts it: what is delivered has the field."""
    client = await trial.open(trial.root)
    publisher = await trial.open()
    await publisher.ask(trial.root)
    await _marked(trial, client, publisher, trial.root)
    for each in client.deliveries:
        expect("data" in each, "`data` in each delivered message", each)


@check("client-id-leak", Level.MUST, "clientId", "A delivered message does not have the `clientId` of the publisher.")
async def _client_id_leak(trial: Trial) -> None:
    """A publish with `clientId`: the message that another client gets has neither the field nor the value."""
    client = await trial.open(trial.root)
    publisher = await trial.open()
    await publisher.publish(trial.root, 1)
    message = await client.receives(trial.root, 1)
    expect(publisher.client_id not in str(message), "no `clientId` of the publisher", message)


@check(
    "unconnected-publish",
    Level.MUST,
    "Unconnected operation",
    "A server responds to messages without a handshake, if only with an error.",
)
async def _unconnected_publish(trial: Trial) -> None:
    """A publish and a subscribe without `clientId`: each has a reply."""
    client = trial.client()
    await client.ask(trial.root, data=1)
    await client.ask("/meta/subscribe", subscription=trial.root)


@check(
    "no-id",
    Level.CLIENTS,
    "id",
    "A publish without `id` has a reply, like every message: CometD's WebSocket transport closes without one.",
)
async def _no_id(trial: Trial) -> None:
    """A publish with an id and one without."""
    client = await trial.open()
    await client.publish(trial.root, 1)
    await client.ask(trial.root, data=2, id=None)


@check("one-copy", Level.CLIENTS, "Delivery", "A session that matches through several subscriptions gets one copy.")
async def _one_copy(trial: Trial) -> None:
    """Subscribe to a name and to two patterns that match it; one publish, one message."""
    channel = f"{trial.root}/a"
    client = await trial.open(channel, f"{trial.root}/*", f"{trial.root}/**")
    await client.publish(channel, 1)
    await client.publish(channel, "end")
    await client.receives(channel, "end")
    expect(client.data_on(channel) == [1, "end"], "each message once", client.data_on(channel))


@check("order", Level.CLIENTS, "Delivery", "The messages of a publisher arrive in its order.")
async def _order(trial: Trial) -> None:
    """Thirty messages in three requests."""
    client = await trial.open(trial.root)
    publisher = await trial.open()
    for start in range(0, 30, 10):
        await publisher.send(*[publisher.message(trial.root, data=number) for number in range(start, start + 10)])
    await client.receives(trial.root, 29)
    expect(client.data_on(trial.root) == list(range(30)), "0 to 29 in order", client.data_on(trial.root))


@check(
    "no-publisher-id",
    Level.CLIENTS,
    "Delivery",
    "A delivered message does not have the publisher's `id`: a client takes it for a reply.",
)
async def _no_publisher_id(trial: Trial) -> None:
    """A publish with an id; the message that another client gets."""
    client = await trial.open(trial.root)
    publisher = await trial.open()
    await publisher.publish(trial.root, 1, id="publisher1")
    message = await client.receives(trial.root, 1)
    expect(message.get("id") != "publisher1", "no id of the publisher", message)


@check(
    "forged-fields",
    Level.CLIENTS,
    "Delivery",
    "A publisher cannot send `advice`, `successful` or `error` to subscribers.",
)
async def _forged_fields(trial: Trial) -> None:
    """A publish with these three fields: they are refused or not delivered."""
    client = await trial.open(trial.root)
    publisher = await trial.open()
    forged = {"advice": {"reconnect": "none"}, "successful": False, "error": "403::forged"}
    await publisher.ask(trial.root, data=1, **forged)
    await _marked(trial, client, publisher, trial.root)
    for each in client.deliveries:
        expect(not forged.keys() & each.keys(), "none of the three fields", each)


@check(
    "service-subscribe",
    Level.CLIENTS,
    "Service channels",
    "Clients subscribe to the service channels that they use, and it succeeds.",
)
async def _service_subscribe(trial: Trial) -> None:
    """A subscribe to a service channel."""
    reply = await (await trial.open()).ask("/meta/subscribe", subscription=f"/service{trial.root}")
    expect(reply.get("successful") is True, "a successful subscribe", reply)


@check("meta-subscribe", Level.CLIENTS, "Meta channels", "A client cannot subscribe to meta channels.")
async def _meta_subscribe(trial: Trial) -> None:
    """Subscribes to `/meta/connect`, `/meta/*` and `/meta/**`."""
    client = await trial.open()
    for name in ("/meta/connect", "/meta/*", "/meta/**"):
        reply = await client.ask("/meta/subscribe", subscription=name)
        expect(reply.get("successful") is False, f"a refused subscribe to {name}", reply)


@check(
    "invalid-channel",
    Level.CLIENTS,
    "Channels",
    "An invalid channel name is refused in its reply, and the rest of the request is processed.",
)
async def _invalid_channel(trial: Trial) -> None:
    """Publishes to `foo`, `/a//b` and `//` beside a valid one in one payload."""
    client = await trial.open()
    names = ["foo", "/a//b", "//"]
    replies = await client.send(*[client.message(name, data=1) for name in names], client.message(trial.root, data=1))
    outcomes = [each.get("successful") for each in replies]
    expect(outcomes == [False, False, False, True], "three refusals and a success", replies)


@check(
    "unconnected-refused",
    Level.CLIENTS,
    "Unconnected operation",
    "A publish without a session is refused with 402, as by CometD.",
)
async def _unconnected_refused(trial: Trial) -> None:
    """A publish without `clientId`."""
    reply = await trial.client().ask(trial.root, data=1)
    expect(str(reply.get("error")).startswith("402:"), "an error with 402", reply)
