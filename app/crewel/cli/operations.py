"""`crewel sessions`, `crewel subjects`, `crewel topics` and `crewel cmd`: what operators inspect and do.

The operations are rows of `crewel.admin.operation`, and each is a command here; lists and what is shown of one are below.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Annotated, Any, Final

import typer

from crewel.admin.operation import OPERATIONS, Level, Operation
from crewel.admin.request_fields import Field
from crewel.cli import output, qos_options
from crewel.cli.admin_client import Admin, Named, command, given
from crewel.cli.bayeux_client import AsJson

Names = Annotated[list[str], typer.Argument(metavar="NAME...", help="Sessions: joe/1, or client/joe/1.")]
Subjects = Annotated[list[str], typer.Argument(metavar="NAME...", help="Subjects: joe, or client/joe.")]
Channels = Annotated[list[str], typer.Argument(metavar="CHANNEL...", help="Channels: /chat/demo.")]

sessions = typer.Typer(name="sessions", help="List sessions, put them on hold, activate them.", no_args_is_help=True)
subjects = typer.Typer(name="subjects", help="List subjects, and end or block their sessions.", no_args_is_help=True)
topics = typer.Typer(name="topics", help="Inspect topics and their histories, and erase them.", no_args_is_help=True)


# What requests are about, by its name. What is no name ends the command with 2, before anything is done.


def named_sessions(names: Iterable[str]) -> list[Named]:
    """These sessions."""
    from crewel.qos.names import parse_name

    found: list[Named] = []
    for text in names:
        name = parse_name(text)
        if name is None or not name.number:
            raise typer.BadParameter(f"{text} is not the name of a session, such as joe/1 or client/joe/1")
        found.append(Named({"subject": name.subject, "number": str(name.number)}, "name", name.relative))
    return found


def _subjects(names: Iterable[str]) -> list[Named]:
    from crewel.qos.names import parse_name

    found: list[Named] = []
    for text in names:
        name = parse_name(text)
        if name is None or name.number:
            raise typer.BadParameter(f"{text} is not the name of a subject, such as joe or client/joe")
        found.append(Named({"subject": name.subject}, "name", name.relative))
    return found


def _channels(names: Iterable[str]) -> list[Named]:
    return [Named({"channel": name}, "channel", name) for name in map(qos_options.channel_name, names)]


_LEVELS: Final[Mapping[Level, tuple[typer.Typer, Any, Callable[[Iterable[str]], list[Named]]]]] = {
    Level.SESSION: (sessions, Names, named_sessions),
    Level.SUBJECT: (subjects, Subjects, _subjects),
    Level.TOPIC: (topics, Channels, _channels),
}
"""Of each level: its group of commands, its argument, and how that is read."""


# The operations


def _confirmed(ctx: typer.Context, yes: bool) -> bool:
    """Ask before a topic is erased, while nothing is under way. No ends the command with 1."""
    if not yes and not ctx.resilient_parsing:
        if not sys.stdin.isatty():
            raise typer.BadParameter("without a terminal, erasing a topic needs --yes")
        names = ", ".join(ctx.params.get("names") or ()) or "the topics"
        typer.confirm(f"Erase {names} with history and settings?", abort=True, err=True)
    return yes


def _add_show(level: Level) -> None:
    group, argument, read = _LEVELS[level]

    @command(group, "show", f"Show everything about {level}s.", {"names": (argument, Parameter.empty)})
    async def _(admin: Admin, as_json: AsJson = None, **asked: Any) -> None:
        for about in read(asked["names"]):
            output.print_fields(await admin.call("GET", level.resource, about=about), about.field, as_json)


def _add(operation: Operation) -> None:
    group, argument, read = _LEVELS[operation.level]
    options = {"names": (argument, Parameter.empty), **{each.name: _option(each) for each in operation.asked}}
    if operation.verb == "erase":
        options["yes"] = (
            Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.", callback=_confirmed)],
            False,
        )

    @command(group, operation.verb, operation.meaning, options)
    async def _(admin: Admin, as_json: AsJson = None, **asked: Any) -> None:
        names = asked.pop("names")
        asked.pop("yes", None)
        fields = {name: value for name, value in asked.items() if value not in (None, False)}
        for about in read(names):
            if operation.method == "DELETE":
                query = {name: "true" if value is True else value for name, value in fields.items()}
                answer = await admin.call(operation.method, operation.route, query, about=about)
            else:
                answer = await admin.call(operation.method, operation.route, body=fields or None, about=about)
            output.print_answer(answer, f"{about.name}: {operation.printed(answer)}", as_json)


def _option(field: Field) -> Any:
    """The option of the command line that fills this field."""
    if field.schema["type"] == "boolean":
        return Annotated[
            bool, typer.Option(f"--{field.name}", help=field.meaning.removeprefix("true: ").capitalize())
        ], False
    return Annotated[str | None, typer.Option(f"--{field.name}", metavar="TEXT", help=field.meaning)]


for _level in _LEVELS:
    _add_show(_level)
for _each in OPERATIONS:
    _add(_each)


# Lists


@command(sessions, "list")
async def _list_sessions(
    admin: Admin,
    subject: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Only sessions of this subject.")] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="Only sessions that stand so, as the list says: 'on hold', full, 'expired token', away, connected and"
            " others; or in this state of the API: ALIVE, POLLING or DEAD.",
        ),
    ] = None,
    held: Annotated[bool, typer.Option("--held", help="Only those on hold.")] = False,
    api_state: Annotated[
        bool, typer.Option("--api-state", help="Also print the state as the API has it: ALIVE, POLLING or DEAD.")
    ] = False,
    as_json: AsJson = None,
) -> None:
    """Print the sessions that have a name, with how they stand, why and since when."""
    from crewel.times import format_timestamp

    condition, state = (None, state) if state is None or state.isupper() else (state, None)
    query = given(subject=subject, state=state, condition=condition, active="false" if held else None)
    everything = admin.pages("/sessions", "sessions", query)
    if output.wants_json(as_json):
        await output.print_entries(everything, (), list, as_json)
        return
    first = await admin.call("GET", "/sessions", {"count": 1})
    columns = [
        each
        for each in _SESSION
        # The node stands there where several share the store.
        if (each is not _NODE or "unreached" in first) and (each is not _API_STATE or api_state)
    ]
    headings = [heading for heading, _ in columns]
    await output.print_entries(everything, headings, lambda session: [cell(session) for _, cell in columns], as_json)
    if first.get("unknownSince"):  # servers of before do not tell it
        print(
            f"the store cannot be used since {format_timestamp(first['unknownSince'])}: what only it knows is missing"
        )
    if first["unnamed"]:
        print(f"and {first['unnamed']} without a name")


Column = tuple[str, Callable[[Mapping[str, Any]], Any]]

_NODE: Final[Column] = "node", lambda session: session["node"]
_API_STATE: Final[Column] = "in the API", lambda session: session["state"]
_SESSION: Final[tuple[Column, ...]] = (
    ("session", lambda session: session["name"]),
    _NODE,
    ("state", lambda session: ", ".join(session["conditions"])),
    _API_STATE,
    ("waiting", lambda session: session["waiting"]),
    ("subscriptions", lambda session: ", ".join(session["subscriptions"])),
    # In one column: on a narrow terminal two of them could not be read.
    ("why; next", lambda session: "; ".join(filter(None, (_why(session), _next(session))))),
)
"""The columns of the list: heading, and what stands there of a session."""


def _next(session: Mapping[str, Any]) -> str:
    """What will happen to the session, and when, if nothing else does."""
    from crewel.times import format_timestamp

    retry, ends = session["retry"], session["ends"]
    parts = []
    if retry is not None:
        most, then = ("", "") if retry["of"] < 0 else (f" of {retry['of']}", ", ends if all fail")
        parts.append(f"retry {retry['number']}{most} at {format_timestamp(retry['at'])}{then}")
    if ends is not None:
        parts.append(f"ends at {format_timestamp(ends['at'])}: {ends['why']}")
    return "; ".join(parts)


def _why(session: Mapping[str, Any]) -> str:
    """The causes for which the session stands as it does, each with its time; of a holdback also whose it is."""
    held = session["holdback"]
    parts = []
    for cause in session["causes"]:
        words = [cause["text"]]
        if cause["kind"] == "held" and held is not None:
            words += [f"by {held['who']}"] * (held["who"] not in cause["text"])
            words += [f"message {held['id']}"] * bool(held["id"])
        parts.append(", ".join(words) + _since(cause))
    return "; ".join(parts)


def _since(cause: Mapping[str, Any]) -> str:
    from crewel.times import format_timestamp

    since = cause.get("since")
    return "" if since is None else f" since {format_timestamp(since)}"


@command(sessions, "peek")
async def _peek(
    admin: Admin,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The session: joe/1, or client/joe/1.")],
    count: Annotated[int, typer.Option(min=1, max=1000, help="Print at most this many of the first messages.")] = 20,
    as_json: AsJson = None,
) -> None:
    """Print the queue of a session. The messages stay."""
    [about] = named_sessions([name])
    found = await admin.call("GET", f"{Level.SESSION.resource}/messages", {"count": count}, about=about)
    headings = ("message", "published", "channel", "data")
    shown = await output.print_entries(found["messages"], headings, _message_row, as_json)
    if not output.wants_json(as_json):
        print(f"{shown} of {found['waiting']} waiting")


def _message_row(message: Mapping[str, Any]) -> tuple[Any, ...]:
    from crewel.times import format_timestamp

    origin = message.get("ext", {}).get("update", {})
    received = str(origin.get("rcvTimestamp", ""))  # nanoseconds
    published = format_timestamp(int(received) // 1_000_000) if received.isdigit() else received
    return origin.get("id", message.get("id", "")), published, message["channel"], message.get("data")


@command(subjects, "list")
async def _list_subjects(admin: Admin, as_json: AsJson = None) -> None:
    """Print the subjects that have sessions or queued messages, or whose logins are blocked."""
    headings = ("subject", "sessions", "waiting", "blocked", "why")
    await output.print_entries(admin.pages("/subjects", "subjects", {}), headings, _subject_row, as_json)


def _subject_row(subject: Mapping[str, Any]) -> tuple[Any, ...]:
    why = "; ".join(each["text"] for each in subject.get("causes", ()))  # servers of before do not tell it
    return subject["name"], ", ".join(subject["sessions"]), subject["queued"], "yes" if subject["blocked"] else "", why


@command(topics, "list")
async def _list_topics(
    admin: Admin,
    pattern: Annotated[
        str | None, typer.Option(metavar="PATTERN", help="Only topics of this channel or pattern: '/chat/**'.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="Only topics that stand so, as the list says: 'in use', 'no subscribers', 'nothing published yet' or erased;"
            " or in this state of the API: ALIVE, UNREFERENCED, UNCONFIGURED or SOFTERASED.",
        ),
    ] = None,
    api_state: Annotated[
        bool,
        typer.Option("--api-state", help="Also print the state as the API has it: ALIVE, UNREFERENCED and others."),
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Print the server's own topics, such as /__sys__notices, in their place.")
    ] = False,
    as_json: AsJson = None,
) -> None:
    """Print the topics, with how they stand."""
    asked = given(pattern=pattern, internal="true" if internal else "false", **_topic_state(state))
    found = admin.pages("/topics", "topics", asked)
    columns = [each for each in _TOPIC if each is not _API_STATE or api_state]
    headings = [heading for heading, _ in columns]
    await output.print_entries(found, headings, lambda topic: [cell(topic) for _, cell in columns], as_json)


_TOPIC: Final[tuple[Column, ...]] = (
    ("channel", lambda topic: topic["channel"]),
    ("state", lambda topic: topic.get("condition", topic["state"])),
    _API_STATE,
    ("history", lambda topic: _kept(topic["history"])),
    ("waiting", lambda topic: topic["queued"]),
    ("subscribers", lambda topic: topic["subscribers"]),
)
"""The columns of the list: heading, and what stands there of a topic."""


def _topic_state(asked: str | None) -> dict[str, str | None]:
    """What the command line asks for: a state of the API, or one in the words of the list."""
    from crewel.topics import WORDS, State

    if asked is None or asked.isupper():
        return {"state": asked}
    if asked == "unused":  # what the list said of these before
        return {"state": State.UNREFERENCED.value}
    if asked not in WORDS.values():
        raise typer.BadParameter(f"--state takes one of {', '.join(WORDS.values())}, not {asked}")
    return {"condition": asked}


def _kept(history: Mapping[str, int]) -> str:
    return f"{history['entries']} of {history['maxEntries']}" if history["maxEntries"] else "none"


@command(topics)
async def history(
    admin: Admin,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel.")],
    count: Annotated[int, typer.Option(min=1, max=1000, help="Print at most this many of the newest messages.")] = 100,
    newest_first: Annotated[bool, typer.Option("--newest-first", help="Newest first.")] = False,
) -> None:
    """Print the history of a topic, one JSON object per line. The messages stay."""
    query = {"count": count, "newestFirst": "true" if newest_first else "false"}
    [about] = _channels([channel])
    for message in (await admin.call("GET", "/history/{channel}", query, about=about))["messages"]:
        output.print_json(message)


# Any command


async def cmd(
    admin: Admin,
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="The command, such as '__cmd:client/joe/1/?dispatcherActive=true'.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object with the command and its result.")
    ] = False,
) -> None:
    """Run an administrative command and print its result: a list line by line, an object as JSON."""
    answer = await admin.call("POST", "/commands", body={"command": command})
    if as_json:
        output.print_json(answer)
        return
    from crewel.logs import escaped

    result = answer["result"]
    for each in result if isinstance(result, list) else [result]:
        if isinstance(each, str):
            print(escaped(each))
        else:
            output.print_json(each)
