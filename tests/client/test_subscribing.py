"""What a subscription may ask for, where it begins, and what it asks in a new session."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.client import Client, Message, MessageTooLargeError, NotEncodableError, SubscribeRefused
from crewel.client.errors import SocketClosedError
from crewel.client.payload import written
from crewel.client.router import Interest, Router
from crewel.client.session_loop import Subscriber
from crewel.client.states import Event, Life
from crewel.client.subscription import Overflow, SubscribeOptions, Subscription, subscribe_ext
from crewel.qos.subscribe import HISTORY, SUBSCRIBE
from tests.client.test_router import no_release, subscribed


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"history": 5}, {"history": {"numEntries": 5}}),
        ({"history": -1, "newest_first": False}, {"history": {"numEntries": -1, "newestFirst": False}}),
        ({"initial_update": False, "local": False}, {"initialUpdate": False, "local": False}),
        ({"notify": False, "multi_subscribe": False}, {"notify": False, "multiSubscribe": False}),
        ({"update_oneway": True, "newest_only": True}, {"updateOneway": True, "newestOnly": True}),
        ({"group": "cooks", "filter": "data.n > `3`"}, {"group": "cooks", "filter": "data.n > `3`"}),
        ({"persistent": True}, {"persistent": True}),
        ({"since": {}}, {"since": {}, "initialUpdate": False}),
        ({"since": {}, "initial_update": True}, {"since": {}, "initialUpdate": True}),
        ({"since": {}, "history": 3}, {"since": {}, "history": {"numEntries": 3}}),
        (
            {"since": {"/a": {"epoch": "e", "id": "1"}}},
            {"since": {"/a": {"epoch": "e", "id": "1"}}, "initialUpdate": False},
        ),
    ],
)
def test_each_option_is_a_field(options: dict[str, Any], asked: Fields) -> None:
    assert subscribe_ext(None, **options) == {"subscribe": asked}


def test_options_stand_beside_what_ext_says() -> None:
    given = {"mood": "good", "subscribe": {"local": False}}
    assert subscribe_ext(given, group="a") == {"mood": "good", "subscribe": {"local": False, "group": "a"}}
    assert given == {"mood": "good", "subscribe": {"local": False}}
    assert subscribe_ext({"mood": "good"}, group=None) == {"mood": "good"}
    assert subscribe_ext(None) is None


def test_an_option_that_there_is_not_is_a_mistake() -> None:
    unknown: dict[str, Any] = {"filtre": "x"}
    with pytest.raises(TypeError, match=r"subscribe\(\) has no argument 'filtre': did you mean 'filter'\?"):
        subscribe_ext(None, **unknown)


class World:
    """The client's side of subscriptions, and a server that the test plays."""

    def __init__(self) -> None:
        self.client_id = "first"
        self.asked: list[Any] = []
        self.unsubscribed: list[str] = []
        self.together: list[int] = []
        self.refused: dict[str, str] = {}
        self.closes_beyond = 100
        self.answers: list[Fields] = []
        self.takes: Callable[[list[Fields]], bool] = lambda messages: True
        self.router = Router()
        life = Life(lambda: self.client_id)
        for event in (Event.OPENED, Event.HANDSHAKEN):
            life.move(event)
        self.subscriber = Subscriber(self, self.router, life, 1.0)  # type: ignore[arg-type]

    async def exchange(self, messages: list[Fields], timeout: float) -> list[Fields]:
        await asyncio.sleep(0)
        if len(messages) > self.closes_beyond:
            raise SocketClosedError(1008, "too many messages in one batch")
        if not self.takes(messages):
            raise MessageTooLargeError("too many bytes")
        written(messages)
        self.together.append(len(messages))
        if messages[0]["channel"] == "/meta/unsubscribe":
            channels = [message["subscription"] for message in messages]
            self.unsubscribed += channels
            errors = [self.refused.get(channel) for channel in channels]
            return [{"channel": "/meta/unsubscribe", "successful": not error, "error": error} for error in errors]
        self.asked += [message.get("ext", {}).get("subscribe") for message in messages]
        return [self._reply(message["subscription"]) for message in messages]

    def _reply(self, channel: str) -> Fields:
        reply = {"channel": "/meta/subscribe", "subscription": channel}
        if channel in self.refused:
            return {**reply, "successful": False, "error": self.refused[channel]}
        return {**reply, "successful": True, "ext": {"subscribe": self.answers.pop(0)}}

    async def subscribe(self, told: Fields, channel: str = "/a", **options: Any) -> Subscription:
        subscription = Subscription(
            channel, bound=9, overflow=Overflow.HOLD, release=no_release, on_room=self.router.made_room
        )
        self.answers = [told]
        await self.subscriber.subscribe(self.router.add(subscription, subscribe_ext(None, **options)))
        return subscription

    async def renew(self, *told: Fields) -> None:
        """A new session, in which these answers come."""
        await self.login(*told, is_reconnected=False)

    async def login(self, *told: Fields, is_reconnected: bool) -> None:
        """A handshake, after which these answers come."""
        self.router.forget_session()
        self.router.begin_session(is_reconnected=is_reconnected)
        self.client_id, self.answers = "second", list(told)
        await self.subscriber.catch_up()

    def deliver(self, message_id: str, channel: str = "/a", **update: Any) -> None:
        fields = {"channel": channel, "data": message_id, "ext": {"update": {"id": message_id, **update}}}
        self.router.deliver(fields, retained=True)


