"""A Bayeux client for asyncio.

    async with Client("http://127.0.0.1:8080/cometd") as client:
        subscription = await client.subscribe("/chat/**")
        await client.publish("/chat/demo", {"user": "joe", "chat": "hello"})
        async for message in subscription:
            print(message.channel, message.data)

It knows the protocol (`crewel.bayeux`) and its options (`crewel.qos`), and nothing of the server.
"""

from crewel.client.client import Client
from crewel.client.errors import (
    AccessDenied,
    AnswerTimeoutError,
    ClientError,
    DestinationDenied,
    DestinationRefused,
    DisconnectedError,
    ErrorAnswer,
    HandshakeRefused,
    MessageDroppedError,
    MessageTooLargeError,
    NameTaken,
    NegotiationError,
    NoReplyError,
    NotConnectedError,
    NotEncodableError,
    NotStored,
    PublishRefused,
    QueueOverflow,
    RefusedError,
    RemoteCallFailedError,
    RemoteCallTimeoutError,
    RequestTimeoutError,
    SubscribeRefused,
    SubscriptionEndedError,
    SubscriptionOverflowError,
    SupersededError,
    TopicReadonly,
    TransportError,
    UnknownDestination,
    UnknownDestinationSession,
    UpgradeRefusedError,
)
from crewel.client.extension import Extension
from crewel.client.message import DestinationState, Message, Reply
from crewel.client.publish import Batch, Destination, PublishOptions
from crewel.client.requests import Response, create_response
from crewel.client.retry import BackoffRule
from crewel.client.states import Event, State, Transition
from crewel.client.subscription import Overflow, Position, SubscribeOptions, Subscription

__all__ = [
    "AccessDenied",
    "AnswerTimeoutError",
    "BackoffRule",
    "Batch",
    "Client",
    "ClientError",
    "Destination",
    "DestinationDenied",
    "DestinationRefused",
    "DestinationState",
    "DisconnectedError",
    "ErrorAnswer",
    "Event",
    "Extension",
    "HandshakeRefused",
    "Message",
    "MessageDroppedError",
    "MessageTooLargeError",
    "NameTaken",
    "NegotiationError",
    "NoReplyError",
    "NotConnectedError",
    "NotEncodableError",
    "NotStored",
    "Overflow",
    "Position",
    "PublishOptions",
    "PublishRefused",
    "QueueOverflow",
    "RefusedError",
    "RemoteCallFailedError",
    "RemoteCallTimeoutError",
    "Reply",
    "RequestTimeoutError",
    "Response",
    "State",
    "SubscribeOptions",
    "SubscribeRefused",
    "Subscription",
    "SubscriptionEndedError",
    "SubscriptionOverflowError",
    "SupersededError",
    "TopicReadonly",
    "Transition",
    "TransportError",
    "UnknownDestination",
    "UnknownDestinationSession",
    "UpgradeRefusedError",
    "create_response",
]
