"""A Bayeux client for asyncio: `async with Client("http://127.0.0.1:8080/cometd") as client:`, and docs/reference/client.md.

It knows the protocol (`crewel.bayeux`), its options (`crewel.qos`) and the codes of errors, and nothing of the server.
"""

from crewel.client.client import Client as Client
from crewel.client.errors import AccessDenied as AccessDenied
from crewel.client.errors import AnswerTimeoutError as AnswerTimeoutError
from crewel.client.errors import ClientError as ClientError
from crewel.client.errors import DestinationDenied as DestinationDenied
from crewel.client.errors import DestinationRefused as DestinationRefused
from crewel.client.errors import DisconnectedError as DisconnectedError
from crewel.client.errors import ErrorAnswer as ErrorAnswer
from crewel.client.errors import HandshakeRefused as HandshakeRefused
from crewel.client.errors import MessageDroppedError as MessageDroppedError
from crewel.client.errors import MessageTooLargeError as MessageTooLargeError
from crewel.client.errors import NameTaken as NameTaken
from crewel.client.errors import NegotiationError as NegotiationError
from crewel.client.errors import NoReplyError as NoReplyError
from crewel.client.errors import NotConnectedError as NotConnectedError
from crewel.client.errors import NotEncodableError as NotEncodableError
from crewel.client.errors import NotStored as NotStored
from crewel.client.errors import PublishRefused as PublishRefused
from crewel.client.errors import QueueOverflow as QueueOverflow
from crewel.client.errors import RefusedError as RefusedError
from crewel.client.errors import RemoteCallFailedError as RemoteCallFailedError
from crewel.client.errors import RemoteCallTimeoutError as RemoteCallTimeoutError
from crewel.client.errors import RequestTimeoutError as RequestTimeoutError
from crewel.client.errors import SubscribeRefused as SubscribeRefused
from crewel.client.errors import SubscriptionEndedError as SubscriptionEndedError
from crewel.client.errors import SubscriptionOverflowError as SubscriptionOverflowError
from crewel.client.errors import SupersededError as SupersededError
from crewel.client.errors import TopicReadonly as TopicReadonly
from crewel.client.errors import TransportError as TransportError
from crewel.client.errors import UnknownDestination as UnknownDestination
from crewel.client.errors import UnknownDestinationSession as UnknownDestinationSession
from crewel.client.errors import UpgradeRefusedError as UpgradeRefusedError
from crewel.client.extension import Extension as Extension
from crewel.client.message import DestinationState as DestinationState
from crewel.client.message import Message as Message
from crewel.client.message import Reply as Reply
from crewel.client.publish import Batch as Batch
from crewel.client.publish import Destination as Destination
from crewel.client.publish import PublishOptions as PublishOptions
from crewel.client.requests import Response as Response
from crewel.client.requests import create_response as create_response
from crewel.client.retry import BackoffRule as BackoffRule
from crewel.client.states import Event as Event
from crewel.client.states import State as State
from crewel.client.states import Transition as Transition
from crewel.client.subscription import Overflow as Overflow
from crewel.client.subscription import Position as Position
from crewel.client.subscription import SubscribeOptions as SubscribeOptions
from crewel.client.subscription import Subscription as Subscription