def place(message_id: str, epoch: str = "e") -> Fields:
    return {"/a": {"epoch": epoch, "id": message_id}}


async def test_a_position_moves_on_with_what_the_application_takes() -> None:
    world = World()
    subscription = await world.subscribe({"position": place("5")}, history=2)
    world.deliver("4", initial=True)
    world.deliver("6")
    world.deliver("7")
    assert (subscription.position, subscription.recovered) == (place("5"), None)
    await anext(subscription)
    assert subscription.position == place("5")  # the first one is old
    await anext(subscription)
    assert subscription.position == place("6")
    subscription.position["/a"]["id"] = "changed"  # type: ignore[index]
    assert subscription.position == place("6")


@pytest.mark.parametrize("before", [(), ("6",)])
async def test_what_is_put_back_is_not_behind_the_position(before: tuple[str, ...]) -> None:
    world = World()
    subscription = await world.subscribe({"position": place("5")}, history=2)
    for message_id in (*before, "7", "8"):
        world.deliver(message_id)
    for _ in before:
        await anext(subscription)
    position = subscription.position
    message = await anext(subscription)
    subscription.put_back([message])
    assert subscription.position == position
    assert [(await anext(subscription)).data for _ in range(2)] == ["7", "8"]
    assert subscription.position == place("8")


@pytest.mark.parametrize(
    "update", [{"initial": True}, {"subscription": "__subId:PtP"}, {"lifeTime": 0}, {"state": "ERASED"}, {"id": None}]
)
async def test_what_no_history_has_moves_nothing(update: Fields) -> None:
    world = World()
    subscription = await world.subscribe({"position": place("5")}, history=2)
    world.deliver("6", **update)
    await anext(subscription)
    assert subscription.position == place("5")


async def test_a_new_session_asks_for_what_was_missed() -> None:
    world = World()
    subscription = await world.subscribe({"recovered": True, "position": place("9")}, since=place("5"))
    assert subscription.recovered is True
    assert subscription.position == place("5")  # the rest is still to come
    world.deliver("6")
    world.deliver("7")
    await anext(subscription)
    await world.renew({"recovered": True, "position": place("9")})
    assert [asked["since"] for asked in world.asked] == [place("5"), place("7")]
    assert subscription.position == place("6")  # 7 is in the queue
    await world.renew({"recovered": False, "position": place("3", "f")})
    assert (subscription.recovered, subscription.position) == (False, place("3", "f"))
    await world.renew({"recovered": True})
    assert world.asked[-1]["since"] == place("3", "f")


@pytest.mark.parametrize("options", [{"history": 5}, {"since": place("5")}, {"history": 5, "since": place("5")}])
async def test_what_a_kept_session_has_begun_is_not_begun_again(options: dict[str, Any]) -> None:
    world = World()
    subscription = await world.subscribe({"position": place("5")}, filter="x", **options)
    world.deliver("6")
    await anext(subscription)
    begun = world.asked[-1]
    for _ in range(2):
        await world.login({"position": place("9")}, is_reconnected=True)
        assert world.asked[-1] == {"filter": "x", "initialUpdate": False}
        assert subscription.position == place("6")  # 7 to 9 are still to come
    await world.login({"position": place("9")}, is_reconnected=False)
    assert world.asked[-1].keys() == begun.keys()
    world.router.lose_session()  # to another client, which had what came
    await world.login({"position": place("9")}, is_reconnected=True)
    assert world.asked[-1].keys() == begun.keys()


