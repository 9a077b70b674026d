"""Limits of one client, one address and one subject: what is refused, with which words, and that others notice nothing."""

from collections.abc import Iterator

import pytest

from crewel.security.grants import OPERATOR
from tests.broker.world import Client, MakeWorld, Request, World

ELSEWHERE = "198.51.100.9"


class From(Request):
    """A request from an address of the test's own."""

    address = "192.0.2.1"
    slowed_s = 0.0

    @property
    def remote(self) -> str | None:
        return self.address

    def slow_down(self, seconds: float) -> None:
        self.slowed_s = seconds


@pytest.fixture
def make_world() -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(*sets: str) -> World:
        made.append(World(*(f"limits.{each}" for each in sets)))
        return made[-1]

    yield make
    for world in made:
        world.close()


def shake(world: World, address: str = "192.0.2.1", **fields: object) -> tuple[dict[str, object], From]:
    request = From()
    request.address = address
    world.receive(request, {"channel": "/meta/handshake", "id": "1", "version": "1.0", **fields})
    world.settle()
    return request.answer[0], request


def test_a_handshake_beyond_the_rate_is_told_when_to_come_back(make_world: MakeWorld) -> None:
    world = make_world("handshakes_per_s=2", "handshakes_burst=3")
    assert all(shake(world)[0]["successful"] for _ in range(3))
    reply, request = shake(world, ext={"session": {}})
    assert reply["successful"] is False
    assert reply["error"] == "429:limits.handshakes_per_s:resource.temporary.unavailable"
    advice = reply["advice"]
    assert isinstance(advice, dict)
    assert advice["reconnect"] == "handshake"
    assert 1000 <= advice["interval"] <= 2000
    told = reply["ext"]["session"]  # type: ignore[index]
    assert told["errorCode"] == "resource.temporary.unavailable"
    assert told["retryAfter"] == advice["interval"]
    assert "limits.handshakes_per_s" in told["message"]
    assert request.slowed_s > 0
    assert world.broker.metrics.limited == {"handshakes_per_s": 1}
    assert shake(world, ELSEWHERE)[0]["successful"], "another address notices nothing"
    world.advance(0.5)
    assert shake(world)[0]["successful"], "and the rate lets the next one through"


def test_rates_do_not_hold_for_an_exempt_address_and_caps_do(make_world: MakeWorld) -> None:
    world = make_world("handshakes_per_s=1", "handshakes_burst=1", "max_sessions_per_address=3")
    assert all(shake(world, "127.0.0.1")[0]["successful"] for _ in range(3))
    reply, _ = shake(world, "127.0.0.1")
    assert reply["error"] == "429:limits.max_sessions_per_address:resource.exhaust"


def test_rates_hold_for_loopback_where_nothing_is_exempt(make_world: MakeWorld) -> None:
    world = make_world("handshakes_per_s=1", "handshakes_burst=1", "exempt_addresses=")
    assert shake(world, "127.0.0.1")[0]["successful"]
    assert not shake(world, "127.0.0.1")[0]["successful"]


def test_sessions_of_an_address_are_counted_while_they_live(make_world: MakeWorld) -> None:
    world = make_world("max_sessions_per_address=2")
    first, second = Client(world).joined(), Client(world).joined("/a")
    refused = Client(world).handshake()
    assert refused["error"] == "429:limits.max_sessions_per_address:resource.exhaust"
    assert refused["advice"]["reconnect"] == "handshake"
    assert shake(world, ELSEWHERE)[0]["successful"]
    second.say("/meta/disconnect")
    assert Client(world).handshake()["successful"]
    assert not Client(world).handshake()["successful"]
    world.sweep_after(11)  # the silent ones expire
    assert not first.is_known
    assert Client(world).handshake()["successful"]


def test_sessions_in_all_are_bounded(make_world: MakeWorld) -> None:
    world = make_world("max_sessions=2")
    assert shake(world)[0]["successful"]
    assert shake(world, ELSEWHERE)[0]["successful"]
    reply, _ = shake(world, "198.51.100.10")
    assert reply["error"] == "429:limits.max_sessions:resource.exhaust"
    assert len(world.broker.sessions.by_id) == 2


def test_a_login_beyond_a_cap_may_be_tried_again(make_world: MakeWorld) -> None:
    world = make_world("max_sessions=1")
    assert shake(world)[0]["successful"]
    reply, _ = shake(world, ext={"session": {"name": "joe/1"}})
    assert reply["error"] == "429:limits.max_sessions:resource.exhaust"
    assert reply["advice"]["reconnect"] == "handshake"  # type: ignore[index]


def test_a_session_that_is_taken_over_needs_no_room(make_world: MakeWorld) -> None:
    world = make_world("max_sessions=1")
    reply, _ = shake(world, ext={"session": {"name": "joe/1"}})
    resume = reply["ext"]["session"]["resume"]  # type: ignore[index]
    reply, _ = shake(world, ELSEWHERE, ext={"session": {"name": "joe/1", "resume": resume}})
    assert reply["successful"]
    assert world.broker.admission.limits.account_of("192.0.2.1").sessions == 0
    assert world.broker.admission.limits.account_of(ELSEWHERE).sessions == 1


