"""What type checkers have to refuse; tests/client/test_types.py counts the lines that say so."""

from crewel.client import App, Client, Delivery, sync


async def coroutines(client: Client) -> None:
    orders = await client.subscribe("/orders/*", data=int)
    (await orders.receive()).data.upper()  # wrong
    client.consume("/orders/*", name="worker/1", prefetsh=1)  # wrong
    await client.publish("/orders/new", 1, persistant=True)  # wrong


def threads(client: sync.Client) -> None:
    client.subscribe("/orders/*", data=int).receive().data.upper()  # wrong


app = App("http://127.0.0.1:8080/cometd")


@app.consumer("/orders/*", data=int)  # wrong
async def bake(order: Delivery[str]) -> None: ...
