"""What the server knows of one receiver, for the question how it stands. It is read on request; nothing is counted for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from time import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crewel.admin.cause_words import GROUP, SUBJECT, advice_of
from crewel.admin.receiver_condition import Cause, Condition, Facts, causes_of, conditions_of, trouble_of
from crewel.admin.server_view import oldest_of
from crewel.errors import StoreError
from crewel.qos.names import group_of, queue_of, shown_name, subject_queue
from crewel.storage.session_pace import usual_times
from crewel.storage.taken_elsewhere import Taken

if TYPE_CHECKING:
    from crewel.admin.server_view import ServerView
    from crewel.broker.session import Session

_MS: Final = 1000
_STOPS: Final = ("held", "token", "retry", "away")
"""The causes for which a session gets nothing."""
_MOST_ASKED: Final = 100
"""Members of a group that are asked why they take nothing: a look at each takes some 20 µs, and all are in one turn."""
PACED: Final = ("slow", "recovering")
"""The causes that depend on how much a receiver takes."""


def session_facts(admin: ServerView, session: Session, covers: Callable[[str], bool] | None = None) -> Facts:
    """Those of a session. With `covers`, which says whether a reader sees a channel: without what messages of other channels
    have left behind."""
    dispatchers, view = admin.dispatchers, session.mailbox.view()
    now, is_away = int(time() * _MS), dispatchers.is_away(session)
    facts = Facts(now, is_away, not session.subscriptions, session.takes_ptp, waiting=view.depth)
    if is_away:
        facts.away_since = int(admin.clock_ms(dispatchers.away_since(session)))
    facts.max_entries, facts.max_bytes, facts.policy = admin.bounds(session)
    if facts.waiting:
        facts.waiting_bytes = view.size
        facts.oldest = oldest_of(session)
        facts.at_client, facts.unclaimed = view.at_client, view.unclaimed
        if (sent_at := view.sent_at) is not None:
            facts.sent_at = int(admin.clock_ms(sent_at))
    if view.max_open:
        facts.max_open, facts.is_at_limit = view.max_open, view.is_at_limit
    facts.holdback, facts.rejection, facts.failure = view.holdback, view.rejection, view.failure
    if facts.holdback is not None and facts.holdback.message_id:
        facts.is_held_gone = not view.has_held
    if view.waits_until:
        facts.retry_at = int(admin.clock_ms(view.waits_until))
        facts.tries = view.failures, view.rules.retries
    facts.is_overflow_known = covers is None  # it was of any channel
    if session.name:
        facts.overflow = admin.turned_away.of(session.name) if facts.is_overflow_known else None
        facts.refused = admin.refusals.of(session.name)
        facts.rejected = admin.rejections.of(session.name, covers)
    grants = session.grants
    if grants is not None and grants.expires_at is not None and grants.has_expired(now / _MS):
        facts.token_expired_at = int(grants.expires_at * _MS)
    if session.name and covers is None:  # what made the queue grow may have been of any channel
        facts.trend = admin.backlog_trends.of(session.name, is_stopped=facts.is_stopped)
    return facts


def at_rest(admin: ServerView, session: Session) -> Condition | None:
    """Whether its client is there or away, if nothing waits for the session and nothing else is wrong with it. This is a quick
    look, for counts of very many sessions, most of which are at rest. None if only a closer look can tell."""
    if session.grants is not None or not session.mailbox.view().is_at_rest:
        return None
    if session.name in admin.rejections or admin.turned_away.of(session.name) is not None:
        return None
    if not admin.dispatchers.is_away(session):
        return Condition.CONNECTED
    return Condition.AWAY if admin.refusals.of(session.name) is None else None


def members_stand(admin: ServerView, sessions: Collection[Session]) -> Condition:
    """How a subject or a group stands whose sessions are these, as far as this node knows."""
    if any(map(admin.takes, sessions)):
        return Condition.CONNECTED
    return Condition.AWAY if sessions else Condition.UNATTENDED


def receiver_stop(admin: ServerView, session: Session) -> tuple[str, int | None]:
    """Why the session gets nothing at present, and since when, as far as that is known (milliseconds since 1970); the text is
    empty if nothing is wrong."""
    stops = (each for each in causes_of(session_facts(admin, session)) if each.kind in _STOPS)
    first = next(stops, None)
    return ("", None) if first is None else (first.text, first.details.get("since"))


def last_stop(admin: ServerView, sessions: Collection[Session]) -> tuple[int | None, str]:
    """When the last of the members of a group stopped taking messages, and why; None and nothing of a group with very many."""
    if len(sessions) > _MOST_ASKED:
        return None, ""
    stops = [(since, f"{each.name}: {cause}") for each in sessions for cause, since in [receiver_stop(admin, each)]]
    return max(stops, key=lambda stop: stop[0] or 0, default=(None, ""))


def shared_facts(admin: ServerView, queue: str, waiting: int, sessions: Collection[Session]) -> Facts:
    """Those of a subject or a consumer group, whose queue has this name, and whose members here are these sessions."""
    return Facts(
        int(time() * _MS),
        waiting=waiting,
        max_entries=admin.queues.bounds(queue).max_entries,
        trend=admin.backlog_trends.of(queue),
        members=members_stand(admin, sessions),
        is_group=group_of(queue) is not None,
    )


def stopped_since(admin: ServerView, facts: Facts, sessions: Collection[Session]) -> int | None:
    """Since when none of these members of a group takes its messages; None if one does, or if that is not known."""
    is_stopped = facts.is_group and facts.waiting > 0 and facts.members is Condition.AWAY
    return last_stop(admin, sessions)[0] if is_stopped else None


def queue_causes(causes: Iterable[Cause]) -> list[Cause]:
    """Those of the queue of a subject or a consumer group: all nodes see it alike, while each has members of its own."""
    return [each for each in causes if each.kind != "members"]


class AwaitedQueue(NamedTuple):
    """The queue of a subject or consumer group, as far as this node knows."""

    name: str
    """The receiver's."""
    queue: str
    waiting: int
    sessions: Collection[Session]


