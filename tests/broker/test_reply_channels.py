"""Reply channels, `/ret/<ID>/<LDDDDDD>`: whose they are, who may answer, and what survives."""

import re
from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.security.grants import OPERATOR
from crewel.security.policy import GRANT, Deny, OpenPolicy
from tests.broker.stored_world import MakeStored, Receiver
from tests.broker.test_events import gathering, group
from tests.broker.world import Client, MakeWorld, World, data_of


class Strict(OpenPolicy):
    """Grants nothing but handshakes."""

    def can_create(self, *question: Any) -> bool:
        return False

    can_subscribe = can_publish = can_create


class Permissive(OpenPolicy):
    """Grants everything that it is asked."""

    def can_create(self, *question: Any) -> bool:
        return True

    can_subscribe = can_publish = can_create


def ruled(policy: OpenPolicy, verdict: Any) -> Service:
    service = Service("ruled")
    service.policy = policy
    service.authorizer("/**")(lambda *question: verdict)
    return service


def come(world: World) -> tuple[Client, str]:
    """A client, and the ID that it was given."""
    client = Client(world)
    reply = client.handshake(ext={"session": {}})
    client.connect()
    return client, reply["ext"]["session"]["replyId"]


def ask(client: Client, channel: str, **fields: Any) -> Any:
    """Send one message and return its reply."""
    message = client.message(channel, **fields)
    request = client.send(message)
    client.world.settle()
    return next(each for each in request.received if each.get("id") == message["id"])


def subscribe(client: Client, name: str) -> Any:
    return ask(client, "/meta/subscribe", subscription=name)


class TestIds:
    def test_who_says_who_it_is_gets_one_that_nobody_else_has(self, world: World) -> None:
        ids = {come(world)[1] for _ in range(20)}
        assert len(ids) == 20
        assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)  # 128 bits

    def test_a_stock_client_gets_none(self, world: World) -> None:
        client = Client(world)
        assert "ext" not in client.handshake()
        assert client.session.reply_id == ""
        assert subscribe(client, "/ret//*")["error"] == "403::subscription_invalid"

    def test_a_reply_id_follows_a_take_over(self, world: World) -> None:
        client = Client(world)
        told = client.handshake(ext={"session": {"name": "joe/1"}})["ext"]["session"]
        assert subscribe(client, f"/ret/{told['replyId']}/*")["successful"]
        newcomer = Client(world)
        again = newcomer.handshake(ext={"session": {"resume": told["resume"]}})["ext"]["session"]
        assert (again["reconnected"], again["replyId"]) == (True, told["replyId"])
        assert newcomer.session.subscriptions == {f"/ret/{told['replyId']}/*"}

    def test_a_reply_id_follows_a_take_over_in_the_store_and_a_restart(self, make_stored: MakeStored) -> None:
        world = make_stored()
        joe = Receiver(world).started(name="joe/1", persistent=True)
        reply_id = joe.login["replyId"]
        joe.subscribe(f"/ret/{reply_id}/*")
        world.crash()
        again = make_stored(prefix=world.prefix)
        session = again.broker.addressing.names.find("client/joe/1")
        assert session is not None
        assert session.reply_id == reply_id
        assert session.subscriptions == {f"/ret/{reply_id}/*"}
        newcomer = Receiver(again).taking_over(joe)
        assert newcomer.login["replyId"] == reply_id
        again.crash()
        third = make_stored(prefix=world.prefix)
        assert Receiver(third).taking_over(newcomer).login["replyId"] == reply_id

    def test_a_session_of_an_earlier_version_gets_one_when_it_is_taken_over(self, make_stored: MakeStored) -> None:
        world = make_stored()
        joe = Receiver(world).started(name="joe/1")
        joe.session.reply_id = ""
        newcomer = Receiver(world).taking_over(joe)
        assert newcomer.session.reply_id == newcomer.login["replyId"] != ""


