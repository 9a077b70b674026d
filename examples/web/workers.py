"""Workers that share orders, as those of Celery share tasks: CREWEL_URL=… python workers.py NUMBER."""

import os
import sys

from pydantic import BaseModel

from crewel.client.sync import App, Delivery

ADDRESS = os.environ.get("CREWEL_URL", "http://127.0.0.1:8080")
app = App(ADDRESS, number=int(sys.argv[1]) if len(sys.argv) > 1 else 1)


class Order(BaseModel):
    number: int
    pizzas: int


@app.consumer("/orders/*", group="bakers", data=Order, at_once=4, attempts=3)
def bake(order: Delivery[Order]) -> None:
    if order.data.pizzas > 10:
        order.dead_letter("too many")
        return
    print("baked", order.data.number, flush=True)
    app.client.publish("/kitchen/baked", order.data, persistent=True, retry_for=30)


if __name__ == "__main__":
    app.run()
