"""A shop with FastAPI: orders are published without loss, and what the kitchen reports is received.

uvicorn fastapi_shop:app
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

from crewel.client import Client, ClientError, Message

ADDRESS = os.environ.get("CREWEL_URL", "http://127.0.0.1:8080")


class Order(BaseModel):
    number: int
    pizzas: int


baked: list[int] = []


def note(message: Message[Order]) -> None:
    baked.append(message.data.number)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with Client(ADDRESS) as client:
        await client.subscribe("/kitchen/baked", note, data=Order)
        app.state.crewel = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def take(order: Order, request: Request) -> dict[str, str | None]:
    client: Client = request.app.state.crewel
    try:
        reply = await client.publish("/orders/new", order, persistent=True, key=f"order-{order.number}", retry_for=5)
    except ClientError as error:
        raise HTTPException(503, str(error)) from None
    return {"id": reply.message_id}


@app.get("/baked")
async def show() -> list[int]:
    return baked
