"""The client for programs without asyncio: `with Client("http://127.0.0.1:8080/cometd") as client:`.

The names, arguments and errors are those of `crewel.client`. All clients of a process share one event loop in a thread of its
own (`background`). Each call waits for its result there, so a client can be used from all threads.
"""

from crewel.client.sync.sync_app import App as App
from crewel.client.sync.sync_batch import Batch as Batch
from crewel.client.sync.sync_client import Client as Client
from crewel.client.sync.sync_consumer import Consumer as Consumer
from crewel.client.sync.sync_message import Delivery as Delivery
from crewel.client.sync.sync_message import Message as Message
from crewel.client.sync.sync_outbox import Outbox as Outbox
from crewel.client.sync.sync_presence import Presence as Presence
from crewel.client.sync.sync_subscription import Subscription as Subscription
