"""The guard: the policy and the authorisers, failing closed (reference, section 6; 1.9)."""

import asyncio
from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.security.grants import OPERATOR, Grants, Role
from crewel.security.policy import GRANT, IGNORE, Deny, OpenPolicy, Operation, Refusal
from tests.broker.world import Client, MakeWorld, World

Answer = Any


async def soon(answer: Answer) -> Answer:
    await asyncio.sleep(0)
    if isinstance(answer, Exception):
        raise answer
    return answer


def policy(**answers: Answer) -> Service:
    """A policy that answers each question so; an exception is raised, `("soon", x)` is answered by an awaitable."""

    class Answering(OpenPolicy):
        def _answer(self, name: str, default: Any) -> Any:
            answer = answers.get(name, default)
            if isinstance(answer, tuple):
                return soon(answer[1])
            if isinstance(answer, Exception):
                raise answer
            return answer

        def can_create(self, *question: Any) -> Any:
            return self._answer("create", super().can_create(*question))

        def can_subscribe(self, *question: Any) -> Any:
            return self._answer("subscribe", super().can_subscribe(*question))

        def can_publish(self, *question: Any) -> Any:
            return self._answer("publish", super().can_publish(*question))

    service = Service("policy")
    service.policy = Answering()
    return service


def attempt(world: World, kind: str) -> str | None:
    """Try it as a client; the error, or None."""
    client = Client(world)
    client.handshake()
    fields = {"subscription": "/a/b"} if kind == "subscribe" else {"data": 1}
    message = client.message("/meta/subscribe" if kind == "subscribe" else "/a/b", **fields)
    request = client.send(message)
    world.settle()
    (reply,) = request.received
    assert reply["successful"] is ("error" not in reply)
    return reply.get("error")


REFUSALS = [
    (False, "denied_by_security_policy"),
    (None, "denied_by_security_policy"),
    (1, "denied_by_security_policy"),
    ("yes", "denied_by_security_policy"),
    (Refusal("not you"), "not you"),
    (Refusal("a:b"), "a b"),
    (RuntimeError("broken"), "denied_by_security_policy"),
]


class TestPolicy:
    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize(("answer", "reason"), REFUSALS)
    @pytest.mark.parametrize(
        ("question", "kind", "text"),
        [
            ("create", "subscribe", "create_denied"),
            ("create", "publish", "channel_create_denied"),
            ("subscribe", "subscribe", "subscribe_denied"),
            ("publish", "publish", "publish_denied"),
        ],
    )
    def test_what_is_not_a_clear_yes_refuses(
        self, make_world: MakeWorld, question: str, kind: str, text: str, answer: Answer, reason: str, is_async: bool
    ) -> None:
        world = make_world(services=[policy(**{question: ("soon", answer) if is_async else answer})])
        assert attempt(world, kind) == f"403:{reason}:{text}"
        assert "/a/b" not in world.broker.addressing.channels

    @pytest.mark.parametrize("kind", ["subscribe", "publish"])
    def test_yes_may_come_at_once_or_later(self, make_world: MakeWorld, kind: str) -> None:
        service = policy(create=("soon", True), subscribe=("soon", True), publish=("soon", True))
        assert attempt(make_world(services=[service]), kind) is None

    def test_only_what_does_not_exist_is_created(self, make_world: MakeWorld) -> None:
        world = make_world(services=[policy(create=False)])
        world.broker.addressing.channels.create("/a/b")
        assert attempt(world, "subscribe") is None
        assert attempt(world, "publish") is None

    def test_a_service_channel_needs_no_creation(self, make_world: MakeWorld) -> None:
        client = Client(make_world(services=[policy(create=False)]))
        client.handshake()
        assert client.publish("/service/x", 1)["successful"]
        assert client.say("/meta/subscribe", subscription="/service/x")["successful"]


