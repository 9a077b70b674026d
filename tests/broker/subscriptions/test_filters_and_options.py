"""What a session wants of a channel: filters, its own messages, the newest only, one way; beside each other, and again."""

from __future__ import annotations

from typing import Any

import pytest

from crewel.bayeux.message import Fields
from crewel.broker.subscriptions.options import Budgets
from crewel.qos.filters import Filter
from tests.broker.stored_world import MakeStored, Receiver, StoredWorld, data, ok, origin
from tests.broker.subscriptions.asking import RULES
from tests.broker.world import Client, Socket, data_of


def ask(client: Client, channel: str, **qos: Any) -> Fields:
    return client.say("/meta/subscribe", subscription=channel, ext={"subscribe": qos})


def publish(world: StoredWorld, channel: str, *values: Any) -> None:
    """One half of them stored, the other not: what a session wants is the same."""
    for number, value in enumerate(values):
        if number % 2:
            world.broker.publish(channel, value)
        else:
            world.wait(world.broker.publish_stored(channel, value))
        world.settle()


class TestFilters:
    @pytest.mark.parametrize("socket", [True, False])
    def test_only_what_it_is_true_for_comes_to_a_plain_session(self, world: StoredWorld, socket: bool) -> None:
        client = Client(world, Socket() if socket else None).joined()
        assert ask(client, "/a", filter="data.n > `2`")["successful"]
        publish(world, "/a", *({"n": n} for n in range(5)))
        came = client.socket.take() if client.socket else client.connect(advice={"timeout": 0}).answer
        assert data_of(came) == [{"n": 3}, {"n": 4}]

    def test_only_what_it_is_true_for_comes_to_one_that_acknowledges(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        ask(receiver, "/a", filter="data.n > `2`")
        publish(world, "/a", *({"n": n} for n in range(6)))
        assert data(receiver.take()) == [{"n": n} for n in (3, 4, 5)]
        receiver.take()
        reasons = [reason for _, reason, _ in world.ended()]
        assert sorted(reasons) == ["filtered", "filtered", "settled"]  # the stored ones: 0, 2 and 4

    def test_a_filter_sees_the_channel_the_sender_and_the_properties(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        expression = "channel == '/a/b' && sender == 'client/ann/1' && clientProperties.x == 'y'"
        ask(receiver, "/a/*", filter=expression)
        ann = Receiver(world).started(name="client/ann/1")
        for stored in (True, False):
            qos = {"persistent": stored, "clientProperties": {"x": "y"}}
            ann.publish("/a/b", 1, ext={"publish": qos})
            ann.publish("/a/c", 2, ext={"publish": qos})
            ann.publish("/a/b", 3, ext={"publish": {"persistent": stored}})
            world.broker.publish("/a/b", 4, qos=qos)
            world.settle()
        assert data(receiver.take()) == [1, 1]

    def test_a_bad_one_refuses_the_subscription_and_says_where(self, world: StoredWorld) -> None:
        client = Client(world).joined()
        reply = ask(client, "/a", filter="data.n >")
        assert reply["error"] == "400:filter:user.illegalArgument"
        assert reply["ext"]["subscribe"]["errorCode"] == "user.illegalArgument"
        assert "at its end" in reply["ext"]["subscribe"]["message"]
        assert "column 6" in ask(client, "/a", filter="data.?n")["ext"]["subscribe"]["message"]
        assert client.session.subscriptions == set()

    def test_one_that_fails_does_not_deliver_and_is_counted_once_a_message(self, world: StoredWorld) -> None:
        clients = [Client(world).joined() for _ in range(3)]
        for client in clients:
            ask(client, "/a", filter="length(data) > `1`")
        publish(world, "/a", 5, [1, 2])
        for client in clients:
            assert data_of(client.connect(advice={"timeout": 0}).answer) == [[1, 2]]
        assert world.broker.metrics.filter_failures == 1

    def test_the_budget_of_a_session_is_for_all_its_filters(self, world: StoredWorld) -> None:
        client, other = Client(world).joined(), Client(world).joined()
        for number in range(10):
            ask(client, "/a", filter=f"max(data) < `-{number}`")
        ask(other, "/b", filter="max(data) < `-9`")
        publish(world, "/a", *([[1] * 10_000] * 20))
        assert world.broker.metrics.filters_over_budget > 0, "the first few are judged by some of the filters"
        assert client.session.subscriptions == set()
        publish(world, "/b", *([[1] * 10_000] * 3))
        assert other.session.subscriptions == {"/b"}, "another session has a budget of its own"

    def test_a_small_filter_is_judged_after_everything_was_spent(self, world: StoredWorld) -> None:
        client = Client(world).joined()
        ask(client, "/a", filter="sum(data) < `0` && min(data) < `0` && max(data) < `0`")
        ask(client, "/b", filter="contains(['x', 'y'], data.kind) && starts_with(channel, '/b')")
        publish(world, "/a", *([[1] * 30_000] * 40))
        assert world.broker.metrics.filters_over_budget > 0
        while data_of(client.connect(advice={"timeout": 0}).answer):
            pass
        publish(world, "/b", *({"kind": kind} for kind in "xzy"))
        came = data_of(client.connect(advice={"timeout": 0}).answer)
        assert [each for each in came if isinstance(each, dict)] == [{"kind": "x"}, {"kind": "y"}]

    def test_a_condition_takes_no_budget(self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        monkeypatch.setattr(Budgets, "of_session", lambda *_: asked.append("asked"))
        client = Client(world).joined()
        ask(client, "/a", filter="data.n > `1` && !(data.gone) || data.kind == 'x'")
        publish(world, "/a", *({"n": number} for number in range(10)))
        assert len(data_of(client.connect(advice={"timeout": 0}).answer)) == 8
        assert asked == []

    def test_a_condition_that_has_to_look_closely_is_within_the_budget(self, world: StoredWorld) -> None:
        client = Client(world).joined()
        ask(client, "/a", filter="data.one == data.other")
        publish(
            world,
            "/a",
            {"one": [1], "other": [1]},
            {"one": [1], "other": [2]},
            {"one": [[1]] * 9000, "other": [[1]] * 9000},
        )
        assert len(data_of(client.connect(advice={"timeout": 0}).answer)) == 2
        assert world.broker.metrics.filters_over_budget == 1

    def test_each_expression_is_evaluated_once_a_message(
        self, world: StoredWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        evaluated: list[str] = []
        accepts = Filter.accepts
        monkeypatch.setattr(
            Filter, "accepts", lambda self, *asked: evaluated.append(self.text) or accepts(self, *asked)
        )
        for expression in ("data.n > `1`", "data.n > `1`", "data.n < `1`"):
            ask(Client(world).joined(), "/a", filter=expression)
            ask(Receiver(world).started(), "/a", filter=expression)
        publish(world, "/a", {"n": 2}, {"n": 0})
        assert sorted(evaluated) == ["data.n < `1`"] * 2 + ["data.n > `1`"] * 2

    def test_the_history_is_not_filtered_unseen(self, world: StoredWorld) -> None:
        publish(world, "/h/a", {"n": 1}, {"n": 5}, {"n": 2})
        client = Client(world).joined()
        message = client.message(
            "/meta/subscribe",
            subscription="/h/a",
            ext={"subscribe": {"filter": "data.n < `4`", "history": {"numEntries": -1, "newestFirst": False}}},
        )
        assert data_of(client.send(message).received) == [{"n": 1}, {"n": 2}]

    def test_a_wildcard_without_a_filter_hears_it_all_the_same(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started("/**")
        ask(receiver, "/a", filter="data.n > `2`")
        publish(world, "/a", {"n": 1}, {"n": 1})
        assert len(receiver.take()) == 2


class TestLocal:
    @pytest.mark.parametrize("stored", [True, False])
    @pytest.mark.parametrize("kind", ["plain", "update"])
    def test_what_it_publishes_itself_does_not_come(self, world: StoredWorld, stored: bool, kind: str) -> None:
        client = Client(world).joined() if kind == "plain" else Receiver(world).started()
        ask(client, "/a", local=False)
        other = Client(world).joined()
        for publisher in (client, other):
            publisher.publish("/a", publisher is client, ext={"publish": {"persistent": stored}})
        came = client.take() if isinstance(client, Receiver) else client.connect(advice={"timeout": 0}).answer
        assert data_of(came) == [False]


class TestNewestOnly:
    def test_what_waits_gives_way_to_what_is_newer(self, world: StoredWorld) -> None:
        client = Client(world).joined("/b")
        ask(client, "/a/*", newestOnly=True)
        for number in range(3):
            publish(world, "/a/x", number, number)
            publish(world, "/a/y", number)
            publish(world, "/b", number)
        assert data_of(client.connect(advice={"timeout": 0}).answer) == [0, 1, 2, 2, 2]

    def test_of_stored_messages_too_and_what_is_at_the_client_stays(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started(settle="message")
        ask(receiver, "/a", newestOnly=True)
        publish(world, "/a", 0)
        (first,) = receiver.take()
        for number in range(1, 5):
            world.wait(world.broker.publish_stored("/a", number))
            world.settle()
        messages = receiver.take(ok(first))
        assert data(messages) == [4]
        receiver.take(*map(ok, messages))
        reasons = [reason for _, reason, _ in world.ended()]
        assert sorted(reasons) == ["filtered"] * 3 + ["settled"] * 2

    def test_while_its_client_is_away(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started(name="client/joe/1", persistent=True)
        ask(receiver, "/a", newestOnly=True)
        receiver.take()
        world.sweep_after(60)
        assert receiver.session.mailbox.is_absent
        for number in range(4):
            world.wait(world.broker.publish_stored("/a", number))
        world.settle()
        assert data(receiver.take()) == [3]


class TestOneway:
    def test_messages_go_once_and_are_settled_before(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started("/b", settle="message")
        ask(receiver, "/a", updateOneway=True)
        publish(world, "/a", 0, 1)
        world.wait(world.broker.publish_stored("/b", "kept"))
        world.settle()
        messages = receiver.take()
        assert data(messages) == [0, 1, "kept"]
        assert all(origin(each)["id"] for each in messages)
        reply = receiver.reconnect(ok(messages[0]), ok(messages[2]), advice={"timeout": 0}).answer[-1]
        assert [each["id"] for each in reply["ext"]["update"]["rejected"]] == [origin(messages[0])["id"]]

    def test_what_is_not_acknowledged_comes_again_without_them(self, world: StoredWorld) -> None:
        client = Client(world).joined("/b", ext={"ack": True})
        ask(client, "/a", updateOneway=True)
        publish(world, "/a", 0, 1)
        publish(world, "/b", 2, 3)
        first = client.connect(ext={"ack": 1}, advice={"timeout": 0}).answer
        assert data_of(first) == [0, 1, 2, 3]
        again = client.connect(ext={"ack": 1}, advice={"timeout": 0}).answer
        assert data_of(again) == [2, 3]

    def test_messages_wait_for_a_client_that_is_away_and_end_with_its_session(self, world: StoredWorld) -> None:
        """What a page asks for that only shows messages: its closed windows leave no dead letters."""
        page = Receiver(world).started(name="joe/1", timeout=60_000)
        ask(page, "/a", updateOneway=True)
        page.take()
        world.sweep_after(30)
        publish(world, "/a", 0, 1)
        assert data(page.take()) == [0, 1]
        publish(world, "/a", 2, 3)
        world.sweep_after(61)
        assert not page.is_known
        assert world.letters() == []
        assert world.broker.metrics.lost == 0

    def test_to_a_session_that_acknowledges_nothing_it_says_nothing(self, world: StoredWorld) -> None:
        client = Client(world).joined()
        ask(client, "/a", updateOneway=True)
        publish(world, "/a", 0, 1)
        assert data_of(client.connect(advice={"timeout": 0}).answer) == [0, 1]


class TestSeveral:
    def test_two_filters_on_one_channel_let_pass_what_either_wants_once(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        for expression in ("data.n > `2`", "data.n < `4`", "data.n > `2`"):
            assert "state" not in ask(receiver, "/a", filter=expression)["ext"]["subscribe"]
        publish(world, "/a", *({"n": n} for n in range(6)))
        assert [each["n"] for each in data(receiver.take())] == [0, 1, 2, 3, 4, 5]
        assert world.broker.subscriptions.options.as_json(receiver.session) == {
            "/a": [{"filter": "data.n > `2`"}, {"filter": "data.n < `4`"}]
        }

    def test_one_that_shall_not_stand_beside_another_takes_its_place(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        ask(receiver, "/a", filter="data.n > `2`")
        told = ask(receiver, "/a", filter="data.n < `2`", multiSubscribe=False)["ext"]["subscribe"]
        assert told["state"] == "WARNING"
        publish(world, "/a", *({"n": n} for n in range(6)))
        assert [each["n"] for each in data(receiver.take())] == [0, 1]

    def test_a_plain_subscription_wants_everything(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        ask(receiver, "/a", filter="data.n > `2`")
        receiver.subscribe("/a")
        publish(world, "/a", {"n": 0})
        assert len(receiver.take()) == 1
        assert receiver.session not in world.broker.subscriptions.options.filtered
        assert "p:/a" not in world.record(receiver.session)

    def test_a_subscription_that_is_given_up_leaves_no_wishes(self, world: StoredWorld) -> None:
        for client in (Receiver(world).started(), Client(world).joined()):
            ask(client, "/a", filter="data.n > `2`")
            assert client.say("/meta/unsubscribe", subscription="/a")["successful"]
            client.subscribe("/a")
            publish(world, "/a", {"n": 0})
            came = client.take() if isinstance(client, Receiver) else client.connect(advice={"timeout": 0}).answer
            assert data_of(came) == [{"n": 0}]
        assert not world.broker.subscriptions.options.filtered

    def test_a_session_that_ends_is_forgotten(self, world: StoredWorld) -> None:
        client = Client(world).joined()
        ask(client, "/a", local=False)
        client.say("/meta/disconnect")
        assert not world.broker.subscriptions.options.filtered

    def test_too_many_are_refused(self, world: StoredWorld) -> None:
        client = Client(world).joined()
        for number in range(10):
            assert ask(client, "/a", filter=f"data.n == `{number}`")["successful"]
        assert ask(client, "/a", filter="data.other")["error"] == "400:multiSubscribe:user.illegalArgument"


@pytest.mark.parametrize(
    ("qos", "field"),
    [
        ({"persistent": True}, "persistent"),
        ({"group": "cooks"}, "group"),
        ({"history": 3}, "history"),
        ({"histroy": {}}, "histroy"),
        ({"local": "no"}, "local"),
    ],
)
def test_what_a_plain_session_cannot_have_is_refused(world: StoredWorld, qos: Fields, field: str) -> None:
    assert ask(Client(world).joined(), "/a", **qos)["error"] == f"400:{field}:user.illegalArgument"


def test_a_stored_session_may_ask_for_a_persistent_subscription(world: StoredWorld) -> None:
    assert ask(Receiver(world).started(), "/a", persistent=True)["successful"]


class TestRestart:
    def test_wishes_survive(self, make_stored: MakeStored, world: StoredWorld) -> None:
        receiver = Receiver(world).started(name="client/joe/1", persistent=True)
        ask(receiver, "/a", filter="data.n > `2`")
        ask(receiver, "/b", newestOnly=True, notify=False)
        wishes = world.broker.subscriptions.options.as_json(receiver.session)
        world.close()
        again = make_stored(RULES, prefix=world.prefix)
        session = again.broker.sessions.by_id[str(receiver.id)]
        assert again.broker.subscriptions.options.as_json(session) == wishes
        receiver.world = again
        publish(again, "/a", {"n": 1}, {"n": 3}, {"n": 5})
        assert [each["n"] for each in data(receiver.take())] == [3, 5]
        assert not again.broker.subscriptions.options.wants_notice(session, "/b")


class TestGroups:
    def test_a_member_hears_by_its_group_only(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        assert ask(receiver, "/a/*", group="cooks")["successful"]
        assert world.broker.addressing.groups.of(receiver.session) == [("/a/*", "cooks")]
        assert "/a/*" not in world.broker.addressing.channels
        assert ask(receiver, "/a/*", group="cooks")["successful"]
        record = world.record(receiver.session)
        assert "s:/a/*" not in record
        assert record["p:/a/*"] == '[{"group":"cooks"}]'

    def test_a_member_leaves_its_group_by_unsubscribing(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        ask(receiver, "/a", group="cooks")
        assert receiver.say("/meta/unsubscribe", subscription="/a")["successful"]
        assert world.broker.addressing.groups.of(receiver.session) == []
        assert "p:/a" not in world.record(receiver.session)
        assert receiver.session.subscriptions == set()

    @pytest.mark.parametrize(("first", "second"), [("cooks", None), (None, "cooks")])
    def test_a_member_cannot_hear_by_itself_too(
        self, world: StoredWorld, first: str | None, second: str | None
    ) -> None:
        receiver = Receiver(world).started()
        assert ask(receiver, "/a", group=first)["successful"]
        assert ask(receiver, "/a", group=second)["error"] == "400:group:user.illegalArgument"

    def test_of_several_groups_until_it_says_otherwise(self, world: StoredWorld) -> None:
        receiver = Receiver(world).started()
        for group in ("cooks", "smiths"):
            assert ask(receiver, "/a", group=group)["successful"]
        assert sorted(world.broker.addressing.groups.of(receiver.session)) == [("/a", "cooks"), ("/a", "smiths")]
        assert ask(receiver, "/a", group="tailors", multiSubscribe=False)["successful"]
        assert world.broker.addressing.groups.of(receiver.session) == [("/a", "tailors")]

    def test_members_of_a_group_are_not_sent_the_past(self, world: StoredWorld) -> None:
        publish(world, "/h/a", 1)
        receiver = Receiver(world).started()
        assert ask(receiver, "/h/a", group="cooks")["ext"]["subscribe"] == {"position": {}}
        assert receiver.take() == []

    @pytest.mark.parametrize("channel", ["/__sys__deadMessage", "/service/x"])
    def test_not_every_channel_can_be_shared(self, world: StoredWorld, channel: str) -> None:
        assert ask(Receiver(world).started(), channel, group="a")["error"] == "400:group:user.illegalArgument"

    def test_membership_survives(self, make_stored: MakeStored, world: StoredWorld) -> None:
        receiver = Receiver(world).started(name="client/joe/1", persistent=True)
        ask(receiver, "/a", group="cooks")
        world.crash()
        again = make_stored(RULES, prefix=world.prefix)
        session = again.broker.sessions.by_id[str(receiver.id)]
        assert again.broker.addressing.groups.of(session) == [("/a", "cooks")]
        assert session.subscriptions == {"/a"}


def test_wishes_of_another_version_are_left_out(world: StoredWorld) -> None:
    receiver = Receiver(world).started("/a")
    stored = {"/a": [{"local": False, "mood": "good"}], "/gone": [{"local": False}]}
    world.broker.subscriptions.options.restore(receiver.session, stored)
    assert world.broker.subscriptions.options.as_json(receiver.session) == {}
    world.broker.subscriptions.options.restore(receiver.session, {"/a": {"local": False}})
    assert world.broker.subscriptions.options.as_json(receiver.session) == {"/a": [{"local": False}]}


def test_who_does_not_want_notices_says_so(world: StoredWorld) -> None:
    receiver = Receiver(world).started("/b")
    ask(receiver, "/a", notify=False)
    wants = world.broker.subscriptions.options.wants_notice
    assert (wants(receiver.session, "/a"), wants(receiver.session, "/b")) == (False, True)
    ask(receiver, "/a", notify=True)
    assert wants(receiver.session, "/a")
