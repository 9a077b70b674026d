"""What type checkers have to refuse: `make check` finds an error to ignore in each line that says so, and
tests/client/test_types.py with another checker."""

from crewel.client import App, Client, Delivery, sync


async def coroutines(client: Client) -> None:
    orders = await client.subscribe("/orders/*", data=int)
    (await orders.receive()).data.upper()  # type: ignore[attr-defined]
    (await orders.receive()).retry(5)  # type: ignore[attr-defined]
    client.consume("/orders/*", name="worker/1", prefetsh=1)  # type: ignore[call-overload]
    await client.publish("/orders/new", 1, persistant=True)  # type: ignore[call-arg]


def threads(client: sync.Client) -> None:
    client.subscribe("/orders/*", data=int).receive().data.upper()  # type: ignore[attr-defined]


app = App("http://127.0.0.1:8080/cometd")


@app.consumer("/orders/*", data=int)  # type: ignore[arg-type]
async def bake(order: Delivery[str]) -> None: ...