async def queue_view(admin: ServerView, awaited: AwaitedQueue) -> list[dict[str, Any]]:
    """What is wrong with the queue of a subject or a consumer group, as REST has it; nothing with an empty one, however many
    members it has."""
    if not awaited.waiting:
        return []
    facts = shared_facts(admin, awaited.queue, awaited.waiting, awaited.sessions)
    causes = _causes_view(facts, queue_causes(causes_of(facts)))
    await _add_taken(admin, [{"name": awaited.name, "causes": causes}])
    return causes


def awaited_queues(admin: ServerView) -> Iterator[AwaitedQueue]:
    """Those in which something waits."""
    for subject in admin.destinations.awaited():
        queue = subject_queue(subject)
        yield AwaitedQueue(queue, queue, admin.waiting_for(subject), admin.sessions_of(subject))
    for queue in admin.queues.names():
        if group_of(queue) is not None:
            members = admin.groups.members(queue)
            yield AwaitedQueue(shown_name(queue), queue, admin.queues.waiting(queue), members)


def _causes_view(facts: Facts, causes: list[Cause]) -> list[dict[str, Any]]:
    what = "" if facts.members is None else GROUP if facts.is_group else SUBJECT
    return [each.as_json() | {"advice": advice_of(each, causes, what)} for each in causes]


def standing(facts: Facts, causes: list[Cause]) -> dict[str, Any]:
    """How a receiver stands and why, as REST has it."""
    return {
        "conditions": [each.value for each in conditions_of(facts, causes)],
        "cause": causes[0].text if causes else "",
        "since": causes[0].details.get("since") if causes else None,
        "causes": _causes_view(facts, causes),
        "trouble": trouble_of(facts, causes),
    }


