"""What to do about a finding, in words and as a command that can be copied."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from crewel.errors.codes import KNOWN

Rows = Sequence[Mapping[str, Any]]

_MEANINGS: Final = {each.code: each.meaning for each in KNOWN}
_MOST: Final = 3
_MOST_NAMED: Final = 10
"""Receivers of one row."""
_MOST_LETTERS: Final = 10
"""Dead letters of one message, as in the table `poison`."""


class Advice(NamedTuple):
    """Words, in which what stands in backticks is code, and a command, if one helps."""

    words: str
    command: str = ""


class _Death(NamedTuple):
    """What to do about dead letters whose code begins with `code`."""

    code: str
    words: str
    redrive: str


_SEE: Final = " See its reasons under “Dead letters”."
"""Said only if the page has one."""

_DEATHS: Final = (
    _Death(
        "resource.overflow.",
        "It did not keep up, and its queue was full. Find out why it is on hold, slow or absent;"
        " `delivery.queue_max_entries` and `delivery.queue_max_bytes` limit the queue.",
        "Then redrive its dead letters:",
    ),
    _Death(
        "resource.maintenance.",
        "An operator took these messages out of its queue. Check that it can take them now.",
        "Then redrive its dead letters:",
    ),
    _Death("communication", "It could not be reached. Check that it is back.", "Once it is, redrive its dead letters:"),
    _Death("internal", "This is a fault of the server: see its log.", "Once it is fixed, redrive the dead letters:"),
    _Death(
        "user",
        f"Its program rejects the messages.{_SEE} Fix the program.",
        "Then redrive its dead letters:",
    ),
    _Death("", f"Fix the cause.{_SEE}", "Then redrive the dead letters:"),
)
"""The first one counts."""
_GONE: Final = "These dead letters are gone: redriven, discarded or dropped."

_ELSEWHERE: Final = ("message", "channel")
"""Causes whose findings have an advice of their own, which is not to redrive."""

_SHOW: Final = "crewel sessions show {}"
_REDRIVE_ALL: Final = "crewel dead-letters redrive --receiver {}"


class _Sickness(NamedTuple):
    """What to do about a failing receiver of whose reasons one has this part."""

    part: str
    words: str
    command: str = _SHOW
    redrive: str = ""
    """What is said of a redrive of all its dead letters, if that helps; it has the command."""
    about: str | None = None
    """How the codes begin of the dead letters that this is about; None: it is about none."""


_SICK: Final = (
    _Sickness(
        "still is",
        "Nothing is delivered to it until an operator activates it. Fix the reported cause; then:",
        "crewel sessions activate {}",
    ),
    _Sickness(
        "taken by others",
        f"It rejects messages that others accept. Fix its program.{_SEE}",
        _REDRIVE_ALL,
        "Then redrive them:",
        "",
    ),
    _Sickness(
        "rejected",
        "It rejects messages that few or no other receivers accept. Fix its program, or what it depends on, such as a"
        f" database, or the publisher.{_SEE}",
        _REDRIVE_ALL,
        "Then redrive them:",
        "",
    ),
    _Sickness("on hold", "Delivery continues now. Check whether it stays active, and how much waits for it:"),
    _Sickness(
        "fails",
        f"Its program rejects messages.{_SEE} Its state at the server:",
        about="user.",
    ),
    _Sickness(
        "absent",
        "Its client was away until its session ended: what waits for a named session then becomes dead letters. Check whether"
        " it runs, and has a session again:",
    ),
    _Sickness(
        "no member",
        "Start a member, or bring one back that is away or on hold: the operator's page lists them.",
        "",
    ),
    _Sickness(
        "takes",
        "It acknowledges later than before, or than others: it is slow, or its client was away and came back, which is not"
        " recorded. Check whether it was connected all the time, find out what it waits for, and the size of its queue:",
    ),
    _Sickness(
        "", "It does not acknowledge its messages in time: it is slow, or its connection breaks. Check its state:"
    ),
)
"""The first one counts."""

_AUDIT: Final = {
    "lost": "A guaranteed message was lost. Keep the store and the tables unchanged: the facts named here are the"
    " evidence of a defect of the server. The publisher can publish the message again.",
    "twice": "A message ended more than once. Nothing is lost; the facts are the evidence of a defect of the server.",
    "surplus": "A receiver got a message that was not for it. The facts are the evidence of a defect of the server.",
    "both": "A message ended and still waits: its receiver may get it once more. The facts are evidence of a defect.",
    "no letter": "A dead letter is gone, although no operator redrove or discarded it: something other than Crewel "
    "removed it from the store. The publisher can publish the message again.",
    "rolled back": "The store came back without some confirmed writes: from a replica, a backup or a shortened file. The"
    " messages named in the fact `lost` are gone; the publisher can publish them again. `storage.replicas` and"
    " `min-replicas-to-write` prevent this.",
    "unknown": "Facts of that time were trimmed before they were read, so the result is unknown. Run `crewel pipeline live`"
    " all the time, or raise `storage.facts_max_entries`.",
    "damaged table": "Another program has written to tables of the pipeline: the server is not at fault, and the audit used"
    " bronze instead. Give that program read access only. This makes the tables again from bronze:",
}
_AUDIT_COMMANDS: Final = {"damaged table": "crewel pipeline backfill --repair"}


def meaning(code: str) -> str:
    """Return what a code means, or the one above it that is known, unless that is too general; empty if there is none."""
    while code not in _MEANINGS and "." in code:
        code = code.rpartition(".")[0]
    return _MEANINGS.get(code, "") if "." in code else ""


def now(told: Mapping[str, Any]) -> list[Advice]:
    """Return what to do about all findings of a report, the most urgent first; the keys are those of `page`."""
    failing = [row for row in told["receivers"] if row["is_sick"]]
    incidents: Rows = told["incidents"]
    groups = alike(failing, incidents)[:_MOST]
    about = {row["session"]: _sickness(row).about for group in groups for row in group}
    left = {row["receiver"] for row in incidents if row["kept"] != 0}
    return [
        *of_audit(told["totals"]["findings"]),
        *of_channels(told["failing_channels"]),
        *of_sick(
            groups,
            gone={row["receiver"] for row in incidents} - left,
            explained={row["receiver"] for row in incidents if row["sample_reason"]},
        ),
        *of_died([row for row in incidents if not _begins(row["code"], about.get(row["receiver"]))]),
        *of_poison(told["poison"]),
    ]


def alike(failing: Rows, incidents: Rows) -> list[list[Mapping[str, Any]]]:
    """Return the failing receivers in groups: those with the same sickness whose largest incidents have one code, reason and
    cause are one incident."""
    largest: dict[str, Mapping[str, Any]] = {}
    for row in incidents:
        if row["cause"] not in _ELSEWHERE:
            largest.setdefault(row["receiver"], row)
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in failing:
        incident = largest.get(row["session"])
        what = row["session"] if incident is None else _what(incident)
        groups.setdefault((_sickness(row).part, what), []).append(row)
    return [*groups.values()]


def by_incident(incidents: Rows) -> list[Rows]:
    """Return the rows of each incident, the largest first. It may have been at several receivers: what died alike in the same
    time is one."""
    groups: list[list[Mapping[str, Any]]] = []
    for row in incidents:
        for group in groups:
            first = group[0]
            is_meanwhile = row["first_at"] <= first["last_at"] and first["first_at"] <= row["last_at"]
            if is_meanwhile and _what(row) == _what(first):
                group.append(row)
                break
        else:
            groups.append([row])
    return sorted(groups, key=lambda group: -sum(row["letters"] for row in group))


def _what(incident: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the rows of one incident have in common, at whichever receivers it was."""
    return incident["code"], incident["template"], incident["cause"]


