"""What to do about a finding, in words and as a command that can be copied."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from crewel.errors.codes import KNOWN

Rows = Sequence[Mapping[str, Any]]

_MEANINGS: Final = {each.code: each.meaning for each in KNOWN}
_MOST: Final = 3


class Advice(NamedTuple):
    """Words, in which what stands in backticks is code, and a command, if one helps."""

    words: str
    command: str = ""


_LETTERS: Final = (
    (
        "resource.overflow.",
        "It did not keep up, and its queue is full. See why it is held, slow or away; `delivery.queue_max_entries` and"
        " `delivery.queue_max_bytes` say how much may wait. Then send again what died:",
    ),
    ("communication", "It could not be reached. See that it is back, then send again what died:"),
    ("internal", "This is a fault of the server: its log tells more. Once it is mended, send again what died:"),
    ("user", "Its own program rejects the messages. Look at the reason, mend the program, then send again what died:"),
    ("", "Look at the reason and mend what it names. Then send again what died:"),
)
"""By the beginning of the code."""

_SICK: Final = (
    (
        "is so now",
        "Nothing is delivered to it until somebody lets it go on. Mend what it complains of; then:",
        "crewel sessions activate {}",
    ),
    ("held back", "It goes on now. See whether it stays well, and how much waits for it:", ""),
    (
        "fails",
        "Its program rejects messages: the reasons are under “What died, and why”. What the server knows of it:",
        "",
    ),
    ("away", "Its client was not connected. See whether it runs; what it was owed waits for it:", ""),
    ("takes", "It answers slower than it did, or than others. See what it waits for, and how much waits for it:", ""),
    ("", "What it is sent is not acknowledged in time: it is slow, or its connection breaks. See how it does:", ""),
)
"""By a part of what is said of it: words, and a command if another one helps than to look at it."""

_AUDIT: Final = {
    "lost": "A message was lost that was promised. Keep the store and the tables as they are: the facts named here are the"
    " evidence of a defect of the server. The publisher can send it again.",
    "twice": "A message ended more than once. Nothing is lost; the facts are the evidence of a defect of the server.",
    "surplus": "Somebody got a message that was not for them. The facts are the evidence of a defect of the server.",
    "both": "A message ended and waits all the same: its receiver may get it once more. The facts are evidence of a defect.",
    "unknown": "Facts of that time were trimmed before they were read, so nobody can tell. Let `crewel pipeline live` run all"
    " the time, or raise `storage.facts_max_entries`.",
    "not auditable": "A filter or a group decides who gets what, which the facts do not tell. Nothing is wrong with that.",
}


def meaning(code: str) -> str:
    """Return what a code means, or the one above it that is known, unless that says next to nothing; empty if nobody knows."""
    while code not in _MEANINGS and "." in code:
        code = code.rpartition(".")[0]
    return _MEANINGS.get(code, "") if "." in code else ""


def of_died(rows: Rows) -> Iterable[Advice]:
    """Yield what to do about the most frequent ways to die."""
    for row in rows[:_MOST]:
        words = next(words for begin, words in _LETTERS if (row["code"] + ".").startswith(begin))
        where = {"error_code": row["code"], "channel": row["channel"], "receiver": row["receiver"]}
        condition = " and ".join(f"{name} = '{_sql(value)}'" for name, value in where.items() if value)
        yield Advice(f"`{row['receiver']}`: {words}", f"crewel pipeline redrive --dry-run --where {_shell(condition)}")


def of_poison(rows: Rows) -> Iterable[Advice]:
    """Yield what to do about messages that nobody can digest."""
    for row in rows[:1]:
        yield Advice(
            "Look at the content, and mend who publishes it. Sent again it would only die again; its letters, to be thrown away"
            f" with `crewel dead-letters discard`, are among those of `{row['channel']}`:",
            f"crewel dead-letters list --channel {_shell(row['channel'])}",
        )


def of_sick(rows: Rows) -> Iterable[Advice]:
    """Yield what to do about sick receivers."""
    for row in rows[:_MOST]:
        name = row["session"].removeprefix("client/")
        said = row["why"][0] if row["why"] else ""
        words, command = next((words, command) for part, words, command in _SICK if part in said)
        command = command or "crewel sessions show {}"
        yield Advice(f"`{row['session']}`: {words}", command.format(_shell(name)))


def of_audit(rows: Rows) -> Iterable[Advice]:
    """Yield what to do about what does not add up."""
    for finding in dict.fromkeys(row["finding"] for row in rows):
        if finding in _AUDIT:
            yield Advice(f"{finding.capitalize()}: {_AUDIT[finding]}")


def _sql(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "\\'")


def _shell(text: str) -> str:
    """Quote for a shell; with double quotes if that is enough, as text in SQL has single ones."""
    if shlex.quote(text) == text:
        return text
    return shlex.quote(text) if any(each in text for each in '"$`\\!') else f'"{text}"'
