"""Binary messages."""

from typing import Any

import pytest

from crewel.bayeux.z85 import encode_z85
from crewel.broker.services import Service
from crewel.extensions.binary import Binary, BinaryExtension
from tests.broker.world import Client, MakeWorld, reply_to


class TestExtension:
    @pytest.fixture
    def seen(self) -> list[Any]:
        return []

    @pytest.fixture
    def client(self, make_world: MakeWorld, seen: list[Any]) -> Client:
        service = Service("app")
        service.listener("/b")(lambda session, message: seen.append((message.data, message.ext)))
        service.subscription("/b")(lambda message: seen.append((message.data, message.ext)))
        service.remote_call("reverse")(lambda session, data: Binary(data.content[::-1], meta={"n": 1}))
        return Client(make_world(extensions=[BinaryExtension()], services=[service])).joined("/b")

    def test_services_see_bytes_and_clients_see_text(self, client: Client, seen: list[Any]) -> None:
        data = {"data": "+kO#^", "last": False, "meta": {"name": "x"}}
        delivery, reply = client.send(client.message("/b", data=data, ext={"binary": {}, "other": 1})).received
        assert reply["successful"]
        assert delivery == {"channel": "/b", "data": data, "ext": {"binary": {}, "other": 1}}
        assert seen == [(Binary(b"\xca\xfe\xba\xbe", last=False, meta={"name": "x"}), {"other": 1})] * 2

    def test_what_is_optional_may_be_missing(self, client: Client, seen: list[Any]) -> None:
        delivery = client.send(client.message("/b", data={"data": "00"}, ext={"binary": {}})).received[0]
        assert delivery == {"channel": "/b", "data": {"data": "00", "last": True}, "ext": {"binary": {}}}
        assert seen[0] == (Binary(b"\0"), {})

    @pytest.mark.parametrize("data", [None, "00", {}, {"data": 5}, {"data": "a"}, {"data": "~~"}, []])
    def test_what_only_claims_to_be_binary_is_refused(self, client: Client, data: Any) -> None:
        request = client.send(client.message("/b", data=data, ext={"binary": {}}, id="p"))
        assert reply_to(request, "p")["error"] == "404::message_deleted"

    def test_other_messages_pass_unchanged(self, client: Client, seen: list[Any]) -> None:
        client.publish("/b", {"data": "00"})
        assert seen[0] == ({"data": "00"}, {})

    @pytest.mark.parametrize("content", [b"\xff", Binary(b"\xff")])
    def test_the_server_may_publish_and_deliver_bytes(self, client: Client, content: Any) -> None:
        client.world.broker.publish("/b", content, ext={"x": 1})
        client.session.deliver("/c", content)
        expected = {"data": "@@", "last": True}
        assert client.connect().answer[:2] == [
            {"channel": "/b", "data": expected, "ext": {"x": 1, "binary": {}}},
            {"channel": "/c", "data": expected, "ext": {"binary": {}}},
        ]

    def test_a_remote_call_may_take_and_give_bytes(self, client: Client) -> None:
        sent = client.message("/service/reverse", data={"data": encode_z85(b"abc")}, ext={"binary": {}})
        result = client.send(sent).received[0]
        assert result["data"] == {"data": encode_z85(b"cba"), "last": True, "meta": {"n": 1}}
        assert result["ext"] == {"binary": {}}
