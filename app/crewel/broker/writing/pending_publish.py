"""A persistent publish on its way into the log, and what it is answered with."""

from __future__ import annotations

from typing import NamedTuple

from crewel.bayeux.channel import Channel
from crewel.bayeux.message import Fields
from crewel.broker.handler_steps import Promise
from crewel.broker.session import Session
from crewel.delivery.records import Submission
from crewel.qos.publish import PublishQos


class Published(NamedTuple):
    """What a persistent publish is answered with."""

    id: str
    """If its key had been published before, the first one's: nothing was delivered again."""


class PendingPublish(Promise[Published]):
    """A persistent publish of this node between its acceptance and its answer."""

    __slots__ = ("channel", "excluded", "for_services", "lazy", "qos", "submission")

    def __init__(
        self,
        channel: Channel,
        submission: Submission,
        excluded: Session | None,
        for_services: Fields | None,
        qos: PublishQos,
        *,
        lazy: bool,
    ) -> None:
        self._function = self.result = None  # and no call of Promise's: each publish comes by here
        self.channel = channel
        self.submission = submission
        self.excluded = excluded
        """The session that does not receive it, if any."""
        self.for_services = for_services
        """The message as the services of this server receive it, if any do."""
        self.qos = qos
        self.lazy = lazy
