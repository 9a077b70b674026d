"""What the holder of a token may do: the channels and patterns that were granted, and until when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import Any, Final

from crewel.bayeux.channel import Channel, parse
from crewel.qos.names import is_subject

ANY_SUBJECT: Final = "*"
"""In a list of subjects: all of them."""


class Role(IntEnum):
    """What an operator may do; each role includes those before it."""

    VIEW = 1
    """See everything, change nothing."""
    OPERATE = 2
    """Also act where no message is lost: hold, activate, retry, drain, redrive."""
    DESTROY = 3
    """Also what cannot be undone: end sessions, drop messages, discard dead letters, erase topics, change settings."""

    @property
    def word(self) -> str:
        """Its name in claims and answers: `view`."""
        return self.name.lower()


Parts = tuple[tuple[Role, frozenset[str]], ...]
"""Roles, each with the patterns of the channels that it holds for."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The roles of one operator, and where they hold."""

    role: Role | None = None
    """On all channels, and for the server as a whole; None: none."""
    parts: Parts = ()

    @property
    def highest(self) -> Role | None:
        """The highest of the roles; None: this is no operator."""
        return max((role for role in (self.role, *(role for role, _ in self.parts)) if role is not None), default=None)

    def allows(self, needed: Role, channel: Channel | None = None) -> bool:
        """Whether the role holds for this channel or pattern; without one, for all."""
        if self.role is not None and self.role >= needed:
            return True
        return channel is not None and any(role >= needed and _covers(names, channel) for role, names in self.parts)

    def patterns(self, needed: Role) -> frozenset[str]:
        """The patterns for which the role holds; none if it holds for all channels."""
        if self.allows(needed):
            return frozenset()
        return frozenset[str]().union(*(names for role, names in self.parts if role >= needed))

    def as_claim(self) -> str | list[str]:
        """The claim that says the same."""
        if not self.parts:
            return "" if self.role is None else self.role.word
        everywhere = [] if self.role is None else [self.role.word]
        return everywhere + [f"{role.word}:{name}" for role, names in self.parts for name in sorted(names)]


@dataclass(frozen=True, slots=True)
class Grants:
    """One token's content."""

    subject: str = ""
    """Who it is; empty for the admin token, which may take any name."""
    subscribe: frozenset[str] = frozenset()
    publish: frozenset[str] = frozenset()
    configure: frozenset[str] = frozenset()
    """Channels and patterns whose topics may be configured: history, readonly, destroyDelay, erase."""
    group: frozenset[str] = frozenset()
    """Channels and patterns that may be subscribed to as a member of a consumer group."""
    address: frozenset[str] = frozenset()
    """Subjects that may be addressed, or `*`."""
    presence: frozenset[str] = frozenset()
    """Channels and patterns on which sessions may be present, and whose members they may see."""
    role: Role | None = None
    """What the holder may do as an operator; None: the holder is none."""
    parts: Parts = ()
    """Further roles of the holder as an operator, for some channels. They count in `/admin/api` only."""
    expires_at: float | None = None
    """Seconds since 1970; None: never."""
    is_feed: bool = False
    """Whether it is the token of a page's live feed: its session is no receiver of the application."""
    page: str = ""
    """The id of the sign-in of a page that it holds by, and ends with; empty if it does not."""
    by_policy: bool = False
    """Whether they say only who it is: the policy of an application is asked about each right."""

    @property
    def scope(self) -> Scope:
        """The roles of the holder as an operator."""
        return Scope(self.role, self.parts)

    @property
    def is_operator(self) -> bool:
        """Whether the holder is an operator for the server as a whole, of any role."""
        return self.role is not None

    def may_subscribe(self, channel: Channel) -> bool:
        """Whether a pattern was granted that covers this channel or pattern."""
        return _covers(self.subscribe, channel)

    def may_publish(self, channel: Channel) -> bool:
        """Whether a pattern was granted that covers this channel."""
        return _covers(self.publish, channel)

    def may_configure(self, channel: Channel) -> bool:
        """Whether the topic of this channel may be configured and erased."""
        return _covers(self.configure, channel)

    def may_group(self, channel: Channel) -> bool:
        """Whether this channel or pattern may be subscribed to as a member of a consumer group."""
        return _covers(self.group, channel)

    def may_be_present(self, channel: Channel) -> bool:
        """Whether a session may be present on this channel, and see its members."""
        return _covers(self.presence, channel)

    def may_address(self, subject: str) -> bool:
        """Whether messages may be addressed to this subject and its sessions."""
        return subject in self.address or ANY_SUBJECT in self.address

    @property
    def identity(self) -> str:
        """A text that stands for this subject and no other: the subject, if a session can be called so. Else it is a text that
        begins with two underscores, as no subject of a session does. The admin token's is `__admin`."""
        if not self.subject:
            return "__admin"
        if is_subject(self.subject):
            return self.subject
        return f"__{sha256(self.subject.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"

    def has_expired(self, now: float) -> bool:
        """Whether they hold no more, `now` in seconds since 1970."""
        return self.expires_at is not None and self.expires_at <= now

    def as_json(self) -> dict[str, Any]:
        """What is stored with a session that survives the server."""
        lists = {name: sorted(getattr(self, name)) for name in _LISTS}
        stored = {"subject": self.subject, **lists, "expires": self.expires_at}
        if self.by_policy:
            stored["byPolicy"] = True
        if self.is_feed:
            stored |= {"feed": True, "page": self.page}
        return stored if self.role is None else stored | {"role": self.role.word}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Grants:
        """What `as_json` stored."""
        lists: dict[str, Any] = {name: frozenset(stored.get(name, ())) for name in _LISTS}
        role = role_of(stored.get("role"))
        by_policy = bool(stored.get("byPolicy"))
        return cls(
            stored["subject"],
            **lists,
            role=role,
            expires_at=stored["expires"],
            is_feed=bool(stored.get("feed")),
            page=stored.get("page", ""),
            by_policy=by_policy,
        )


