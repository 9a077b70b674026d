"""An application that stores what an older version of the server took from anybody: a message whose `ext` is no object."""

from __future__ import annotations

from crewel import Message, Service, Session
from crewel.bayeux.channel import parse
from crewel.broker.publishing.broadcaster import StoragePlan
from crewel.qos.publish import PublishQos

app = Service("malformed")


@app.listener("/malform")
async def store(session: Session, message: Message) -> None:
    channel = parse("/poison")
    assert channel is not None
    fields = {"channel": channel.name, "data": message.data, "ext": "x"}
    await app.broker.publishing.broadcaster.store(channel, fields, StoragePlan(), PublishQos(persistent=True))