class TestAuthorizers:
    @pytest.mark.parametrize(
        ("verdicts", "reason"),
        [
            ([], None),
            ([GRANT], None),
            ([IGNORE], "denied_by_not_granting"),
            ([IGNORE, IGNORE], "denied_by_not_granting"),
            ([IGNORE, GRANT], None),
            ([GRANT, IGNORE], None),
            ([Deny("no")], "no"),
            ([GRANT, Deny("no")], "no"),
            ([Deny("no"), GRANT], "no"),
            ([RuntimeError("broken")], "denied_by_security_policy"),
            ([GRANT, None], "denied_by_security_policy"),
            ([True], "denied_by_security_policy"),
        ],
    )
    @pytest.mark.parametrize("kind", ["subscribe", "publish"])
    def test_one_denial_refuses_and_one_grant_is_needed(
        self, make_world: MakeWorld, verdicts: list[Any], reason: str | None, kind: str
    ) -> None:
        service = Service("rules")
        patterns = ["/**", "/a/b"]
        for pattern, verdict in zip(patterns, verdicts, strict=False):

            def answer(*question: Any, verdict: Any = verdict) -> Any:
                if isinstance(verdict, Exception):
                    raise verdict
                return verdict

            service.authorizer(pattern)(answer)
        error = attempt(make_world(services=[service]), kind)
        text = "create_denied" if kind == "subscribe" else "channel_create_denied"
        assert error == (None if reason is None else f"403:{reason}:{text}")

    def test_authorizers_are_asked_widest_first(self, make_world: MakeWorld) -> None:
        told: list[tuple[str, Operation, str]] = []
        service = Service("rules")
        for pattern in ("/a/b", "/a/*", "/**", "/a", "/b/**"):

            def note(operation: Operation, channel: Any, session: Any, message: Any, pattern: str = pattern) -> Any:
                told.append((pattern, operation, channel.name))
                return GRANT

            service.authorizer(pattern)(note)
        attempt(make_world(services=[service]), "publish")
        order = ["/**", "/a/*", "/a/b"]
        assert told == [
            (pattern, operation, "/a/b") for operation in (Operation.CREATE, Operation.PUBLISH) for pattern in order
        ]

    def test_a_refusal_of_the_policy_is_final(self, make_world: MakeWorld) -> None:
        service = policy(publish=False)
        service.authorizer("/**")(lambda *question: GRANT)
        assert attempt(make_world(services=[service]), "publish") == "403:denied_by_security_policy:publish_denied"

    def test_authorizers_decide_on_service_channels_too(self, make_world: MakeWorld) -> None:
        service = Service("rules")
        service.authorizer("/service/x")(lambda *question: Deny("closed"))
        client = Client(make_world(services=[service]))
        client.handshake()
        assert client.publish("/service/x", 1)["error"] == "403:closed:publish_denied"
        assert client.publish("/service/y", 1)["successful"]

    def test_a_plain_parent_passes_nothing_on(self, make_world: MakeWorld) -> None:
        service = Service("rules")
        service.authorizer("/a")(lambda *question: Deny("closed"))
        assert attempt(make_world(services=[service]), "publish") is None


