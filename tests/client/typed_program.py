"""What type checkers infer for both clients; tests/client/test_types.py runs them, nothing runs this."""

from dataclasses import dataclass
from typing import Any, assert_type

from typing_extensions import TypedDict

from crewel.client import App, Client, Consumer, Delivery, Message, Reply, Subscription, sync


@dataclass
class Order:
    pizza: int


class Slip(TypedDict):
    pizza: int


def taken(message: Message[Order]) -> None:
    assert_type(message.data, Order)


async def coroutines() -> None:
    async with Client("http://127.0.0.1:8080/cometd", update=True) as client:
        assert_type(await client.publish("/orders/new", Order(4), persistent=True), Reply)
        assert_type(await client.subscribe("/orders/*", data=Order), Subscription[Order])
        assert_type(
            await client.subscribe("/orders/*", taken, data=Order, bound=10, filter="data.pizza"), Subscription[Order]
        )
        assert_type((await (await client.subscribe("/orders/*", data=Slip)).receive(1)).data, Slip)
        plain: Subscription = await client.subscribe("/orders/*", data=int | str)
        assert_type(await plain.receive(), Message[Any])
        worker = client.consume("/orders/*", name="worker/1", data=Order, attempts=3)
        assert_type(worker, Consumer[Order])
        async for delivery in worker:
            assert_type(delivery, Delivery[Order])
            async with delivery:
                assert_type(delivery.data.pizza, int)
        async for other in client.consume("/orders/*", name="other/1", group="bakers"):
            assert_type(other.data, Any)


def threads() -> None:
    with sync.Client("http://127.0.0.1:8080/cometd") as client:
        assert_type(client.subscribe("/orders/*", data=Order), sync.Subscription[Order])
        for message in client.subscribe("/orders/*", data=Slip):
            assert_type(message.data, Slip)
        for delivery in client.consume("/orders/*", name="worker/1", data=Order):
            assert_type(delivery, sync.Delivery[Order])


app = App("http://127.0.0.1:8080/cometd", token="secret")
threaded = sync.App("http://127.0.0.1:8080/cometd", number=2)


@app.consumer("/orders/*", group="bakers", data=Order)
async def bake(order: Delivery[Order]) -> None:
    assert_type(order.data, Order)


@app.consumer("/orders/*", name="plain/1")
def plain_function(order: Delivery) -> None:
    assert_type(order.data, Any)


@threaded.consumer("/orders/*", data=Order, at_once=4)
def bake_in_thread(order: sync.Delivery[Order]) -> None:
    assert_type(order.data, Order)