@pytest.mark.parametrize(
    ("came", "reached"),
    [
        (["6", "7"], "7"),
        (["8 high"], "8"),  # there may be others of this kind only
        (["6", "9 high"], "6"),
        (["6", "9 high", "7"], "7"),
        (["9 high", "6"], "6"),
        (["9 high", "6", "8 low"], "8"),
        (["9 low", "10"], "9"),
    ],
)
async def test_what_was_overtaken_is_asked_for_again(came: list[str], reached: str) -> None:
    world = World()
    subscription = await world.subscribe({"position": place("5")}, since={})
    for message_id, _, priority in (each.partition(" ") for each in came):
        world.deliver(message_id, priority={"": 5, "high": 7, "low": 3}[priority])
        await anext(subscription)
    assert subscription.position == place(reached)
    await world.renew({})
    assert world.asked[-1]["since"] == place(reached)


async def test_a_subscription_may_begin_now_and_recover_later() -> None:
    world = World()
    await world.subscribe({"recovered": True, "position": place("5")}, since={})
    await world.renew({"recovered": True, "position": place("8")})
    assert [asked["since"] for asked in world.asked] == [{}, place("5")]


async def test_subscribes_that_are_too_large_together_go_in_parts() -> None:
    world = World()
    subscriptions = [await world.subscribe({}, channel=f"/a/{number}") for number in range(25)]
    world.takes = lambda messages: len(messages) <= 10
    await world.renew(*[{"recovered": True}] * 25)
    assert world.router.unconfirmed() == []
    assert [each.recovered for each in subscriptions] == [True] * 25


async def test_after_a_socket_was_closed_for_a_subscribe_fewer_go_together() -> None:
    world = World()
    for number in range(10):
        await world.subscribe({}, channel=f"/a/{number}")
    world.router.lose_session()
    world.closes_beyond = 4
    world.answers = [{}] * 10
    for _ in range(2):
        with pytest.raises(SocketClosedError):
            await world.subscriber.catch_up()
    await world.subscriber.catch_up()
    assert world.router.unconfirmed() == []


async def test_the_next_session_is_asked_for_more_together() -> None:
    """The limit of the server may be another one by then, as after a restart."""
    world = World()
    for number in range(20):
        await world.subscribe({}, channel=f"/a/{number}")
    world.closes_beyond = 6
    for _ in range(2):
        with pytest.raises(SocketClosedError):
            await world.renew()
    await world.renew(*[{}] * 20)
    world.closes_beyond = 100
    for together in ([5, 5, 5, 5], [10, 10], [20]):
        assert world.together[-len(together) :] == together
        await world.renew(*[{}] * 20)


async def test_while_the_server_puts_some_off_no_more_are_asked_for_together() -> None:
    world = World()
    channels = [f"/a/{number}" for number in range(20)]
    for channel in channels:
        await world.subscribe({}, channel=channel)
    world.closes_beyond = 6
    for _ in range(2):
        with pytest.raises(SocketClosedError):
            await world.renew()
    world.refused = dict.fromkeys(channels, "429:limits.subscribes_per_s:resource.temporary.unavailable")
    for _ in range(3):
        await world.subscriber.catch_up()
        assert world.together[-4:] == [5] * 4


async def test_what_is_unsubscribed_while_others_are_asked_for_is_not_subscribed() -> None:
    world = World()
    _, second = [await world.subscribe({}, channel=channel) for channel in ("/a", "/b")]
    world.router.lose_session()
    world.asked, world.answers, world.subscriber._together = [], [{}], 1
    catching_up = asyncio.create_task(world.subscriber.catch_up())
    await asyncio.sleep(0)
    left(world, second)
    await catching_up
    assert len(world.asked) == 1
    assert world.router.unconfirmed() == []


async def test_a_subscribe_that_is_too_large_alone_ends_alone() -> None:
    world = World()
    channels = ["/a", "/large", "/b"]
    _, large, _ = [await world.subscribe({}, channel=channel) for channel in channels]
    world.takes = lambda messages: "/large" not in [message["subscription"] for message in messages]
    await world.renew({}, {})
    assert world.router.unconfirmed() == []
    with pytest.raises(MessageTooLargeError, match="too many bytes"):
        await anext(large)


