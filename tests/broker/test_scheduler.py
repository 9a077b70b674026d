"""Scheduled messages: accepted now, and published when they are due, as if they were published then."""

from collections.abc import Callable
from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.broker.publishing.cancel_service import ABSENT, CANCEL_SERVICE
from crewel.broker.publishing.scheduler import AT_ONCE, RETRY_MS
from crewel.broker.services import Service
from crewel.errors import IllegalArgument
from crewel.security.grants import Grants
from crewel.storage import scheduled_messages
from crewel.storage.scheduled_messages import ScheduledMessage
from tests.broker.stored_world import StoredWorld
from tests.broker.world import Client, World, data_of, reply_to

MakeStored = Callable[..., StoredWorld]
LATER: dict[str, Any] = {"persistent": True, "deliverAfter": 60_000}
JOE = {"ack": True, "session": {"name": "client/joe/1", "update": True}}


def publish(client: Client, data: Any = 1, channel: str = "/a", **qos: Any) -> Fields:
    return client.publish(channel, data, ext={"publish": {**LATER, **qos}})


def pass_time(world: StoredWorld, seconds: float = 61) -> None:
    world.broker.runtime.clock.advance(seconds)
    look(world)


def look(world: StoredWorld) -> None:
    world.wait(world.broker.publishing.scheduler.publish_due())
    world.settle()


def listed(world: StoredWorld) -> list[ScheduledMessage]:
    return world.wait(scheduled_messages.page(world.store)).messages


def received(client: Client) -> list[Any]:
    request = client.connect()
    client.world.settle()
    return data_of([each for payload in request.payloads for each in payload if "data" in each])


class TestTaken:
    def test_the_reply_names_the_message_and_its_time(self, stored: StoredWorld) -> None:
        before = int(stored.broker.runtime.clock() * 1000)
        reply = publish(Client(stored).joined())
        told = reply["ext"]["publish"]
        assert reply["successful"]
        assert told["state"] == "OK"
        assert before + 60_000 <= told["deliverAt"] <= int(stored.broker.runtime.clock() * 1000) + 60_000
        (found,) = listed(stored)
        assert (found.id, found.message.due_ms, found.message.channel) == (told["id"], told["deliverAt"], "/a")

    def test_a_message_is_published_when_it_is_due_and_not_before(self, stored: StoredWorld) -> None:
        hearer = Client(stored).joined("/a", ext={"ack": True})
        scheduled = publish(Client(stored).joined())["ext"]["publish"]
        pass_time(stored, 59)
        assert stored.broker.metrics.stored_publishes == 0
        pass_time(stored, 2)
        assert received(hearer) == [1]
        assert listed(stored) == []
        look(stored)
        assert stored.broker.metrics.stored_publishes == 1
        assert scheduled["id"]

    def test_those_who_subscribe_meanwhile_get_it_and_those_who_have_left_do_not(self, stored: StoredWorld) -> None:
        left = Client(stored).joined("/a")
        publish(Client(stored).joined())
        left.say("/meta/unsubscribe", subscription="/a")
        came = Client(stored).joined("/a")
        pass_time(stored)
        assert received(came) == [1]
        assert received(left) == []

    def test_a_time_that_has_passed_is_now(self, stored: StoredWorld) -> None:
        hearer = Client(stored).joined("/a")
        reply = Client(stored).joined().publish("/a", 1, ext={"publish": {"persistent": True, "deliverAt": 1}})
        assert reply["ext"]["publish"]["deliverAt"] == 1
        look(stored)
        assert received(hearer) == [1]

    def test_messages_are_published_in_the_order_of_their_times(self, stored: StoredWorld) -> None:
        hearer, publisher = Client(stored).joined("/a"), Client(stored).joined()
        for data, after in ((3, 30_000), (1, 10_000), (2, 20_000)):
            publish(publisher, data, deliverAfter=after)
        pass_time(stored)
        assert received(hearer) == [1, 2, 3]

    def test_more_than_one_portion_is_published_at_once(self, stored: StoredWorld) -> None:
        publisher = Client(stored).joined()
        publisher.send(*(publisher.message("/a", data=n, ext={"publish": LATER}) for n in range(AT_ONCE + 1)))
        pass_time(stored)
        assert stored.broker.metrics.stored_publishes == AT_ONCE + 1

    def test_receivers_see_the_id_that_the_publisher_was_given(self, stored: StoredWorld) -> None:
        joe = Client(stored).joined("/a", ext=JOE)
        told = publish(Client(stored).joined(), clientProperties={"n": 1}, priority=7)["ext"]["publish"]
        pass_time(stored)
        request = joe.connect(ext={"ack": 0})
        update = request.received[0]["ext"]["update"]
        assert update["clientProperties"] == {"n": 1, "__scheduledAs": told["id"]}
        assert update["priority"] == 7
        assert int(update["id"]) > int(told["id"])

    def test_lifetime_and_history_begin_when_it_is_published(self, stored: StoredWorld) -> None:
        publish(Client(stored).joined(), lifeTime=5000, history={"maxEntries": 3})
        assert stored.broker.topics.table.find("/a") is None
        pass_time(stored)
        topic = stored.broker.topics.table.find("/a")
        assert topic is not None
        assert topic.history_count == 1

    def test_a_number_is_published_as_it_was_written(self, stored: StoredWorld) -> None:
        hearer = Client(stored).joined("/a")
        publish(Client(stored).joined(), 2**60 + 1)
        pass_time(stored)
        assert received(hearer) == [2**60 + 1]

    def test_a_publisher_that_does_not_want_its_own_messages_does_not_get_it(self, stored: StoredWorld) -> None:
        joe = Client(stored).joined(ext=JOE)
        joe.say("/meta/subscribe", subscription="/a", ext={"subscribe": {"local": False}})
        hearer = Client(stored).joined("/a")
        publish(joe)
        pass_time(stored)
        assert received(hearer) == [1]
        assert joe.connect(ext={"ack": 0}).is_held

    def test_a_key_schedules_once(self, stored: StoredWorld) -> None:
        publisher = Client(stored).joined()
        first, again = (publish(publisher, key="k")["ext"]["publish"]["id"] for _ in range(2))
        assert first == again
        assert len(listed(stored)) == 1

    def test_services_can_schedule_and_hear(self, stored: StoredWorld) -> None:
        service, heard = Service("app"), []
        service.subscription("/a")(lambda delivery: heard.append(delivery.data))
        stored.broker.install([service])
        stored.broker.publish("/a", 1, qos=LATER)
        message_id = stored.wait(stored.broker.publish_stored("/a", 2, qos={"deliverAfter": 60_000}, key="k"))
        stored.settle()
        assert [each.id for each in listed(stored)][1] == message_id
        pass_time(stored)
        assert heard == [1, 2]