class TestChannelsForOperators:
    @pytest.mark.parametrize("grants_all", [True, False])
    def test_only_operators_publish_whatever_the_policy_says(self, make_world: MakeWorld, *, grants_all: bool) -> None:
        services = [] if grants_all else [policy(publish=False)]
        world = make_world(services=services)
        world.broker.admission.guard.reserve("/service/secret")
        client = Client(world)
        client.handshake()
        error = client.publish("/service/secret", 1)["error"]
        assert error == "403:user.security.authorization.notAuthorized:publish_denied"
        client.session.authenticate(OPERATOR)
        assert client.publish("/service/secret", 1)["successful"]

    def test_an_operator_whose_token_has_expired_is_none(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.broker.admission.guard.reserve("/service/secret")
        client = Client(world)
        client.handshake()
        client.session.authenticate(Grants(role=Role.DESTROY, expires_at=1.0))
        assert client.publish("/service/secret", 1)["successful"] is False


class TestServicesOfTheServer:
    @pytest.mark.parametrize("name", ["/service/get", "/service/erase"])
    def test_services_are_there_for_all_sessions_whose_token_holds(self, make_world: MakeWorld, name: str) -> None:
        rules = Service("rules")
        rules.authorizer("/service/**")(lambda *question: Deny("closed"))
        client = Client(make_world(services=[policy(publish=False), rules]))
        client.handshake()
        data = {"channel": "/a"}
        assert client.publish("/service/other", data)["error"].startswith("403:")
        assert client.publish(name, data)["successful"] is True
        client.session.grants = Grants(expires_at=1.0)
        assert client.publish(name, data)["error"] == "403:token_expired:publish_denied"


def detailed(answer: Answer) -> Service:
    """A policy that grants publishes, and answers so whether one may configure a topic."""

    class Detailed(OpenPolicy):
        def can_configure(self, *question: Any) -> Any:
            if isinstance(answer, tuple):
                return soon(answer[1])
            if isinstance(answer, Exception):
                raise answer
            return answer

    service = Service("detailed")
    service.policy = Detailed()
    return service


def configure(world: World) -> str | None:
    """Publish what gives a topic a history that the store does not keep; the error, or None."""
    client = Client(world)
    client.handshake()
    request = client.send(client.message("/a/b", data=1, ext={"publish": {"destroyDelay": 5}}))
    world.settle()
    (reply,) = request.received
    error: str | None = reply.get("error")
    return error


@pytest.mark.parametrize("answer", [False, None, Refusal("not you"), RuntimeError("broken"), ("soon", False)])
def test_a_policy_can_refuse_the_settings_of_a_topic(make_world: MakeWorld, answer: Answer) -> None:
    error = configure(make_world(services=[detailed(answer)]))
    assert error == "403:/a/b:user.security.authorization.notAuthorized"


@pytest.mark.parametrize("answer", [True, ("soon", True)])
def test_a_policy_can_grant_the_settings_of_a_topic(make_world: MakeWorld, answer: Answer) -> None:
    assert configure(make_world(services=[detailed(answer)])) is None


def test_a_policy_that_does_not_tell_settings_apart_grants_them_with_the_publish(make_world: MakeWorld) -> None:
    assert configure(make_world(services=[policy()])) is None


class TestAdminToken:
    """What the policy of an application refuses to all clients."""

    @pytest.fixture
    def world(self, make_world: MakeWorld) -> World:
        closed = policy(create=False, subscribe=False, publish=False)
        closed.policy.can_handshake = lambda session, message: False  # type: ignore[union-attr, method-assign]
        world = make_world(services=[closed])
        world.broker.admission.admin.know("admin")
        return world

    def reply(self, client: Client, channel: str, **fields: Any) -> Any:
        request = client.send(client.message(channel, **fields))
        (reply,) = [each for each in request.received if "successful" in each]
        return reply.get("error")

    def operator(self, world: World) -> Client:
        client = Client(world)
        assert client.handshake(ext={"session": {"token": "admin", "name": "joe/1"}})["successful"]
        return client

    def test_an_operator_passes_the_policy_which_refuses_all_others(self, world: World) -> None:
        client = self.operator(world)
        assert self.reply(client, "/meta/subscribe", subscription="/a/**") is None
        assert self.reply(client, "/a/b", data=1) is None
        assert Client(world).handshake(ext={"session": {"token": "x"}})["error"] == "403::handshake_denied"

    def test_a_back_end_publishes_without_a_session(self, world: World) -> None:
        elements = [{"channel": name, "data": 1} for name in ("/a", "/meta/x", "/__sys__x")]
        replies = world.loop.run_until_complete(world.broker.publishing.for_back_ends.post(OPERATOR, elements))
        assert [reply["successful"] for reply in replies] == [True, False, False]

    def test_an_authoriser_is_asked(self, world: World) -> None:
        world.broker.admission.guard.authorize("/a/b", lambda *question: Deny("closed"))
        assert self.reply(self.operator(world), "/a/b", data=1) == "403:closed:channel_create_denied"