@pytest.mark.parametrize(
    "error",
    [
        "429:limits.subscribes_per_s:resource.temporary.unavailable",
        "503::resource.unavailable",
        "503::resource.noMoreSpace",
    ],
)
async def test_a_subscription_outlives_a_refusal_that_passes(error: str) -> None:
    """After a restart of the server, all clients subscribe again at once."""
    world = World()
    subscription = await world.subscribe({})
    world.refused = {"/a": error}
    await world.renew()
    assert not subscription.is_ended
    assert [each.channel for each in world.router.unconfirmed()] == ["/a"]
    world.refused, world.answers = {}, [{}]
    await world.subscriber.catch_up()
    assert world.router.unconfirmed() == []
    world.refused = {"/a": "403:/a:subscription_denied"}
    await world.renew()
    with pytest.raises(SubscribeRefused, match="subscription_denied"):
        await anext(subscription)


async def test_a_first_subscribe_raises_each_refusal() -> None:
    world = World()
    world.refused = {"/a": "429:limits.subscribes_per_s:resource.temporary.unavailable"}
    with pytest.raises(SubscribeRefused, match="temporary"):
        await world.subscribe({})
    assert world.router.unconfirmed() == []


async def test_a_subscribe_that_json_cannot_represent_ends_alone() -> None:
    world = World()
    options: Fields = {"filter": "x"}
    channels = ["/a", "/odd", "/b"]
    _, odd, _ = [await world.subscribe({}, channel=channel, **options) for channel in channels]
    _, interest, _ = world.router._interests.values()
    assert interest.ext is not None
    interest.ext["subscribe"]["filter"] = object()  # as an application may that has kept its `ext`
    await world.renew({}, {})
    assert world.router.unconfirmed() == []
    with pytest.raises(NotEncodableError, match="which JSON cannot represent"):
        await anext(odd)


async def test_what_json_cannot_represent_is_refused_at_the_call() -> None:
    client = Client("http://127.0.0.1:1/cometd")
    with pytest.raises(NotEncodableError, match=r"subscribe\.filter is"):
        await client.subscribe("/a", filter=object())  # type: ignore[arg-type]
    with pytest.raises(NotEncodableError, match="mood is"):
        await client.subscribe("/a", ext={"mood": {1, 2}})


def left(world: World, subscription: Subscription) -> Subscription:
    """The subscription, which has been ended while there is no connection."""
    assert world.router.remove(subscription) is not None
    return subscription


async def test_an_unsubscribe_that_was_not_sent_goes_before_the_next_connect() -> None:
    world = World()
    left(world, await world.subscribe({}))
    for _ in range(2):
        await world.subscriber.catch_up()
        assert world.unsubscribed == ["/a"]


async def abandoned(count: int) -> tuple[World, list[str]]:
    """Subscriptions to so many channels, which have been ended while there is no connection."""
    world, channels = World(), [f"/a/{number}" for number in range(count)]
    for channel in channels:
        left(world, await world.subscribe({}, channel=channel))
    world.together = []
    return world, channels


async def test_unsubscribes_go_in_one_payload() -> None:
    world, channels = await abandoned(5)
    world.refused = {channels[1]: "404::no", channels[2]: "503::resource.unavailable"}
    for _ in range(2):
        await world.subscriber.catch_up()
    assert (world.together, world.unsubscribed) == ([5, 1], [*channels, channels[2]])


async def test_unsubscribes_that_are_too_large_together_go_in_parts() -> None:
    world, channels = await abandoned(25)
    world.takes = lambda messages: len(messages) <= 10 and "/a/7" not in [each["subscription"] for each in messages]
    await world.subscriber.catch_up()
    assert world.unsubscribed == [each for each in channels if each != "/a/7"]
    assert world.router.left == []


async def test_after_a_socket_was_closed_for_an_unsubscribe_fewer_go_together() -> None:
    world, channels = await abandoned(10)
    world.closes_beyond = 4
    for _ in range(2):
        with pytest.raises(SocketClosedError):
            await world.subscriber.catch_up()
        assert sorted(world.router.left) == channels
    await world.subscriber.catch_up()
    assert (sorted(world.unsubscribed), world.router.left) == (channels, [])


async def test_an_unsubscribe_that_follows_others_is_not_sent_where_the_channel_is_wanted_again() -> None:
    world, _ = await abandoned(2)
    world.subscriber._together = 1
    catching_up = asyncio.create_task(world.subscriber.catch_up())
    await asyncio.sleep(0)
    subscribed(world.router, "/a/1")
    world.answers = [{}]
    await catching_up
    assert world.unsubscribed == ["/a/0"]


