"""A small model of shared queues: what send, lease, requeue, commit and end do with them, on plain values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from crewel.delivery.records import LogId


@dataclass
class Message:
    """A message in a queue, or in an inbox."""

    priority: int
    source: str
    attempts: int = 0
    failed: tuple[str, ...] = ()


@dataclass
class SharedModel:
    """All queues, inboxes and memberships. A queue of which nobody is a member, `group:`, keeps nothing."""

    queues: dict[str, dict[LogId, Message]] = field(default_factory=dict)
    inboxes: dict[str, dict[LogId, Message]] = field(default_factory=dict)
    receivers: dict[tuple[LogId, str], set[str]] = field(default_factory=dict)
    """Who has a subject's message open, and with a `!` for whom it has ended without being settled."""
    members: dict[str, set[str]] = field(default_factory=dict)
    ends: list[tuple[str, str, LogId]] = field(default_factory=list)
    """Who, how, what."""

    def order(self, queue: str) -> list[LogId]:
        waiting = self.queues.get(queue, {})
        return sorted(waiting, key=lambda each: (-waiting[each].priority, each))

    def enqueue(self, queue: str, log_id: LogId, message: Message) -> None:
        self.queues.setdefault(queue, {})[log_id] = message

    def box(self, name: str, log_id: LogId, message: Message) -> None:
        self.inboxes[name][log_id] = message
        if message.source.startswith("client/"):
            self.receivers.setdefault((log_id, message.source), set()).add(name)

    def lease(self, queue: str, room: dict[str, int]) -> list[tuple[str, LogId]]:
        leased = []
        for log_id in self.order(queue):
            message = self.queues[queue][log_id]
            able = [each for each in room if each not in message.failed]
            first = [next(iter(room))] if not queue.startswith("client/") else []
            free = [each for each in able if room[each] > 0] if able else first
            free = [each for each in free if log_id not in self.inboxes[each]]
            if not free:
                if not any(each > 0 for each in room.values()):
                    break
                continue
            name = max(free, key=lambda each: room[each])
            room[name] -= 1
            del self.queues[queue][log_id]
            self.box(name, log_id, message)
            leased.append((name, log_id))
        return leased

    def finish(self, name: str, ids: Iterable[LogId], how: str) -> None:
        for log_id in ids:
            message = self.inboxes[name].pop(log_id)
            key = log_id, message.source
            if how == "settled":
                self.receivers.pop(key, None)
            elif self._open_less(key, name) and key in self.receivers:
                self.receivers[key].add(f"!{name}")
            self.ends.append((name, how, log_id))

    def _open_less(self, key: tuple[LogId, str], name: str) -> bool:
        """Whether the session was one of those who had it open."""
        known = self.receivers.get(key, set())
        was_open = name in known
        known.discard(name)
        if not any(each for each in known if not each.startswith("!")):
            self.receivers.pop(key, None)
        return was_open

    def give_back(self, name: str, log_id: LogId, attempts: int, *, has_failed: bool) -> str:
        """How it ends for the session: 'returned', 'lapsed', or '' if it cannot go back."""
        message = self.inboxes[name][log_id]
        source = message.source
        if not source:
            return ""
        if source.startswith("group:") and not self.members.get(source):
            return "lapsed"
        failed = message.failed
        if source.startswith("client/"):
            known = sorted(self.receivers.get((log_id, source), ()))
            if not self._open_less((log_id, source), name):
                return "returned"  # another session of the subject has settled it
            if self.receivers.get((log_id, source)):
                return "returned"
            failed += tuple(each[1:] for each in known if each.startswith("!"))
        if has_failed and name not in failed:
            failed += (name,)
        self.enqueue(source, log_id, Message(message.priority, source, attempts, failed))
        return "returned"

    def requeue(self, name: str, ids: Sequence[LogId], attempts: int, *, has_failed: bool) -> None:
        for log_id in ids:
            source = self.inboxes[name][log_id].source
            if not has_failed and source.startswith("group:") and not self.members.get(source, set()) - {name}:
                continue  # it keeps what no other member may have
            how = self.give_back(name, log_id, attempts, has_failed=has_failed)
            if how == "returned":
                del self.inboxes[name][log_id]
                self.ends.append((name, how, log_id))

    def end(self, name: str, returning: Collection[LogId], settled: Collection[LogId], *, makes_letters: bool) -> None:
        """`returning` are those that the owner knows of; what nobody names and cannot go back dies."""
        for queue in list(self.members):
            self.leave(queue, name)
        self.finish(name, settled, "settled")
        for log_id in list(self.inboxes[name]):
            attempts = 1 if log_id in returning else self.inboxes[name][log_id].attempts
            how = self.give_back(name, log_id, attempts, has_failed=False)
            if not how or (how == "lapsed" and log_id in returning):
                how = "dead" if makes_letters or log_id not in returning else "lapsed"
            self.ends.append((name, how, log_id))
        del self.inboxes[name]

    def leave(self, queue: str, name: str) -> None:
        self.members[queue].discard(name)
        if not self.members[queue]:
            self.ends += [(queue, "lapsed", log_id) for log_id in self.order(queue)]
            self.queues.pop(queue, None)