def test_a_subject_has_no_more_sessions_than_the_server_allows_whatever_its_logins_say(make_world: MakeWorld) -> None:
    world = make_world("max_sessions_per_subject=2")
    for number in (1, 2):
        asked = {"name": f"joe/{number}", "maxSessions": 1000}
        assert shake(world, ext={"session": asked})[0]["successful"]
    reply, _ = shake(world, ext={"session": {"name": "joe/3", "maxSessions": 1000}})
    assert reply["error"] == "403:client/joe:user.configuration.maxSession"
    assert shake(world, ext={"session": {"name": "jack/1"}})[0]["successful"]


def test_a_publish_beyond_the_rate_is_refused_and_says_when_to_repeat_it(make_world: MakeWorld) -> None:
    world = make_world("publishes_per_s=10", "publishes_burst=20")
    client, hearer = Client(world).joined(), Client(world).joined("/a")
    replies = [client.publish("/a", n, ext={"publish": {}}) for n in range(25)]
    assert [reply["successful"] for reply in replies] == [True] * 20 + [False] * 5
    refused = replies[-1]
    assert refused["error"] == "429:limits.publishes_per_s:resource.temporary.unavailable"
    assert refused["ext"]["publish"]["retryAfter"] == 100
    assert client.say("/service/x", data=1)["successful"] is False, "what is for the server counts as well"
    assert len(hearer.session.mailbox._queue) == 20
    world.advance(0.31)
    assert [client.publish("/a", n)["successful"] for n in range(4)] == [True, True, True, False]


BATCH = 20
GARBAGE = {
    "of no object": lambda _: 7,
    "of no channel": lambda client: client.message("bad"),
    "of a pattern": lambda client: client.message("/a/*", data=1),
    "of an unknown session": lambda client: {**client.message("/a", data=1), "clientId": "unknown"},
    "to connect": lambda client: client.message("/meta/connect"),
    "to unsubscribe": lambda client: client.message("/meta/unsubscribe", subscription="/a"),
    "to an unknown meta channel": lambda client: client.message("/meta/nonsense"),
}
"""Messages that are no publishes: the makers of one."""


@pytest.mark.parametrize("kind", GARBAGE)
def test_what_is_in_a_long_batch_counts_whatever_it_is(make_world: MakeWorld, kind: str) -> None:
    world = make_world("publishes_per_s=10", "publishes_burst=70")
    client, make = Client(world).joined(), GARBAGE[kind]
    for batch in range(5):
        peer = From(client.browser)
        first = client.message("/meta/subscribe", subscription="/a")  # it says whose the batch is
        world.receive(peer, first, *(make(client) for _ in range(BATCH - 1)))
        world.settle()
        assert len([each for each in peer.answer if "successful" in each]) == BATCH
        assert (peer.slowed_s > 0) is (batch >= 3), batch
    refused = client.publish("/a", 1)
    assert refused["error"] == "429:limits.publishes_per_s:resource.temporary.unavailable"
    assert shake(world, ELSEWHERE)[0]["successful"]
    world.advance(1.1)
    assert client.publish("/a", 1)["successful"]


def test_messages_of_clients_without_a_session_count_for_their_address(make_world: MakeWorld) -> None:
    world = make_world("publishes_per_s=1", "publishes_burst=12")
    for expected in (False, True):
        peer = From()
        world.receive(peer, *({"channel": "/a", "id": str(n), "data": n} for n in range(10)))
        assert {each["error"] for each in peer.answer} == {"402::session_unknown"}
        assert (peer.slowed_s > 0) is expected
    client = Client(world).joined()
    assert not client.publish("/a", 1)["successful"]


def test_sessions_of_one_address_share_its_rate(make_world: MakeWorld) -> None:
    world = make_world("publishes_per_s=10", "publishes_burst=64")
    clients = [Client(world).joined() for _ in range(4)]
    accepted = sum(client.publish("/a", n)["successful"] for n in range(40) for client in clients)
    assert 64 - 3 * 2 <= accepted <= 64, "but for what each has drawn and not used"


def test_a_subject_has_one_rate_wherever_it_is(make_world: MakeWorld) -> None:
    world = make_world("publishes_per_s=1", "publishes_burst=10")
    accepted = 0
    for number, address in ((1, "192.0.2.1"), (2, ELSEWHERE)):
        reply, request = shake(world, address, ext={"session": {"name": f"joe/{number}"}})
        for n in range(10):
            publish = From(request.browser)
            publish.address = address
            world.receive(publish, {"channel": "/a", "id": str(n), "clientId": reply["clientId"], "data": n})
            accepted += publish.answer[0]["successful"]
    assert accepted == 10