@pytest.mark.parametrize("is_reconnected", [True, False])
async def test_an_unsubscribe_goes_to_the_session_that_has_the_subscription(is_reconnected: bool) -> None:
    world = World()
    left(world, await world.subscribe({}))
    await world.login(is_reconnected=is_reconnected)
    assert world.unsubscribed == ["/a"] * is_reconnected


async def test_an_unsubscribe_is_not_sent_where_the_channel_is_wanted_again() -> None:
    world = World()
    left(world, await world.subscribe({}))
    await world.subscribe({})
    await world.subscriber.catch_up()
    assert world.unsubscribed == []


@pytest.mark.parametrize(("error", "times"), [("503::resource.unavailable", 2), ("402::unknown", 2), ("404::no", 1)])
async def test_an_unsubscribe_that_the_server_puts_off_is_repeated(error: str, times: int) -> None:
    world = World()
    left(world, await world.subscribe({}))
    world.refused = {"/a": error}
    await world.subscriber.catch_up()
    world.refused = {}
    for _ in range(2):
        await world.subscriber.catch_up()
    assert world.unsubscribed == ["/a"] * times


async def test_an_unsubscribe_without_an_answer_is_repeated() -> None:
    world = World()
    left(world, await world.subscribe({}))
    unsubscribing = asyncio.create_task(world.subscriber.unsubscribe(["/a"]))
    await asyncio.sleep(0)
    unsubscribing.cancel()
    await asyncio.wait([unsubscribing])
    await world.subscriber.catch_up()
    assert world.unsubscribed == ["/a"]


@pytest.mark.parametrize("is_under_way", [True, False])
async def test_an_unsubscribe_is_repeated_if_the_next_subscribe_was_never_sent(is_under_way: bool) -> None:
    world = World()
    left(world, await world.subscribe({}))
    if is_under_way:
        unsubscribing = asyncio.create_task(world.subscriber.unsubscribe(["/a"]))
        await asyncio.sleep(0)
        later = subscribed(world.router, "/a")
        unsubscribing.cancel()
        await asyncio.wait([unsubscribing])
    else:
        later = subscribed(world.router, "/a")
    left(world, later)
    await world.subscriber.catch_up()
    assert world.unsubscribed == ["/a"]


async def test_a_subscribe_whose_call_is_cancelled_is_unsubscribed() -> None:
    """The server may have it: it would send messages that no one reads."""
    world = World()
    subscription = Subscription(
        "/a", bound=9, overflow=Overflow.HOLD, release=no_release, on_room=world.router.made_room
    )
    asking = asyncio.create_task(world.subscriber.subscribe(world.router.add(subscription, None)))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    left(world, subscription)
    await world.subscriber.catch_up()
    assert (world.asked, world.unsubscribed) == ([], ["/a"])


async def test_one_that_asks_for_no_past_never_does() -> None:
    world = World()
    await world.subscribe({"position": place("5")}, history=1)
    world.deliver("6")
    await world.renew({})
    assert world.asked == [{"history": {"numEntries": 1}}] * 2


@pytest.mark.parametrize("told", [{}, {"position": 5, "recovered": "yes"}, {"position": {"/a": 5, "/b": {"id": 5}}}])
async def test_a_server_that_answers_oddly_does_no_harm(told: Fields) -> None:
    world = World()
    subscription = await world.subscribe(told, since=place("5"))
    world.deliver("6")
    await anext(subscription)
    assert subscription.recovered is None
    assert "/a" not in subscription.position


async def test_subscriptions_of_one_channel_have_the_same_options() -> None:
    world = World()
    first = await world.subscribe({"position": place("5")}, group="cooks")
    assert (await world.subscribe({}, group="cooks")).position == first.position
    assert len(world.asked) == 1
    for options in ({}, {"group": "waiters"}):
        with pytest.raises(ValueError, match="other options"):
            await world.subscribe({}, **options)
    await world.subscribe({}, channel="/b", group="waiters")


async def test_the_notice_of_the_end_is_the_last_message_of_its_subscriptions() -> None:
    world = World()
    exact, wild = await world.subscribe({}), await world.subscribe({}, channel="/*")
    world.deliver("1")
    world.deliver("2", state="ERASED")
    assert [(message.id, message.is_erased) async for message in exact] == [("1", False), ("2", True)]
    assert (exact.is_ended, wild.is_ended, wild.queued) == (True, False, 2)
    await world.subscribe({})
    assert world.asked == [None] * 3  # the server is asked again