class TestOtherServers:
    def test_the_next_server_publishes_what_this_one_has_accepted(self, make_stored: MakeStored) -> None:
        first = make_stored()
        Client(first).joined("/a", ext=JOE)
        publish(Client(first).joined())
        first.crash()
        second = make_stored(prefix=first.prefix)
        pass_time(second)
        assert second.broker.metrics.stored_publishes == 1
        assert listed(second) == []

    def test_a_message_that_another_server_has_published_is_not_published_again(self, stored: StoredWorld) -> None:
        publish(Client(stored).joined())
        stored.broker.runtime.clock.advance(61)
        scheduler = stored.broker.publishing.scheduler
        due = stored.wait(scheduled_messages.due(stored.store, 2**50, 10))
        stored.wait(scheduler._publish(due))
        stored.wait(scheduler._publish(due))
        assert stored.broker.metrics.stored_publishes == 1


class TestRefused:
    @pytest.mark.parametrize(
        ("qos", "fault"),
        [
            ({"persistent": False}, "deliverAfter: needs `persistent`"),
            ({"deliverAt": 5}, "deliverAfter: must be left out: `deliverAt` is given"),
            ({"destination": {"to": "client/joe"}}, "deliverAfter: must be left out of a message with a destination"),
            ({"administrative": True}, "deliverAfter: must be left out: a topic is configured at once"),
            ({"deliverAfter": 2**50}, "deliverAfter: must be at most 31622400000 ms ahead"),
            ({"deliverAfter": -1}, "deliverAfter: must be a whole number, 0 or more"),
        ],
    )
    def test_what_cannot_be_done_is_refused(self, stored: StoredWorld, qos: dict[str, Any], fault: str) -> None:
        reply = publish(Client(stored).joined(), **qos)
        assert not reply["successful"]
        assert reply["ext"]["publish"]["errorCode"] == "user.illegalArgument"
        assert reply["ext"]["publish"]["message"].startswith(fault)
        assert listed(stored) == []

    def test_without_a_store(self, world: World) -> None:
        reply = Client(world).joined().publish("/a", 1, ext={"publish": LATER})
        assert reply["error"].startswith("503::")

    def test_an_answer_is_not_scheduled(self, stored: StoredWorld) -> None:
        reply = publish(Client(stored).joined(), channel="/ret/0123456789abcdef0123456789abcdef/3000001")
        assert "an answer is not scheduled" in reply["ext"]["publish"]["message"]

    def test_a_message_to_the_server_is_not_scheduled(self, stored: StoredWorld) -> None:
        assert not publish(Client(stored).joined(), channel="/service/x")["successful"]

    def test_a_service_that_sends_to_a_session_cannot_schedule(self, stored: StoredWorld) -> None:
        with pytest.raises(IllegalArgument, match="deliverAfter"):
            stored.wait(stored.broker.send("client/joe", "/a", 1, qos={"persistent": True, "deliverAfter": 5}))

    def test_an_account_has_at_most_so_many(self, make_stored: MakeStored) -> None:
        world = make_stored("limits.max_scheduled=1")
        publisher = Client(world).joined(ext=JOE)
        assert publish(publisher)["successful"]
        refused = publish(publisher)
        assert refused["error"] == "429:limits.max_scheduled:resource.exhaust"
        pass_time(world)
        assert publish(publisher)["successful"]


