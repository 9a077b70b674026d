"""The state of a Salesforce org: tokens, PushTopics, events, the script, the faults, and what clients did. Knows no HTTP."""

from __future__ import annotations

import json
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from crewel.mock.salesforce_events import (
    ORG_ID,
    USER_ID,
    Event,
    EventLog,
    filter_of,
    hash_of,
    is_well_formed,
    matches,
    topic_of,
)
from crewel.mock.script import Script

if TYPE_CHECKING:
    from crewel.broker.session import Session

CONCURRENT: Final = {"unlimited": 2000, "performance": 2000, "enterprise": 1000, "developer": 20}
"""The most clients at a time, by edition."""
DAILY: Final = {"unlimited": 1_000_000, "performance": 1_000_000, "enterprise": 200_000, "developer": 50_000}
"""The most events that are delivered within 24 hours, by edition."""
LIFETIME_S: Final = 3 * 3600.0
"""Seconds after which the org forgets a session, whatever its client does."""
USERNAME: Final = "user@example.com"
_NO_END: Final = sys.maxsize
_QUERY: Final = re.compile(r"\s*SELECT\s+(.+?)\s+FROM\s+(\w+)\b.*", re.IGNORECASE | re.DOTALL)


@dataclass(slots=True)
class Record:
    """One Bayeux message of a client, in the history."""

    at: float
    """Virtual time, seconds since the start."""
    operation: str
    message: dict[str, Any]
    client: str
    """User name and user agent: they identify a client over all its sessions."""
    fault: str = ""
    """The fault that the request met; empty for none."""
    error: str = ""
    """The error of the reply; empty if it was successful."""


@dataclass(slots=True)
class Interest:
    """The events that one client must get for one subscription, over all its sessions."""

    channel: str
    user_id: str
    spans: list[range] = field(default_factory=list)
    """Ids of the events that it must get: from a subscribe to the next unsubscribe, or without an end."""
    delivered: dict[int, int] = field(default_factory=dict)
    """Ids of the events that were sent to it, and how often."""
    sessions: set[Session] = field(default_factory=set)
    """Those that have the subscription, and perhaps some that have ended."""

    @property
    def is_open(self) -> bool:
        """Whether it must get what is published from now on."""
        return bool(self.spans) and self.spans[-1].stop == _NO_END