async def test_what_comes_after_the_notice_is_read_before_it() -> None:
    world = World()
    exact = await world.subscribe({})
    world.deliver("1")
    world.deliver("9", state="ERASED")
    world.deliver("2")
    world.deliver("9", state="ERASED")
    world.deliver("3")
    assert not exact.is_ended
    assert [message.id async for message in exact] == ["1", "2", "3", "9"]
    assert exact.is_ended


async def test_a_full_queue_takes_the_notice_all_the_same() -> None:
    world = World()
    exact = await world.subscribe({})
    for number in range(exact.bound):
        world.deliver(str(number))
    world.deliver("erased", state="ERASED")
    assert [message.is_erased async for message in exact] == [False] * exact.bound + [True]


async def test_a_new_subscription_does_not_share_its_messages_with_one_that_ends() -> None:
    world = World()
    former = await world.subscribe({})
    world.deliver("1")
    world.deliver("2", state="ERASED")
    latter = await world.subscribe({})
    world.deliver("3")
    assert [message.id async for message in former] == ["1", "2"]
    assert (await anext(latter)).id == "3"
    world.router.end(None)
    assert latter.is_ended


async def test_the_end_of_the_session_ends_one_whose_notice_was_not_read() -> None:
    world = World()
    exact = await world.subscribe({})
    world.deliver("1", state="ERASED")
    world.router.end(None)
    assert exact.is_ended
    world.deliver("2")
    assert [message.id async for message in exact] == ["1"]


async def test_listeners_hear_what_nobody_subscribed_to() -> None:
    world = World()
    listener = Subscription("/**", bound=1, overflow=Overflow.HOLD, release=no_release, on_room=world.router.made_room)
    world.router.add_listener(listener)
    subscription = await world.subscribe({})
    world.deliver("1")
    world.deliver("2", channel="/service/mail", subscription="__subId:PtP")
    assert (subscription.queued, listener.queued, len(world.asked)) == (1, 2, 1)
    assert not world.router.has_room([{"channel": "/b", "data": 1}])
    world.router.remove_listener(listener)
    world.router.remove_listener(listener)
    assert world.router.has_room([{"channel": "/b", "data": 1}])
    world.router.add_listener(listener)
    world.router.end(None)
    assert listener.is_ended


def test_a_message_tells_what_the_server_told() -> None:
    usual = Message("/a", 1, {"channel": "/a", "data": 1})
    assert (usual.priority, usual.life_time, usual.remaining_life, usual.state) == (5, None, None, "OK")
    assert (usual.subscription, usual.is_addressed, usual.is_erased) == ("/a", False, False)
    assert (usual.reply_to, usual.backlog, usual.received_ns) == (None, None, None)
    update = {
        "priority": 9,
        "lifeTime": 5000,
        "remainingLife": 4000,
        "subscription": "__subId:PtP",
        "rcvTimestamp": "1795190671003112001",
        "queue": {"index": 1, "size": 7},
        "replyTo": "/ret/a/3000000",
    }
    told = Message("/a", 1, {"channel": "/a", "data": 1, "ext": {"update": update}})
    assert (told.priority, told.life_time, told.remaining_life) == (9, 5, 4)
    assert (told.subscription, told.is_addressed) == ("__subId:PtP", True)
    assert (told.reply_to, told.backlog, told.received_ns) == ("/ret/a/3000000", (1, 7), 1795190671003112001)
    assert Message("/a", 1, {"ext": {"replyTo": "/ret/b"}}).reply_to == "/ret/b"
    odd = dict.fromkeys(update, "?") | {"queue": {"index": "1"}, "replyTo": 5, "subscription": 5}
    strange = Message("/a", 1, {"ext": {"update": odd}})
    assert (strange.priority, strange.life_time, strange.remaining_life) == (5, None, None)
    assert (strange.reply_to, strange.backlog, strange.received_ns) == (None, None, None)
    assert strange.subscription == "/a"


def test_an_interest_begins_nowhere() -> None:
    assert not Interest("/a", None).progress


def test_subscribe_options_are_those_of_the_table() -> None:
    assert SubscribeOptions.__annotations__.keys() == SUBSCRIBE.wire_names.keys() | HISTORY.wire_names.keys()