class TestSubscribing:
    def test_the_owner_hears_answers_and_only_those_to_itself(self, world: World) -> None:
        joe, mine = come(world)
        ann, hers = come(world)
        assert subscribe(joe, f"/ret/{mine}/*")["successful"]
        assert subscribe(ann, f"/ret/{hers}/*")["successful"]
        assert ask(ann, f"/ret/{mine}/3000001", data="for joe")["successful"]
        assert data_of(joe.connect().answer) == ["for joe"]
        assert not ann.session.mailbox._queue

    def test_the_owner_may_name_one_of_them(self, world: World) -> None:
        joe, mine = come(world)
        assert subscribe(joe, f"/ret/{mine}/3000001")["successful"]
        ann, _ = come(world)
        ask(ann, f"/ret/{mine}/3000002", data="another")
        ask(ann, f"/ret/{mine}/3000001", data="this")
        assert data_of(joe.connect().answer) == ["this"]

    @pytest.mark.parametrize("name", ["/ret/{}/*", "/ret/{}/3000001"])
    @pytest.mark.parametrize("services", [[], [lambda: ruled(Permissive(), GRANT)]])
    def test_nobody_else_hears_them_whatever_the_policy_grants(
        self, make_world: MakeWorld, services: Any, name: str
    ) -> None:
        world = make_world(services=[make() for make in services])
        _, owners = come(world)
        stranger, _ = come(world)
        stock = Client(world)
        stock.handshake()
        for client in (stranger, stock):
            reply = subscribe(client, name.format(owners))
            assert reply["error"] == "403:denied_by_security_policy:subscribe_denied"
            assert not client.session.subscriptions

    @pytest.mark.parametrize("asked", [{}, {"group": "spies"}, {"history": {"numEntries": 5}}, {"since": {}}])
    def test_asking_for_more_channels_does_not_help(self, world: World, asked: dict[str, Any]) -> None:
        _, owners = come(world)
        stranger, _ = come(world)
        for name in (f"/ret/{owners}/*", f"/ret/{owners}/3000001"):
            reply = ask(stranger, "/meta/subscribe", subscription=name, ext={"subscribe": asked})
            assert not reply["successful"]
            assert not stranger.session.subscriptions

    def test_an_operator_neither(self, world: World) -> None:
        _, owners = come(world)
        stranger, _ = come(world)
        stranger.session.authenticate(OPERATOR)
        assert not subscribe(stranger, f"/ret/{owners}/*")["successful"]

    @pytest.mark.parametrize("name", ["/ret/**", "/ret/*", "/ret/{}/**", "/ret/{}", "/ret/{}/x", "/ret/{}/3/3"])
    def test_no_other_name_below_ret_can_be_subscribed_to(self, world: World, name: str) -> None:
        joe, mine = come(world)
        assert subscribe(joe, name.format(mine))["error"].startswith("403:denied_by_security_policy:")
        assert not joe.session.subscriptions

    @pytest.mark.parametrize("pattern", ["/**", "/*"])
    def test_a_wide_wildcard_hears_none(self, world: World, pattern: str) -> None:
        joe, mine = come(world)
        spy = Client(world).joined(pattern)
        ask(joe, f"/ret/{mine}/3000001", data=1)
        assert not spy.session.mailbox._queue

    def test_a_service_that_listens_to_everything_hears_none(self, make_world: MakeWorld) -> None:
        heard: list[Any] = []
        service = Service("spy")
        service.listener("/**")(lambda session, message: heard.append(message.data))
        service.subscription("/**")(lambda message: heard.append(message.data))
        world = make_world(services=[service])
        joe, mine = come(world)
        ask(joe, f"/ret/{mine}/3000001", data=1)
        assert heard == []


class TestAnswering:
    @pytest.mark.parametrize("services", [[], [lambda: ruled(Strict(), Deny("no"))]])
    def test_everybody_may_whatever_the_policy_says(self, make_world: MakeWorld, services: Any) -> None:
        world = make_world(services=[make() for make in services])
        joe, mine = come(world)
        subscribe(joe, f"/ret/{mine}/*")
        stock = Client(world)
        stock.handshake()
        assert ask(stock, f"/ret/{mine}/3000001", data=1)["successful"]
        assert data_of(joe.connect().answer) == [1]

    def test_an_id_that_nobody_has_is_heard_by_nobody(self, world: World) -> None:
        stock = Client(world).joined()
        assert ask(stock, "/ret/nobody/3000001", data=1)["successful"]

    @pytest.mark.parametrize("rest", ["", "x", "300000", "03000001", "3000001/x", "3000001x", "x/3000001"])
    def test_a_malformed_channel_is_refused(self, world: World, rest: str) -> None:
        joe, mine = come(world)
        reply = ask(joe, f"/ret/{mine}/{rest}", data=1)
        assert reply["error"] == "403:denied_by_security_policy:channel_create_denied"

    def test_all_of_them_cannot_be_answered_at_once(self, world: World) -> None:
        joe, mine = come(world)
        assert ask(joe, f"/ret/{mine}/*", data=1)["error"] == "405::channel_invalid"

    def test_ret_itself_is_a_channel_like_others(self, world: World) -> None:
        client = Client(world).joined("/ret")
        assert ask(client, "/ret", data=1)["successful"]

    def test_the_server_remembers_no_channel_for_an_answer(self, world: World) -> None:
        joe, mine = come(world)
        subscribe(joe, f"/ret/{mine}/*")
        before = list(world.broker.addressing.channels)
        for serial in range(10):
            assert ask(joe, f"/ret/{mine}/{3_000_000 + serial}", data=1)["successful"]
        assert list(world.broker.addressing.channels) == before

    def test_answers_are_counted_together_and_tell_no_id(self, world: World) -> None:
        joe, mine = come(world)
        subscribe(joe, f"/ret/{mine}/*")
        world.broker.publishing.broadcaster._events = events = gathering(world, "all")
        for serial in range(3):
            ask(joe, f"/ret/{mine}/{3_000_000 + serial}", data=1)
        traffic = [each for each in group(events)["events"] if each["type"] == "traffic"]
        assert traffic == [{"type": "traffic", "channel": "/ret/**", "published": 3, "delivered": 3}]

    @pytest.mark.parametrize("qos", [{"destination": [{"to": "client/joe"}]}, {"administrative": True}])
    def test_an_answer_does_nothing_but_answer(self, world: World, qos: dict[str, Any]) -> None:
        """No policy is asked about it: what a policy might deny must not be had by it."""
        joe, mine = come(world)
        reply = ask(joe, f"/ret/{mine}/3000001", data=1, ext={"publish": qos})
        assert reply["error"] == "400:publish:user.illegalArgument"

    @pytest.mark.parametrize("qos", [{"persistent": True}, {"history": {"maxEntries": 5}}, {"priority": 9}])
    def test_an_answer_is_never_stored(self, make_stored: MakeStored, qos: dict[str, Any]) -> None:
        world = make_stored()
        joe = Receiver(world).started(name="joe/1")
        mine = joe.login["replyId"]
        joe.subscribe(f"/ret/{mine}/*")
        assert ask(joe, f"/ret/{mine}/3000001", data=1, ext={"publish": qos})["successful"]
        world.commit()
        assert not world.wait(world.store.reader.xlen(world.store.keys.log))
        (answer,) = joe.take()
        assert answer["data"] == 1
        assert "persistent" not in answer["ext"]["update"]