@dataclass(slots=True)
class Org:
    """One org. `now` returns seconds since 1970, in virtual time."""

    now: Callable[[], float]
    edition: str = "enterprise"
    accepts_bearer: bool = True
    channels: frozenset[str] | None = None
    """The only channels of the org; None for all with a name that Salesforce could have."""
    tokens: dict[str, str] = field(default_factory=dict)
    """Valid tokens and their users."""
    refresh_tokens: dict[str, str] = field(default_factory=dict)
    topics: dict[str, dict[str, Any]] = field(default_factory=dict)
    """PushTopics by name."""
    entities: dict[str, frozenset[str]] = field(default_factory=dict)
    """Objects and their fields. The PushTopic of another object may name any field."""
    generic: dict[str, str] = field(default_factory=dict)
    """Generic channels by their record ids."""
    records: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """All other records that clients have created: their fields by object and id."""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    """Of the records, for their ids."""
    log: EventLog = field(default_factory=EventLog)
    script: Script = field(default_factory=Script)
    faults: dict[str, float] = field(default_factory=dict)
    """Faults that are added, and the seconds of a delay."""
    history: list[Record] = field(default_factory=list)
    interests: dict[tuple[str, str], Interest] = field(default_factory=dict)
    delivered_today: list[float] = field(default_factory=list)
    started_at: float = 0.0

    def __post_init__(self) -> None:
        if self.edition not in CONCURRENT:
            raise ValueError(f"there is no edition {self.edition!r}; known are {', '.join(CONCURRENT)}")
        self.started_at = self.now()

    def reset(self) -> None:
        """Forget the events, the script, the faults, and what clients did."""
        self.log, self.script = EventLog(), Script()
        for kept in (self.faults, self.history, self.interests, self.delivered_today):
            kept.clear()

    # Logins

    def new_token(self, username: str = USERNAME) -> str:
        """Return a new token for this user, such as OAuth and SOAP return."""
        token = f"{ORG_ID[:15]}!AQ{secrets.token_urlsafe(24).replace('-', '.')}"
        self.tokens[token] = username
        return token

    def revoke(self, token: str | None = None) -> None:
        """Revoke this token, or all tokens."""
        if token is None:
            self.tokens.clear()
        else:
            self.tokens.pop(token, None)

    @staticmethod
    def user_id(username: str) -> str:
        """The id of the record of this user."""
        return USER_ID if username == USERNAME else f"005{hash_of(username) % 10**12:012d}AAA"

    def user_of(self, authorization: str) -> str | None:
        """The user of an Authorization header; None if its token is not valid."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "oauth" or (scheme.lower() == "bearer" and self.accepts_bearer):
            return self.tokens.get(token.strip())
        return None

    # Channels and events

    def has_channel(self, name: str) -> bool:
        """Whether a client may subscribe to it."""
        if self.channels is None:
            return is_well_formed(name)
        return is_well_formed(name) and any(matches(topic_of(name), each) for each in self.channels)

    def missing_fields(self, subscription: str) -> list[str]:
        """The fields that the query of this PushTopic names and its object has not; if there are none, those of the filter that
        the query does not name."""
        channel = topic_of(subscription)
        topic = self.topics.get(channel.removeprefix("/topic/"))
        found = _QUERY.fullmatch(topic["Query"]) if topic and channel.startswith("/topic/") else None
        if found is None:
            return []
        queried = re.split(r"\s*,\s*", found[1])
        known = {each.lower() for each in self.entities.get(found[2], queried)} | {"id"}
        missing = [name for name in queried if name.lower() not in known]
        filtered = [name for name, _ in filter_of(subscription)]
        return missing or [name for name in filtered if name.lower() not in {each.lower() for each in queried}]

    def publish(self, channel: str, data: Any, age: float = 0.0, **more: Any) -> Event:
        """Keep a new event; `more` as `EventLog.publish` has it. Raises ValueError for a channel that there
        cannot be, and TypeError for data that has the wrong form."""
        if not is_well_formed(channel) or "?" in channel:
            raise ValueError(
                f"{channel!r} is not a channel of Salesforce: expected /topic/…, /u/…, /event/…__e, /data/…ChangeEvent"
            )
        return self.log.publish(channel, data, self.now(), age, **more)

    def is_over_daily_limit(self) -> bool:
        """Whether the events of the last 24 hours are used up."""
        since = self.now() - 86_400
        if len(self.delivered_today) >= DAILY[self.edition]:
            self.delivered_today = [each for each in self.delivered_today if each > since]
        return len(self.delivered_today) >= DAILY[self.edition]

    # What clients did

    def record(self, operation: str, message: Mapping[str, Any], client: str) -> Record:
        """Put a message of a client into the history."""
        record = Record(self.now() - self.started_at, operation, dict(message), client)
        self.history.append(record)
        return record

    def subscribes(self, session: Session, client: str, user_id: str, channel: str, replay_id: int) -> None:
        """A session of a client has subscribed. The events that the client must get begin with its first subscription, or
        with the one after an unsubscribe."""
        interest = self.interests.setdefault((client, channel), Interest(channel, user_id))
        interest.sessions.add(session)
        if not interest.is_open:
            last = {-1: self.log.newest(channel), -2: 0}.get(replay_id, replay_id)
            interest.spans.append(range(last + 1, _NO_END))

    def unsubscribes(self, session: Session, client: str, channel: str) -> None:
        """A session of a client has unsubscribed. After the last one, the client need not get what is published until it
        subscribes again."""
        interest = self.interests.get((client, channel))
        if interest is None:
            return
        interest.sessions = {each for each in interest.sessions if each.is_live} - {session}
        if interest.is_open and not interest.sessions:
            interest.spans.append(range(interest.spans.pop().start, self.log.newest(channel) + 1))

    def delivers(self, client: str, channel: str, replay_id: int) -> None:
        """An event was sent to a client, as a message on this channel."""
        self.delivered_today.append(self.now())
        for (who, pattern), interest in self.interests.items():
            is_meant = pattern == channel or (pattern.startswith("/u/") and matches(pattern, channel))
            if who == client and is_meant:
                interest.delivered[replay_id] = interest.delivered.get(replay_id, 0) + 1

    def delivered(self, channel: str) -> list[int]:
        """The ids of all events of this channel, or for a subscription of this name, that were sent to clients: with repeats,
        in the order of ids."""
        return sorted(
            replay_id
            for interest in self.interests.values()
            for replay_id, times in interest.delivered.items()
            if channel in (interest.channel, self.log.channel_of(replay_id))
            for _ in range(times)
        )

    def missed(self) -> dict[str, list[int]]:
        """By channel, the ids of retained events that were not sent to a client that must get them."""
        found: dict[str, list[int]] = {}
        for interest in self.interests.values():
            retained = self.log.retained(interest.channel, self.now(), interest.user_id)
            expected = [each.replay_id for each in retained if any(each.replay_id in span for span in interest.spans)]
            missing = [each for each in expected if each not in interest.delivered]
            if missing:
                found.setdefault(interest.channel, []).extend(missing)
        return found

    def shown_history(self) -> list[dict[str, Any]]:
        """The history as JSON objects."""
        return [json.loads(json.dumps(asdict(each), default=str)) for each in self.history]


def login_answer(org: Org, username: str, instance_url: str, *, is_refreshable: bool) -> dict[str, Any]:
    """The answer of the token endpoint, with a new token."""
    return {
        "access_token": org.new_token(username),
        "instance_url": instance_url,
        "id": f"{instance_url}/id/{ORG_ID}/{org.user_id(username)}",
        "issued_at": str(int(org.now() * 1000)),
        "signature": secrets.token_urlsafe(32) + "=",
        "token_type": "Bearer",
        **({"refresh_token": _refresh(org, username)} if is_refreshable else {}),
    }


def _refresh(org: Org, username: str) -> str:
    token = "5Aep" + secrets.token_urlsafe(24)
    org.refresh_tokens[token] = username
    return token
