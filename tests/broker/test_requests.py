"""Services that answer requests."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from crewel.broker.services import Service
from crewel.errors import RemoteCallError, ServiceError
from tests.broker.world import Client, MakeWorld, Socket, World

FAULT = {"errorCode": "internal.unknown", "message": "the responder failed"}


class Unwilling(Exception):
    error_code = "user.illegalArgument"


@pytest.fixture
def service() -> Service:
    return Service("app")


class Asking:
    """A client that asks, over a socket."""

    def __init__(self, world: World, **session: Any) -> None:
        self.world = world
        self.socket = Socket()
        self.client = Client(world, self.socket)
        self.prefix = "/ret/" + self.client.handshake(ext={"session": session})["ext"]["session"]["replyId"]
        self.client.send(self.client.message("/meta/connect"))
        self.client.send(self.client.message("/meta/subscribe", subscription=f"{self.prefix}/*"))

    def ask(self, channel: str, data: Any, number: int = 1, **ext: Any) -> dict[str, Any]:
        """Publish a request; its answer."""
        self.socket.take()
        qos = {"replyTo": f"{self.prefix}/{3_000_000 + number}"}
        self.client.send(self.client.message(channel, data=data, ext={"publish": qos, **ext}))
        self.world.settle()
        (answer,) = [each for each in self.socket.take() if "data" in each]
        assert answer.pop("channel") == qos["replyTo"]
        return answer


async def later(result: Any) -> Any:
    await asyncio.sleep(0)
    if isinstance(result, Exception):
        raise result
    return result


@pytest.mark.parametrize("is_async", [False, True])
class TestResponder:
    def world(self, make_world: MakeWorld, service: Service, is_async: bool, answer: Callable[[Any], Any]) -> World:
        @service.responder("/power/*")
        def respond(message: Any) -> Any:
            if is_async:
                try:
                    return later(answer(message))
                except Exception as error:  # noqa: BLE001
                    return later(error)
            return answer(message)

        return make_world(services=[service])

    def test_what_it_returns_is_the_answer(self, make_world: MakeWorld, service: Service, is_async: bool) -> None:
        asking = Asking(self.world(make_world, service, is_async, lambda message: message.data**2))
        assert asking.ask("/power/two", 7) == {"data": 49}
        assert asking.ask("/power/two", 8, 2) == {"data": 64}

    def test_a_responder_gets_the_asker_and_the_rest_of_the_message(
        self, make_world: MakeWorld, service: Service, is_async: bool
    ) -> None:
        world = self.world(
            make_world, service, is_async, lambda message: [message.sender, str(message.channel), message.ext["x"]]
        )
        assert Asking(world, name="joe/1").ask("/power/two", 7, x=1) == {"data": ["client/joe/1", "/power/two", 1]}

    @pytest.mark.parametrize(
        ("error", "answer"),
        [
            (Unwilling("no number"), {"errorCode": "user.illegalArgument", "message": "no number"}),
            (ValueError("secret"), FAULT),
        ],
    )
    def test_an_exception_is_an_answer_that_says_so(
        self, make_world: MakeWorld, service: Service, is_async: bool, caplog: Any, error: Exception, answer: Any
    ) -> None:
        def fail(message: Any) -> Any:
            raise error

        told = Asking(self.world(make_world, service, is_async, fail)).ask("/power/two", 7)
        assert told == {"data": None, "ext": {"error": answer}}
        assert ("a responder on /power/two failed" in caplog.text) is (answer is FAULT)

    def test_the_failure_of_a_remote_call_keeps_its_data(
        self, make_world: MakeWorld, service: Service, is_async: bool, caplog: Any
    ) -> None:
        def fail(message: Any) -> Any:
            raise RemoteCallError({"why": 1})

        told = Asking(self.world(make_world, service, is_async, fail)).ask("/power/two", 7)
        assert told == {"data": {"why": 1}, "ext": {"error": FAULT}}
        assert not caplog.text

    def test_what_json_cannot_say_is_a_failure(self, make_world: MakeWorld, service: Service, is_async: bool) -> None:
        told = Asking(self.world(make_world, service, is_async, lambda message: {1})).ask("/power/two", 7)
        assert told == {"data": None, "ext": {"error": FAULT}}

    @pytest.mark.parametrize("error", [RemoteCallError({1}), RemoteCallError("\ud800")])
    def test_a_failure_with_what_json_cannot_say_is_one_without(
        self, make_world: MakeWorld, service: Service, is_async: bool, caplog: Any, error: Exception
    ) -> None:
        def fail(message: Any) -> Any:
            raise error

        told = Asking(self.world(make_world, service, is_async, fail)).ask("/power/two", 7)
        assert told == {"data": None, "ext": {"error": FAULT}}
        assert "a responder on /power/two failed" in caplog.text

    def test_what_is_no_request_is_let_pass(self, make_world: MakeWorld, service: Service, is_async: bool) -> None:
        heard: list[Any] = []
        world = self.world(make_world, service, is_async, lambda message: heard.append(message.data))
        client = Client(world).joined()
        client.publish("/power/two", 1)
        client.publish("/power/two", 1, ext={"replyTo": "/elsewhere"})
        service.publish("/power/two", 1)
        world.settle()
        assert heard == []


def test_the_server_may_ask_too(make_world: MakeWorld, service: Service) -> None:
    service.responder("/power")(lambda message: message.sender)
    answers: list[Any] = []
    service.subscription("/ret/server/*")(lambda message: answers.append(message.data))
    make_world(services=[service])
    service.publish("/power", 1, ext={"replyTo": "/ret/server/1000000"})
    assert answers == [""]


@pytest.mark.parametrize("channel", ["/service/power", "/service/**", "/meta/x", "power"])
def test_requests_come_on_broadcast_channels(service: Service, channel: str) -> None:
    with pytest.raises(ServiceError):
        service.responder(channel)
