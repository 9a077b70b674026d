"""Whether the store adds up: the ledger of docs/reference/facts.md, from facts, letters, open sets, inboxes, shared queues
and histories and nothing else.

`look` takes all of it in one step of the store, so that `Audit` must find it exact at any moment, also right after a kill.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import redis

from crewel.bayeux.channel import parse

Letter = dict[str, str]

_LOOK = """
local base, found = ARGV[1], {}
local function all(pattern, command, ...)
  local rows = {}
  for _, key in ipairs(redis.call('KEYS', base .. pattern)) do
    rows[#rows + 1] = {string.sub(key, #base + 1), redis.call(command, key, ...)}
  end
  return rows
end
return {
  redis.call('XRANGE', base .. 'facts', '-', '+'),
  redis.call('XRANGE', base .. 'dead', '-', '+'),
  all('s:*', 'HGETALL'),
  all('inbox:*', 'HKEYS'),
  all('node:*', 'HGET', 'cursor'),
  all('dead:code:*', 'XRANGE', '-', '+'),
  all('dead:receiver:*', 'XRANGE', '-', '+'),
  all('dead:channel:*', 'XRANGE', '-', '+'),
  redis.call('ZRANGE', base .. 'dead:codes', 0, -1),
  redis.call('ZRANGE', base .. 'dead:receivers', 0, -1),
  redis.call('ZRANGE', base .. 'dead:channels', 0, -1),
  redis.call('GET', base .. 'dead:dropped') or '0',
  all('q:*', 'ZRANGE', 0, -1),
  all('qb:*', 'HKEYS'),
  redis.call('ZRANGE', base .. 'queues', 0, -1),
  all('ptp:*', 'SMEMBERS'),
  all('h:*', 'XRANGE', '-', '+'),
  redis.call('SMEMBERS', base .. 'topics'),
  redis.call('HKEYS', base .. 'dead:bin'),
  redis.call('ZRANGE', base .. 'dead:bin:at', 0, -1),
  redis.call('ZRANGE', base .. 'scheduled', 0, -1),
  redis.call('HKEYS', base .. 'scheduled:messages'),
  redis.call('HVALS', base .. 'scheduled:held'),
}
"""


class HasStore(Protocol):
    """A server, or what has its settings."""

    @property
    def store_sets(self) -> tuple[str, ...]: ...


def store_of(server: HasStore) -> redis.Redis:
    """A client of the server's store, whichever that is."""
    sets = dict(text.removeprefix("storage.").split("=", 1) for text in server.store_sets)
    socket = sets["url"].removeprefix("unix://") or str(Path(sets["data_dir"]) / "store.sock")
    return redis.Redis(unix_socket_path=socket, decode_responses=True)


@dataclass(slots=True)
class Account:
    """One life of a session: what it was owed, and how that ended."""

    session: str
    intervals: list[tuple[str, int, int | None]] = field(default_factory=list)
    """(pattern, from, until]; None: it still holds."""
    given: set[int] = field(default_factory=set)
    """What it was owed beside the log: addressed to it, leased to it, sent again."""
    redriven: set[int] = field(default_factory=set)
    """Of these, letters that were sent again."""
    ends: dict[int, tuple[str, str]] = field(default_factory=dict)
    """How each message ended: reason and code."""
    past: list[tuple[int, str, str]] = field(default_factory=list)
    """Earlier ends (log id, reason, code) of messages that it was given once more: they had been back in a shared queue."""
    is_closed: bool = False

    def owed(self, published: Mapping[int, str]) -> set[int]:
        """The ids of all that the session was ever owed."""
        return self.given | {
            log_id
            for log_id, channel in published.items()
            for patterns in (patterns_of(channel),)
            if any(
                pattern in patterns and since < log_id and (until is None or log_id <= until)
                for pattern, since, until in self.intervals
            )
        }


class Audit:
    """What the store says of one prefix, at one moment."""

    def __init__(self, server: HasStore) -> None:
        prefix = next(text.partition("=")[2] for text in server.store_sets if text.startswith("storage.prefix="))
        with store_of(server) as client:
            found: Any = client.eval(_LOOK, 0, prefix + "{crewel}:")
        (
            facts,
            letters,
            sessions,
            inboxes,
            cursors,
            *indexes,
            dropped,
            queues,
            bodies,
            names,
            common,
            histories,
            topics,
            binned,
            binned_at,
            due,
            due_messages,
            due_held,
        ) = found
        self._bin, self._binned_at = set(binned), set(binned_at)
        self.facts: list[tuple[str, dict[str, Any]]] = [
            (fields["t"], json.loads(fields["d"])) for fields in (_paired(flat) for _, flat in facts)
        ]
        self.letters: dict[str, Letter] = {place: _paired(flat) for place, flat in letters}
        self.sessions = {key.removeprefix("s:"): _paired(flat) for key, flat in sessions}
        self.inboxes = {key.removeprefix("inbox:"): {int(each) for each in ids} for key, ids in inboxes}
        self.dropped = int(dropped)
        self.queues = {key.removeprefix("q:"): {int(each.partition(":")[2]) for each in ids} for key, ids in queues}
        """What waits in each shared queue."""
        self.histories = {
            key.removeprefix("h:"): {int(place.partition("-")[0]): _paired(flat) for place, flat in entries}
            for key, entries in histories
        }
        """Channel -> log id -> fields, in their order."""
        self._bodies = {key.removeprefix("qb:"): set(map(int, ids)) for key, ids in bodies}
        self._names, self._topics = set(names), set(topics)
        self._common = {key.removeprefix("ptp:"): set(members) for key, members in common}
        self._cursors = {key.removeprefix("node:"): int(cursor) for key, cursor in cursors}
        self._indexes = indexes
        self.published: dict[int, str] = {}
        """Log id -> channel, of all that whoever is subscribed is owed."""
        self.addressed: dict[int, str] = {}
        """Log id -> channel, of what was put beside the log."""
        self.kept: dict[int, str] = {}
        """Log id -> empty, of what went into a history and was told to nobody."""
        self.queued: dict[str, set[int]] = {}
        """What should wait in each shared queue."""
        self.queue_ends: dict[str, dict[int, tuple[str, str]]] = {}
        """Queue -> log id -> reason and code, of what ended there."""
        self.scheduled: set[int] = set()
        """Ids of all messages that were scheduled."""
        self.published_as: dict[int, int] = {}
        """Of those that were published: their ids since."""
        self.cancelled: set[int] = set()
        """Of those that were cancelled."""
        self.due = {int(each) for each in due}
        """Those that wait for their time."""
        self._due_messages, self._due_held = set(map(int, due_messages)), sum(map(int, due_held))
        self.erased: Counter[str] = Counter()
        """How often each topic was erased."""
        self.accounts: list[Account] = []
        self.redriven: list[dict[str, Any]] = []
        self.discarded: list[str] = []
        self._replay()
        self.waiting = {
            account.session: account.owed(self.published) - account.ends.keys()
            for account in self.accounts
            if not account.is_closed
        }

    @property
    def is_read(self) -> bool:
        """Whether the server has taken all that was published, and each session all that it was given beside that, as far as
        the store was told."""
        last = max([*self.published, *(each["id"] for each in self.redriven)], default=0)
        living = (account for account in self.accounts if not account.is_closed)
        return all(cursor >= last for cursor in self._cursors.values()) and all(
            self._cursor(account.session) >= max(account.given, default=0) for account in living
        )

    def _cursor(self, session: str) -> int:
        """Up to where the log is accounted for in this session."""
        record = self.sessions[session]
        return int(record["at"]) if "at" in record else self._cursors[record["owner"]]

    @property
    def ends(self) -> Counter[str]:
        """How many messages ended, by reason, counted once for each receiver."""
        ends = Counter(reason for account in self.accounts for reason, _ in account.ends.values())
        return ends + Counter(reason for account in self.accounts for _, reason, _ in account.past)

    @property
    def ends_in_queues(self) -> Counter[str]:
        """How many messages ended in shared queues, by reason; not those that expired, which the store removes by itself."""
        reasons = Counter(reason for ends in self.queue_ends.values() for reason, _ in ends.values())
        return Counter({reason: count for reason, count in reasons.items() if reason != "expired"})

    @property
    def owed(self) -> int:
        """Published messages x matching intervals + what was given beside the log, each time."""
        return sum(len(account.owed(self.published)) + len(account.past) for account in self.accounts)

    def of(self, session: str) -> list[Account]:
        """The lives of a session, oldest first."""
        return [account for account in self.accounts if account.session == session]

    # Replaying the facts

    def _replay(self) -> None:
        living: dict[str, Account] = {}
        for kind, fact in self.facts:
            match kind:
                case "published":
                    for log_id, channel in enumerate(fact["channels"], fact["first"]):
                        (self.published if channel else self.kept)[log_id] = channel
                    for log_id, message_id in fact.get("scheduled", {}).items():
                        assert message_id not in self.published_as, f"{message_id} was published twice"
                        self.published_as[message_id] = int(log_id)
                case "scheduled":
                    assert fact["id"] not in self.scheduled
                    self.scheduled.add(fact["id"])
                case "cancelled":
                    assert not (again := self.cancelled & set(fact["ids"])), f"{again} were cancelled twice"
                    self.cancelled |= set(fact["ids"])
                case "addressed":
                    self._address(living, fact)
                case "leased":
                    for lease in fact["leases"]:
                        _give(living[lease["session"]], lease["ids"])
                        self._take_out(fact["queue"], lease["ids"])
                case "returned":
                    assert not (there := self._queue(fact["queue"]) & set(fact["ids"])), f"{there} came back twice"
                    self._queue(fact["queue"]).update(fact["ids"])
                case "erased":
                    self.erased[fact["channel"]] += 1
                case "opened-session":
                    assert fact["session"] not in living, f"{fact['session']} was opened twice"
                    living[fact["session"]] = Account(fact["session"])
                    self.accounts.append(living[fact["session"]])
                case "subscribed":
                    living[fact["session"]].intervals += [(pattern, fact["from"], None) for pattern in fact["patterns"]]
                case "unsubscribed":
                    _unsubscribe(living[fact["session"]], fact)
                case "ended":
                    for each in fact["ended"]:
                        if each["session"] in self.queued and each["session"] not in living:
                            self._take_out(each["session"], each["ids"])
                            ends = self.queue_ends.setdefault(each["session"], {})
                            ends |= dict.fromkeys(each["ids"], (each["reason"], each.get("code", "")))
                        else:
                            self._end(living[each["session"]], each)
                case "redriven":
                    self.redriven.append(fact)
                    if fact.get("session") in living:
                        living[fact["session"]].redriven.add(fact["id"])
                        _give(living[fact["session"]], [fact["id"]])
                    elif "session" in fact:
                        self._queue(fact["session"]).add(fact["id"])
                case "discarded":
                    self.discarded += fact["letters"]
                case "restored":
                    for old in fact["letters"]:
                        self.discarded.remove(old)
                case "closed-session":
                    living.pop(fact["session"]).is_closed = True

    def _address(self, living: Mapping[str, Account], fact: Mapping[str, Any]) -> None:
        log_id = fact["id"]
        assert self.published.get(log_id, fact["channel"]) == fact["channel"]
        self.addressed[log_id] = fact["channel"]
        for session in fact["sessions"]:
            _give(living[session], [log_id])
        for queue in fact["queues"]:
            self._queue(queue).add(log_id)

    def _end(self, account: Account, ended: Mapping[str, Any]) -> None:
        for log_id in ended["ids"]:
            how = (ended["reason"], ended.get("code", ""))
            assert log_id not in account.ends, (
                f"{log_id} ended for {account.session} as {account.ends[log_id]} and as {how}: {self.story(log_id)}"
            )
            account.ends[log_id] = how

    def _queue(self, name: str) -> set[int]:
        return self.queued.setdefault(name, set())

    def _take_out(self, queue: str, ids: list[int]) -> None:
        assert not (missing := set(ids) - self._queue(queue)), f"{missing} left {queue}, where they were not"
        self._queue(queue).difference_update(ids)

    # What must hold at any moment

    def check(self, discarded: Mapping[str, Letter] | None = None) -> None:
        """Compare what was owed with what became of it. `discarded`: letters that somebody has thrown away, by dead id.
        Raises AssertionError with what is wrong."""
        for account in self.accounts:
            self._check_account(account)
        assert self.inboxes.keys() <= self.sessions.keys(), "there are inboxes without a session"
        assert self.dropped == 0
        edited = {fact["letter"] for fact in self.redriven if fact.get("edited")}
        assert self._bin == self._binned_at, "the order of the bin is not that of the bin"
        assert self._bin == edited | set(self.discarded), "the bin is not what was discarded, or was edited"
        self._check_letters(discarded or {})
        self._check_indexes()
        self._check_queues()
        self._check_histories()
        self._check_scheduled()
        assert self.owed == self.ends.total() + sum(map(len, self.waiting.values()))

    def _check_account(self, account: Account) -> None:
        name, owed = account.session, account.owed(self.published)
        assert not (odd := account.ends.keys() - owed), f"{odd} ended for {name}, to whom they were not owed"
        if account.is_closed:
            assert not (lost := owed - account.ends.keys()), f"{name} has ended, and {lost} were owed to it"
            assert all(until is not None for _, _, until in account.intervals), account
            return
        record, cursor = self.sessions[name], self._cursor(name)
        opened, boxed = ({int(each[2:]) for each in record if each.startswith(kind)} for kind in ("o:", "i:"))
        waiting = self.waiting[name]
        assert boxed == self.inboxes.get(name, set()), f"the inbox of {name} is not what its record says"
        assert not opened & boxed, f"{opened & boxed} wait twice for {name}"
        assert not (crossed := (opened | boxed) - waiting), f"{crossed} wait for {name}: not owed, or ended"
        lost = {each for each in waiting - opened - boxed if each <= cursor or each in account.given}
        assert not lost, (
            f"{lost} are lost for {name}: its cursor {cursor} has passed them, and they neither ended nor wait;"
            f" {[self.story(each) for each in sorted(lost)[:3]]}"
        )
        early = {each for each in account.ends.keys() - account.given if each > cursor}
        assert not early, f"{early} have ended for {name}, and will be found again beyond its cursor"

    def _check_scheduled(self) -> None:
        gone = self.published_as.keys() | self.cancelled
        assert not (both := self.published_as.keys() & self.cancelled), f"{both} were published, and cancelled"
        assert self.due == self.scheduled - gone, "what is scheduled is not what was neither published nor cancelled"
        assert self._due_messages == self.due, "the order of what is scheduled is not that of its messages"
        assert self._due_held == len(self.due), "the accounts have other scheduled messages than there are"

    def _check_letters(self, discarded: Mapping[str, Letter]) -> None:
        gone = [fact["letter"] for fact in self.redriven] + self.discarded
        assert len(set(gone)) == len(gone), "a letter has left twice"
        assert not (both := self.letters.keys() & set(gone)), f"the letters {both} were sent again, and are there"
        assert set(self.discarded) <= discarded.keys(), "others were thrown away than somebody wanted"
        there = [*self.letters.values(), *(discarded[each] for each in self.discarded)]
        made = Counter((letter["id"], letter["code"]) for letter in there if "p" in letter)
        sent_again = [fact for fact in self.redriven if fact["message"].isdecimal()]
        gone = Counter((fact["message"], fact["code"]) for fact in sent_again)
        dead = self._dead()
        ends = Counter((log_id, code) for _, log_id, code in dead)
        if self._topics or self.erased:
            # Of what came from a history a letter has no end. When it has been sent again, nobody can tell it from others.
            gone &= ends - made
            sent_again = [each for each in sent_again if _is_among(each, set(dead))]
        made += gone
        odd_ids = [int(log_id) for log_id, _ in (*(made - ends), *(ends - made))][:3]
        assert made == ends, (
            f"letters without an end: {made - ends}; ends without a letter: {ends - made};"
            f" {[each for each in there if each['id'].isdecimal() and int(each['id']) in odd_ids]},"
            f" {[self.story(each) for each in odd_ids]}"
        )
        known = {(letter["receiver"], letter["id"], letter["code"]) for letter in there if "p" in letter}
        known |= {(fact["session"], fact["message"], fact["code"]) for fact in sent_again if "session" in fact}
        assert known <= set(dead), f"letters of another receiver than died: {known - set(dead)}"
        stayed = [each for each in there if _should_have_gone_back(each)]
        assert not stayed, f"a subject's messages became letters when one of its sessions ended: {stayed}"
        sent = {(fact["letter"], str(fact["id"]), str(fact["returns"])) for fact in self.redriven}
        back = {(each["r"], each["id"], each["n"]) for each in there if "r" in each}
        assert back <= sent, f"letters came back that nobody has sent: {back - sent}"
        transient = Counter(
            (each["receiver"], each["id"]) for each in there if "p" not in each and not each["id"].isdecimal()
        )
        assert not (twice := [key for key, times in transient.items() if times > 1]), f"two letters of {twice}"

    def _dead(self) -> list[tuple[str, str, str]]:
        """Receiver, log id and code of each end as a dead letter."""
        dead = [
            (account.session, str(log_id), code)
            for account in self.accounts
            for log_id, reason, code in (*account.past, *((each, *end) for each, end in account.ends.items()))
            if reason == "dead"
        ]
        return dead + [
            (queue.removeprefix("one:"), str(log_id), code)
            for queue, ends in self.queue_ends.items()
            for log_id, (reason, code) in ends.items()
            if reason == "dead"
        ]

    def _check_indexes(self) -> None:
        kinds = ("code", "receiver", "channel")
        for kind, found, values in zip(kinds, self._indexes[:3], self._indexes[3:], strict=True):
            index = {key.removeprefix(f"dead:{kind}:"): {place for place, _ in entries} for key, entries in found}
            wanted: dict[str, set[str]] = {}
            for place, letter in self.letters.items():
                wanted.setdefault(letter[kind], set()).add(place)
            assert index == wanted, f"the letters by {kind} are not the letters"
            assert set(values) == wanted.keys(), f"the list of each {kind} is not that of the letters"

    def _check_queues(self) -> None:
        wanted = {queue: ids for queue, ids in self.queued.items() if ids}
        assert self.queues == wanted, f"shared queues hold {self.queues}, and should hold {wanted}"
        assert self._bodies == wanted, "the bodies of shared queues are not what is queued"
        assert self._names == wanted.keys(), "the list of the shared queues is not that of the queues"
        for key, members in self._common.items():
            log_id, _, subject = key.partition(" ")
            for name in (each for each in members if not each.startswith("!")):  # the others have failed it
                assert int(log_id) in self.inboxes.get(name, set()), (
                    f"{name} has {log_id} of {subject} open, and not in its inbox"
                )

    def _check_histories(self) -> None:
        known = self.published | self.kept
        for channel, entries in self.histories.items():
            assert channel in self._topics, f"{channel} has a history, and is not on the list of topics"
            assert list(entries) == sorted(entries)
            for log_id, entry in entries.items():
                assert known.get(log_id) in (channel, ""), (
                    f"{log_id} lies in the history of {channel}: {known.get(log_id)}"
                )
                assert entry["c"] == channel

    def story(self, log_id: int) -> list[tuple[str, dict[str, Any]]]:
        """The facts that tell of a message, for whoever looks for a failure."""
        return [
            (kind, fact)
            for kind, fact in self.facts
            if (kind == "published" and fact["first"] <= log_id < fact["first"] + len(fact["channels"]))
            or (kind != "published" and str(log_id) in json.dumps(fact))
        ]

    # Where messages come from

    def origins(self) -> dict[str, str]:
        """For each id that a redrive gave, the id under which the message was published."""
        parents = {str(fact["id"]): fact["message"] for fact in self.redriven}

        def first(log_id: str) -> str:
            while log_id in parents:
                log_id = parents[log_id]
            return log_id

        return {each: first(each) for each in parents}


def patterns_of(name: str) -> tuple[str, ...]:
    """The patterns that match a channel."""
    channel = parse(name)
    assert channel is not None
    return channel.patterns


def _is_among(redriven: Mapping[str, Any], dead: set[tuple[str, str, str]]) -> bool:
    """Whether the letter that was sent again is one of these ends, as far as its fact tells."""
    if "session" in redriven:
        return (redriven["session"], redriven["message"], redriven["code"]) in dead
    return any((redriven["message"], redriven["code"]) == each[1:] for each in dead)


def _should_have_gone_back(letter: Mapping[str, str]) -> bool:
    """Whether the letter says that a session has ended with a stored message of its subject, which no operator had sent again:
    that goes back to the subject, unless another of its sessions has settled it."""
    to, ended = letter.get("t", ""), letter["code"] == "communication.noConnection.dead"
    return (
        ended and "r" not in letter and "p" in letter and letter["receiver"].startswith(f"{to}/") and to.count("/") == 1
    )


def _give(account: Account, ids: list[int]) -> None:
    for log_id in ids:
        if log_id in account.ends:
            reason, code = account.ends.pop(log_id)
            assert reason in ("returned", "dead"), (
                f"{log_id} was {reason} for {account.session}, and was given to it again"
            )
            account.past.append((log_id, reason, code))
        account.given.add(log_id)


def _unsubscribe(account: Account, fact: Mapping[str, Any]) -> None:
    for pattern, since in zip(fact["patterns"], fact["from"], strict=True):
        account.intervals.remove((pattern, since, None))
        account.intervals.append((pattern, since, fact["until"]))


def _paired(flat: Iterable[str]) -> dict[str, str]:
    each = iter(flat)
    return dict(zip(each, each, strict=True))
