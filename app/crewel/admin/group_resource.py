"""The REST resource of one consumer group: its queue, its members, and which of them has what."""

from __future__ import annotations

from itertools import chain
from typing import Final

from crewel.admin.cause_words import GROUP as GROUP_QUEUE
from crewel.admin.cause_words import usual_advice
from crewel.admin.example import Example
from crewel.admin.merges import Parts, Row, longest, merged
from crewel.admin.operation import About
from crewel.admin.receiver_facts import AwaitedQueue, queue_view, receiver_stop
from crewel.admin.request_fields import text_field
from crewel.admin.route import Ask, NotThere, Route
from crewel.bayeux.channel import parse
from crewel.broker.session import Session
from crewel.qos.names import group_queue

GROUP: Final = "/groups/{channel}"
"""The path of the resource."""
_MOST_IDS: Final = 20


async def _show(ask: Ask) -> Row:
    pattern, name = "/" + ask.path["channel"], ask.fields["name"]
    admin, queue = ask.admin, group_queue(pattern, name)
    groups, queues = admin.groups, admin.queues
    members = groups.members(queue)
    waiting = queues.waiting(queue)
    is_there = members or waiting or queue in groups.kept or queue in groups.elsewhere
    if not is_there or parse(pattern) is None:
        raise NotThere(f"there is no group {name[:128]} on {pattern[:128]}: it has neither members nor messages")
    first = await queues.peek(queue, 1)
    next_id = str(first[0].position) if first else None
    return {
        "pattern": pattern,
        "name": name,
        "waiting": waiting,
        "maxEntries": queues.bounds(queue).max_entries,
        "advice": usual_advice("members", GROUP_QUEUE),
        "causes": await queue_view(admin, AwaitedQueue(f"{pattern} {name}", queue, waiting, members)),
        "next": next_id,
        "oldest": int(next_id) // 1000 if next_id else None,
        "kept": queue in groups.kept,
        "members": [_member(ask, session, queue) for session in members],
    }


def _member(ask: Ask, session: Session, queue: str) -> Row:
    admin = ask.admin
    # What stopped it may be a message of another channel.
    cause, since = receiver_stop(admin, session) if ask.covers_session(session) else ("", None)
    mine = sorted(place for place, each in session.mailbox.view().inbox.items() if each.source == queue)
    return {
        "name": session.name,
        "node": admin.node,
        "state": admin.dispatchers.state(session).value,
        "held": session.mailbox.view().holdback is not None,
        "cause": cause,
        "since": since,
        "open": len(mine),
        "oldest": mine[0] // 1000 if mine else None,
        "messages": [str(place) for place in mine[:_MOST_IDS]],
    }


def _as_one(views: list[Row], _: object) -> Row:
    """What several nodes have of one group: the queue is that of the store, and each node has its own members."""
    best = max(views, key=lambda view: (view["waiting"], view["next"] is not None))
    # Only a node with a member that takes messages knows of some causes.
    return merged(views, best, causes=longest, kept=any, members=_by_name)


def _by_name(members: list[list[Row]]) -> list[Row]:
    return sorted(chain.from_iterable(members), key=lambda each: str(each["name"]))


GROUP_ROUTES: Final = (
    Route(
        "GET",
        GROUP,
        "Show one consumer group.",
        _show,
        "`pattern`, `name`, `waiting` (its lag: messages that no member has yet), `maxEntries`, `causes` (what is wrong with"
        " its queue, as in the list of receivers), `advice`, `next`, `oldest`, `kept` (whether it keeps its messages without"
        " members) and `members`, a list. `advice`: what to do if no member takes its messages. `next` is its position: the id"
        " of the message that a member gets next, or null; `oldest` is when that was published. A member has `name`, `node`,"
        " `state`, `held`, `open` (how many messages of the group it has), `oldest` (when the oldest of those was published,"
        " or null) and `messages` (ids of the first 20). Its `cause` and `since` say why it gets nothing, and since when:"
        " empty and null also if the operator's role does not cover the member.",
        Example({"name": "cooks"}, {"name": "cooks", "members": [{"name": "client/bob/1", "held": True}]}),
        query=(
            text_field("name", "The name of the group.", required="the name of a group on the pattern in the path"),
        ),
        refusals={404: "There is no such group: it has neither members nor messages."},
        about=About.CHANNEL,
        merge=Parts(_as_one, may_lack=True),
    ),
)
