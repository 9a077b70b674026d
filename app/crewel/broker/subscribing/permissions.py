"""Who may subscribe to what. Names are taken one by one: where one is refused, those before it are granted."""

from __future__ import annotations

from crewel.bayeux.channel import Channel, Kind, parse
from crewel.bayeux.message import Message
from crewel.broker.channels import Channels
from crewel.broker.durability.subscription_store import SubscriptionStore
from crewel.broker.guard import Guard
from crewel.broker.pipe import META_CHANNELS
from crewel.broker.ptp.groups import Groups
from crewel.broker.sessions import Session
from crewel.broker.steps import Steps
from crewel.broker.subscribing.subscribing import Subscribing
from crewel.errors import BayeuxCode, Denied, denied


class Permissions:
    """Asks the policy, channel by channel."""

    def __init__(
        self,
        channels: Channels,
        guard: Guard,
        groups: Groups,
        subscribing: Subscribing,
        subscriptions: SubscriptionStore,
    ) -> None:
        self._channels = channels
        self._guard = guard
        self._groups = groups
        self._subscribing = subscribing
        self._subscriptions = subscriptions

    def grant(
        self, session: Session, message: Message, channels: list[Channel]
    ) -> Steps[tuple[list[Channel], str | None]]:
        """The channels that the session may subscribe to, up to the first that it may not, and the error of that. Nobody
        subscribes to service channels: they are granted, and left out."""
        granted: list[Channel] = []
        for channel in channels:
            error = yield from self._refused(session, channel, message)
            if error is None and (channel.kind is Kind.META or not session.is_live):
                error = BayeuxCode.SUBSCRIBE_FAILED
            if error is not None:
                return granted, error
            if channel.kind is Kind.BROADCAST:
                granted.append(channel)
        return granted, None

    def regrant(self, session: Session) -> Steps[None]:
        """Another client goes on with the session: end the subscriptions that its token does not grant. Raises StoreError, and
        then they go on."""
        grouped = {pattern for pattern, _ in self._groups.of(session)}
        names = [name for name in session.subscriptions if not _may_keep(session, name, is_grouped=name in grouped)]
        if not names:
            return
        if session.durable is not None:
            yield self._subscriptions.unsubscribe(session, session.durable, names)
            return
        for name in names:
            self._subscribing.leave(session, name)

    def _refused(self, session: Session, channel: Channel, message: Message) -> Steps[str | None]:
        is_known = channel.name in META_CHANNELS or channel.name in self._channels or channel.kind is Kind.SERVICE
        if not is_known:
            reason = yield from self._guard.create(session, channel, message)
            if reason is not None:
                return denied(reason, Denied.CREATE)
        reason = yield from self._guard.subscribe(session, channel, message)
        return None if reason is None else denied(reason, Denied.SUBSCRIBE)


def _may_keep(session: Session, name: str, *, is_grouped: bool) -> bool:
    channel = parse(name)
    if channel is None or channel.is_reply:
        return True
    if channel.is_system:
        return session.is_operator
    grants = session.grants
    if grants is None:
        return True
    return grants.may_subscribe(channel) and (not is_grouped or grants.may_group(channel))