def of_died(rows: Rows) -> Iterable[Advice]:
    """Yield what to do about the most frequent dead letters, those that can be redriven first. What died alike at several
    receivers is one row."""
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["cause"] not in _ELSEWHERE:
            # How many are kept may be unknown, which is not 0.
            groups.setdefault((row["kept"] == 0, *_what(row)), []).append(row)
    left = {key: group for key, group in groups.items() if not key[0]}
    named = {(row["receiver"], row["code"]) for group in left.values() for row in group}
    gone = [
        remaining
        for key, group in groups.items()
        if key[0] and (remaining := [row for row in group if (row["receiver"], row["code"]) not in named])
    ]
    for group in [*left.values(), *gone][:_MOST]:
        yield _of_incident(group)


def _of_incident(group: Rows) -> Advice:
    code, is_gone = group[0]["code"], group[0]["kept"] == 0
    death = next(each for each in _DEATHS if _begins(code, each.code))
    receivers = list(dict.fromkeys(row["receiver"] for row in group))
    words = _referring(death.words, any(row["sample_reason"] for row in group))
    what = f"{_named(receivers)}: {words} {_GONE if is_gone else death.redrive}"
    if is_gone:
        return Advice(what)
    channels = {channel for row in group for channel in row["channels"]}
    (channel,) = channels if len(channels) == 1 and all(row["channels"] for row in group) else ("",)
    conditions = [f"{name} = {_sql(value)}" for name, value in (("error_code", code), ("channel", channel)) if value]
    one = f"receiver = {_sql(receivers[0])}"
    conditions.append(one if len(receivers) == 1 else f"receiver in ({', '.join(map(_sql, receivers))})")
    return Advice(what, f"crewel pipeline redrive --dry-run --where {_shell(' and '.join(conditions))}")