def test_operators_have_no_rate(make_world: MakeWorld) -> None:
    world = make_world("publishes_per_s=1", "publishes_burst=1", "max_sessions_per_address=1")
    client = Client(world).joined()
    client.session.authenticate(OPERATOR)
    assert all(client.publish("/a", n)["successful"] for n in range(50))


def test_a_change_of_the_settings_holds_at_once(make_world: MakeWorld) -> None:
    world = make_world("publishes_per_s=1", "publishes_burst=1")
    client = Client(world).joined()
    assert [client.publish("/a", n)["successful"] for n in range(2)] == [True, False]
    world.broker.settings.limits.publishes_per_s = 0
    assert all(client.publish("/a", n)["successful"] for n in range(50))


def test_subscriptions_are_bounded_for_a_session_an_address_and_the_server(make_world: MakeWorld) -> None:
    world = make_world("max_subscriptions_per_session=3", "max_subscriptions_per_address=5", "max_subscriptions=8")
    first, second = Client(world).joined("/a", "/b"), Client(world).joined("/a", "/b")
    reply = first.say("/meta/subscribe", subscription=["/c", "/d"])
    assert reply["error"] == "429:limits.max_subscriptions_per_session:resource.exhaust"
    assert first.session.subscriptions == {"/a", "/b"}, "none of the request is subscribed"
    first.subscribe("/c")
    reply = second.say("/meta/subscribe", subscription="/c", ext={"subscribe": {}})
    assert reply["error"] == "429:limits.max_subscriptions_per_address:resource.exhaust"
    assert reply["ext"]["subscribe"]["errorCode"] == "resource.exhaust"
    assert first.say("/meta/unsubscribe", subscription="/c")["successful"]
    second.subscribe("/c")
    assert world.broker.addressing.channels.subscriptions == 5
    first.say("/meta/disconnect")
    assert world.broker.addressing.channels.subscriptions == 3
    assert world.broker.admission.limits.account_of("192.0.2.1").subscriptions == 3
    world.broker.settings.limits.max_subscriptions = 3
    reply = Client(world).joined().say("/meta/subscribe", subscription="/x")
    assert reply["error"] == "429:limits.max_subscriptions:resource.exhaust"


def test_subscribes_beyond_the_rate_are_refused(make_world: MakeWorld) -> None:
    world = make_world("subscribes_per_s=10", "subscribes_burst=5")
    client = Client(world).joined("/a", "/b", "/c")
    reply = client.say("/meta/subscribe", subscription=["/d", "/e", "/f"])
    assert reply["error"] == "429:limits.subscribes_per_s:resource.temporary.unavailable"
    world.advance(0.1)
    client.subscribe("/d")


def test_channels_that_clients_make_are_bounded_and_refused_ones_leave_nothing(make_world: MakeWorld) -> None:
    world = make_world("max_channels=3")
    client = Client(world).joined()
    replies = [client.publish(f"/c/{n}", n) for n in range(5)]
    assert [reply["successful"] for reply in replies] == [True] * 3 + [False] * 2
    assert replies[-1]["error"] == "429:limits.max_channels:resource.exhaust"
    assert len(world.broker.topics.table.known) == 3
    assert "/c/4" not in world.broker.addressing.channels
    assert client.publish("/c/0", 0)["successful"]
    assert not client.publish("/c/9", 1, ext={"publish": {"priority": 7}})["successful"]
    world.broker.publish("/own", 1)  # the server itself has no limit
    client.session.authenticate(OPERATOR)
    world.broker.settings.limits.max_channels = 0
    assert client.publish("/c/9", 1)["successful"]


def test_new_channels_of_one_address_have_a_rate(make_world: MakeWorld) -> None:
    world = make_world("channels_per_s=1", "channels_burst=2")
    client = Client(world).joined()
    assert [client.publish(f"/c/{n}", n)["successful"] for n in range(3)] == [True, True, False]
    assert client.publish("/c/1", 1)["successful"]


def test_accounts_that_have_nothing_are_forgotten(make_world: MakeWorld) -> None:
    world = make_world("handshakes_per_s=1", "handshakes_burst=5")
    for number in range(200):
        reply, request = shake(world, f"198.51.100.{number}")
        world.post({"channel": "/meta/disconnect", "id": "2", "clientId": reply["clientId"]}, browser=request.browser)
    assert len(world.broker.admission.limits.addresses) == 200
    world.sweep_after(2)
    world.sweep_after(2)
    assert len(world.broker.admission.limits.addresses) == 0


def test_the_log_speaks_of_an_address_once_a_minute(make_world: MakeWorld, caplog: pytest.LogCaptureFixture) -> None:
    world = make_world("handshakes_per_s=1", "handshakes_burst=1")
    for _ in range(10):
        shake(world)
    assert [record.message for record in caplog.records] == [
        "a client is refused: too many handshakes from this address"
    ]
    assert caplog.records[0].__dict__["limit"] == "limits.handshakes_per_s"
