"""An application for the functional tests: one of everything that a service can be."""

from __future__ import annotations

import asyncio
from collections import Counter

from crewel import GRANT, IGNORE, Deny, Identity, Message, Operation, Refusal, RemoteCallError, Service, Session
from crewel.bayeux.channel import Channel
from crewel.security.policy import OpenPolicy

app = Service("functional")
seen: Counter[str] = Counter()


class Policy(OpenPolicy):
    """Asks somebody far away before each decision, and breaks down when it is told to."""

    async def can_handshake(self, session: Session, message: Message) -> bool | Refusal | Identity:
        await asyncio.sleep(0)
        wanted = message.ext.get("policy")
        if wanted == "fail":
            raise RuntimeError("the policy broke down, as it was told to")
        if wanted == "retry":
            return Refusal(reconnect="handshake", ext={"why": "try again"})
        if "session" in message.ext:
            return Identity("silent")  # who may have a name, and so a time of its own
        return wanted != "refuse"

    async def can_publish(self, session: Session, channel: Channel, message: Message) -> bool | Refusal:
        await asyncio.sleep(0.01)
        return Refusal("not_today") if channel.name == "/refused" else channel.name != "/forbidden"


app.policy = Policy()


@app.on_session_added
def added(session: Session) -> None:
    welcome = session.peer is not None and session.peer.headers.get("X-Welcome")
    seen["added"] += 1
    for number in range(int(welcome or 0)):
        session.deliver("/welcome", f"welcome {number}")


@app.on_session_removed
def removed(session: Session, expired: bool) -> None:
    seen["expired" if expired else "left"] += 1


@app.listener("/service/deliver")
def deliver(session: Session, message: Message) -> None:
    session.deliver("/service/deliver", {"echo": message.data})


@app.listener("/service/disconnect")
def disconnect(session: Session, message: Message) -> None:
    session.disconnect()


@app.listener("/vetoed")
def veto(session: Session, message: Message) -> bool:
    return message.data != "bad"


@app.listener("/broken")
def broken(session: Session, message: Message) -> None:
    raise RuntimeError("a listener broke down, as it was told to")


@app.listener("/slow")
async def slow(session: Session, message: Message) -> bool:
    await asyncio.sleep(message.data / 1000)
    return True


@app.subscription("/heard/**")
def heard(message: Message) -> None:
    app.publish("/echo", [message.channel.name, message.data])


@app.remote_call("echo")
def echo(session: Session, data: object) -> object:
    return data


@app.remote_call("later")
async def later(session: Session, data: object) -> object:
    await asyncio.sleep(0.05)
    return data


@app.remote_call("refuse")
def refuse(session: Session, data: object) -> object:
    raise RemoteCallError({"refused": data})


@app.remote_call("seen")
def how_many(session: Session, data: object) -> dict[str, int]:
    return dict(seen)


@app.authorizer("/guarded/**")
def guard(operation: Operation, channel: Channel, session: Session, message: Message) -> object:
    if channel.name == "/guarded/denied":
        return Deny("the guard says no")
    return GRANT if channel.name == "/guarded/open" or operation is Operation.SUBSCRIBE else IGNORE