def of_poison(rows: Rows) -> Iterable[Advice]:
    """Yield what to do about messages that receivers reject again and again, one row for those with the same evidence."""
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows:
        # What is discarded is gone: it is never advised for a message that most receivers took.
        is_there = bool(row["dead_letters"]) and row["receivers"] > row["takers"]
        groups.setdefault((row["why"], is_there), []).append(row)
    for (why, is_there), group in [*groups.items()][:_MOST]:
        names = listed([f"`{row['message_id']}` on `{row['channel']}`" for row in group], _MOST)
        its, evidence = ("its", why) if len(group) == 1 else ("their", f"of each, {why}")
        letters = f"the dead letters of the first {_MOST}" if len(group) > _MOST else f"{its} dead letters"
        if any(len(row["dead_letters"]) == _MOST_LETTERS < row["receivers"] for row in group[:_MOST]):
            letters += f", but at most {_MOST_LETTERS} of each message; the next report names the others"
        yield Advice(
            f"{names}: {evidence}. Check {its} content, and fix {its} publisher. A redrive would only fail again"
            + (f"; this discards {letters}:" if is_there else ". There are no dead letters any more."),
            "\n".join(f"crewel dead-letters discard {' '.join(row['dead_letters'])}" for row in group[:_MOST])
            if is_there
            else "",
        )


def of_channels(rows: Rows) -> Iterable[Advice]:
    """Yield what to do about channels whose publisher changed what it sends."""
    for row in rows[:_MOST]:
        since = f"{row['first_at']:%Y-%m-%dT%H:%M:%SZ}"
        publishers = ", ".join(f"`{each}`" for each in row["publishers"]) or "its publisher"
        condition = f"channel = {_sql(row['channel'])} and first_seen >= '{since}'"
        letters = row["dead_letters"]
        yield Advice(
            f"`{row['channel']}`: {row['why']}. Find out what {publishers} changed"
            + (f": the data is `{row['shape']}`" if row["shape"] else "")
            + (f", and was `{row['earlier_shape']}` before" if row["earlier_shape"] else "")
            + (
                ". Once the receivers take such data, redrive the dead letters:"
                if letters
                else ". It has no dead letters any more."
            ),
            f"crewel pipeline redrive --dry-run --where {_shell(condition)}" if letters else "",
        )


def of_sick(groups: Iterable[Rows], gone: Collection[str] = (), explained: Collection[str] = ()) -> Iterable[Advice]:
    """Yield what to do about failing receivers, one row for those of one incident. `gone` are the receivers whose dead letters
    are all gone, `explained` those of which one has a reason."""
    for group in groups:
        sickness = _sickness(group[0])
        words = _referring(sickness.words, any(row["session"] in explained for row in group))
        command = sickness.command
        if sickness.redrive:
            is_gone = all(row["session"] in gone for row in group)
            words += f" {_GONE} Its state at the server:" if is_gone else f" {sickness.redrive}"
            command = _SHOW if is_gone else command
        names = [row["session"] for row in group]
        why = ", and ".join(group[0]["why"])
        about = f"`{names[0]}`: {why}" if len(names) == 1 else f"{_named(names)}, for one reason. The first one {why}"
        commands = (command.format(_shell(name.removeprefix("client/"))) for name in names[:_MOST_NAMED])
        yield Advice(f"{about}. {words}", "\n".join(filter(None, commands)))


def of_audit(findings: Iterable[str]) -> Iterable[Advice]:
    """Yield what to do about the findings of the audit, each named once."""
    for finding in findings:
        if finding in _AUDIT:
            yield Advice(f"{finding.capitalize()}: {_AUDIT[finding]}", _AUDIT_COMMANDS.get(finding, ""))


def _sickness(row: Mapping[str, Any]) -> _Sickness:
    return next(sickness for sickness in _SICK if any(sickness.part in each for each in row["why"]))


def _referring(words: str, is_explained: bool) -> str:
    return words if is_explained else words.replace(_SEE, "")


def _begins(code: str, begin: str | None) -> bool:
    return begin is not None and f"{code}.".startswith(begin)


def listed(names: Sequence[str], most: int = _MOST_NAMED) -> str:
    """Return some names in words: the first ones, and how many more there are; an empty text for none."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _named(names: Sequence[str]) -> str:
    return listed([f"`{name}`" for name in names])


def _sql(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _shell(text: str) -> str:
    """Quote for a shell; with double quotes if that is enough, as text in SQL has single ones."""
    if shlex.quote(text) == text:
        return text
    return shlex.quote(text) if any(each in text for each in '"$`\\!') else f'"{text}"'