async def add_what_the_store_says(admin: ServerView, views: Sequence[dict[str, Any]]) -> None:
    """Say in causes what only the store knows. It is left out where the store does not say."""
    await _add_usual(admin, views)
    await _add_others(admin, views)
    await _add_taken(admin, views)


async def _add_usual(admin: ServerView, views: Iterable[dict[str, Any]]) -> None:
    """Say of sessions that fall behind how long a message usually waited before that: `usualMs` of that cause."""
    sessions = (view for view in views if view.get("kind", "session") == "session")
    slow = {view["name"]: each for view in sessions for each in view["causes"] if each["kind"] == "slow"}
    if not slow or not admin.access.has_store:
        return
    try:
        usual = await usual_times(admin.store, {name: each["since"] for name, each in slow.items()})
    except StoreError:
        return  # all else comes from memory
    for name, milliseconds in usual.items():
        slow[name]["usualMs"] = milliseconds


async def _add_others(admin: ServerView, views: Iterable[dict[str, Any]]) -> None:
    """Say of receivers that reject messages how many of the newest ones other receivers have taken: `othersTook` of `othersOf`
    in that cause, and in its text."""
    rejecting = [(view, each) for view in views for each in view["causes"] if each["kind"] == "rejects"]
    if not rejecting:
        return
    taken = await admin.taken_by_others()
    for view, cause in rejecting:
        took = taken.get(view["name"])
        if took is not None:
            text = f"{cause['text']}{others_text(took)}"
            cause |= {"othersTook": took.taken, "othersOf": took.of, "text": text}
            view["cause"] = view["causes"][0]["text"]


async def _add_taken(admin: ServerView, views: Iterable[dict[str, Any]]) -> None:
    """Say of receivers that fall behind or catch up how much they take: `takenPerMinute` of that cause, and in its text."""
    pace = [(view, each) for view in views for each in view["causes"] if each["kind"] in PACED]
    if not pace:
        return
    taken = await taken_lately(admin, [view["name"] for view, _ in pace])
    for view, cause in pace:
        if view["name"] in taken:
            number = taken[view["name"]]
            cause |= {"takenPerMinute": number, "text": f"{cause['text']}{taken_text(number)}"}
            view["cause"] = view["causes"][0]["text"]


async def taken_lately(admin: ServerView, names: Iterable[str]) -> dict[str, int]:
    """How many messages a minute these receivers acknowledge, or give to their members, by name: of those whose messages are
    stored, where the store says it."""
    if not admin.access.has_store:
        return {}
    taken: dict[str, int] = {}
    with suppress(StoreError):  # what it has said before holds
        for name in names:
            kind, key = _rate_of(admin, name)
            number = (await admin.rates[kind].get()).lately(key) if kind else None
            if number is not None:
                taken[name] = number
    return taken


def _rate_of(admin: ServerView, name: str) -> tuple[str, str]:
    """The kind of rate, and the key in it, of the receiver of this name; empty if it is not counted."""
    if queue := queue_of(name):
        return "group", queue
    session = admin.find(name)
    return ("receiver", name) if session is not None and session.durable is not None else ("", "")


def taken_text(per_minute: int | None) -> str:
    """How much a receiver takes; empty if that is not known."""
    if per_minute is None:
        return ""
    return f"; it takes {per_minute:,} a minute" if per_minute else "; it takes less than one a minute"


def others_text(took: Taken | None) -> str:
    """What other receivers did with messages that one rejects, which tells whether they or it are to blame; empty if that is
    not known, or there was no other."""
    if took is None or not (took.taken or took.refused):
        return ""
    return f" (other receivers took {f'{took.taken:,}' if took.taken else 'none'} of the newest {took.of:,})"


def standing_of(admin: ServerView, session: Session, covers: Callable[[str], bool] | None = None) -> dict[str, Any]:
    """How a session stands and why, for a reader who sees these channels."""
    facts = session_facts(admin, session, covers)
    return standing(facts, causes_of(facts))