_LISTS: Final = ("subscribe", "publish", "configure", "group", "address", "presence")
"""What is granted one by one."""
_ALL: Final = frozenset({"/**"})
OPERATOR: Final = Grants("", _ALL, _ALL, _ALL, _ALL, frozenset({ANY_SUBJECT}), _ALL, role=Role.DESTROY)
"""What the admin token grants: everything that clients can be granted."""


def restored_grants(stored: dict[str, Any] | None, *, asks_for_tokens: bool) -> Grants | None:
    """The grants that were stored with a session. Those of an application's policy are none where tokens are asked for: the
    server had another policy then."""
    grants = None if stored is None else Grants.from_json(stored)
    return None if grants is not None and grants.by_policy and asks_for_tokens else grants


def role_of(claim: object) -> Role | None:
    """The role that a claim gives: true gives all rights, a role's word that role, and anything else none."""
    if claim is True:
        return Role.DESTROY
    return next((role for role in Role if claim == role.word), None)


def scope_of(claim: object) -> Scope:
    """The roles that a claim gives: as `role_of`, or a text or a list of texts such as `operate:/orders/**`, a role for the
    channels of a pattern. Raises ValueError for such a text that is neither."""
    if not (isinstance(claim, list) or (isinstance(claim, str) and ":" in claim)):
        return Scope(role_of(claim))
    everywhere: list[Role] = []
    parts: list[tuple[Role, frozenset[str]]] = []
    for text in claim if isinstance(claim, list) else [claim]:
        word, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
        role = role_of(word)
        if role is None:
            raise ValueError(f"{text!r} is not a role, such as view or operate:/orders/**")
        if colon:
            parts.append((role, patterns([name])))
        else:
            everywhere.append(role)
    return Scope(max(everywhere, default=None), tuple(parts))


def patterns(listed: Iterable[object]) -> frozenset[str]:
    """These texts as patterns. Raises ValueError for one that is none."""
    names = set()
    for text in listed:
        channel = parse(text) if isinstance(text, str) else None
        if channel is None:
            raise ValueError(f"{text!r} is not a channel or a pattern")
        names.add(channel.name)
    return frozenset(names)


def subjects(listed: Iterable[object]) -> frozenset[str]:
    """These texts as subjects, or `*`. Raises ValueError for one that is neither."""
    names = set()
    for text in listed:
        if not isinstance(text, str) or not (text == ANY_SUBJECT or is_subject(text)):
            raise ValueError(f"{text!r} is neither a subject nor {ANY_SUBJECT}")
        names.add(text)
    return frozenset(names)


def _covers(granted: frozenset[str], channel: Channel) -> bool:
    if granted.isdisjoint(channel.patterns):
        return False
    # `/a/**` as a name would match `/a/*`, as a pattern it is the wider one.
    narrower = channel.name[:-1] if channel.name.endswith("/**") else ""
    return any(pattern in granted for pattern in channel.patterns if pattern != narrower)