class TestRefusedWhenDue:
    def test_one_that_its_topic_refuses_stays_with_the_reason_and_holds_up_no_other(self, stored: StoredWorld) -> None:
        publisher, hearer = Client(stored).joined(), Client(stored).joined("/b")
        publish(publisher)
        publish(publisher, 2, channel="/b")
        once = {"persistent": True, "readonly": True, "history": {"maxEntries": 1}}
        publisher.publish("/a", 0, ext={"publish": once})
        pass_time(stored)
        assert received(hearer) == [2]
        (left,) = listed(stored)
        assert "readonly" in left.refusal
        stored.wait(stored.broker.topics.endings.erase("/a", force=True))
        pass_time(stored, RETRY_MS / 1000 - 1)
        assert len(listed(stored)) == 1
        pass_time(stored, 2)
        assert listed(stored) == []

    def test_an_operator_cancels_it(self, stored: StoredWorld) -> None:
        publish(Client(stored).joined())
        (found,) = listed(stored)
        scheduler = stored.broker.publishing.scheduler
        assert stored.wait(scheduler.cancel([found.id], "ann")) == 1
        pass_time(stored)
        assert stored.broker.metrics.stored_publishes == 0


def cancel(client: Client, message_id: Any) -> Fields:
    return client.publish(CANCEL_SERVICE, message_id)


def absent(message_id: Any) -> str:
    return f"400:{message_id}:{ABSENT}"


def ids(world: StoredWorld) -> list[str]:
    return [each.id for each in listed(world)]


class TestCancelledByItsPublisher:
    def test_once_and_never_published(self, stored: StoredWorld) -> None:
        joe = Client(stored).joined(ext=JOE)
        scheduled, number = (publish(joe)["ext"]["publish"]["id"] for _ in range(2))
        for message_id in (scheduled, int(number)):
            assert cancel(joe, message_id)["successful"] is True
            assert cancel(joe, message_id)["error"] == absent(message_id)
        pass_time(stored)
        assert stored.broker.metrics.stored_publishes == 0

    def test_what_has_been_published_is_absent(self, stored: StoredWorld) -> None:
        joe = Client(stored).joined()
        scheduled = publish(joe)["ext"]["publish"]["id"]
        pass_time(stored)
        assert cancel(joe, scheduled)["error"] == absent(scheduled)

    def test_what_another_account_has_scheduled_is_absent_too(self, stored: StoredWorld) -> None:
        joe, ann = (Client(stored).joined() for _ in range(2))
        for client, subject in ((joe, "joe"), (ann, "ann")):
            client.session.authenticate(Grants(subject=subject))
        publish(joe)
        Service.install(own := Service("own"), stored.broker)
        stored.wait(own.broker.publish_stored("/a", 1, qos={"deliverAfter": 60_000}))
        kept = ids(stored)
        assert len(kept) == 2
        for message_id in kept:
            assert cancel(ann, message_id)["error"] == absent(message_id)
        assert sorted(ids(stored)) == sorted(kept)
        assert [cancel(joe, each)["successful"] for each in kept].count(True) == 1
        assert len(ids(stored)) == 1

    @pytest.mark.parametrize("data", [None, "", "x", "1-0", 1.5, -1, True, ["1"], {"id": "1"}, "1" * 17])
    def test_what_is_no_id_is_refused(self, stored: StoredWorld, data: Any) -> None:
        assert cancel(Client(stored).joined(), data)["error"] == "400:data:user.illegalArgument"

    def test_without_a_store(self, world: World) -> None:
        client = Client(world).joined()
        peer = client.send(message := client.message(CANCEL_SERVICE, data="1"))
        world.settle()
        assert reply_to(peer, message["id"])["error"] == "503::resource.unavailable"
