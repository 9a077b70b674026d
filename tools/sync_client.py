"""Writes the methods of the synchronous client that only forward: their signatures are those of the asynchronous one.

Each class of `crewel.client.sync` has a region between two comments, which this script writes from the class that it forwards
to. `--check` writes nothing, prints the files that it would change, and exits with 1 if there are any.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

CLIENT: Final = Path(__file__).parents[1] / "app" / "crewel" / "client"
_SENTENCE: Final = re.compile(r"(?s).*?\.(?=\s|$)")
_BEGIN: Final = "# Written by tools/sync_client.py, as {name} has it"
_END: Final = "# End of what is written"
_METHODS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_SHORT: Final = 300
"""Characters of a documentation that is copied as it is."""
_WIDTH: Final = 112
"""Characters in a line of a documentation."""

WAIT: Final = "return self._background.wait_for({later})"
CALL: Final = "return self._background.call({later})"
SAME: Final = "return {call}"


class Forward(NamedTuple):
    """One member that forwards."""

    name: str
    body: str = WAIT
    """What it does: `{call}` stands for the call of the origin with the arguments, `{later}` for a function that calls it, and
    `{passed}` for the arguments."""
    kind: str = ""
    """The type of an attribute, which its class does not declare."""
    says: str = ""
    """The first sentence of its documentation, if that of the origin does not fit."""


class Region(NamedTuple):
    """The members of one class."""

    file: str
    origin: str
    """The module and the class that it forwards to."""
    members: tuple[Forward, ...]
    attribute: str = "self._origin"
    """What has the object that it forwards to."""
    renamed: tuple[tuple[str, str], ...] = ()
    """Types that have other names here."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Arguments that are passed on as something else."""

    @property
    def name(self) -> str:
        """The name of the class, here and there."""
        return self.origin.partition(".")[2]


def facts(*names: str) -> tuple[Forward, ...]:
    """Properties, which are read at once."""
    return tuple(Forward(name, SAME) for name in names)


def attributes(**kinds: str) -> tuple[Forward, ...]:
    """Attributes of these types."""
    return tuple(Forward(name, SAME, kind) for name, kind in kinds.items())


_CALLED: Final = "called = None if callback is None else self._in_threads(callback, 1)\n"
_DECIDE: Final = "self._decide({later})"
_MESSAGE: Final = "self.origin"
REGIONS: Final = (
    Region(
        "sync_client",
        "client.Client",
        (
            Forward("__init__", "own = _origin_of(outbox)\nself._begin(client.Client({passed}), outbox)"),
            *facts(
                "state", "client_id", "transport", "acknowledges", "settles", "unclaimed", "name", "resume", "login"
            ),
            *attributes(requests="Requests"),
            Forward(
                "on_state", "remove = self._background.call({later})\nreturn lambda: self._background.call(remove)"
            ),
            Forward("add_extension", CALL),
            Forward("remove_extension", CALL),
            Forward("ready"),
            Forward("publish"),
            Forward("enqueue", says="Put one message into the outbox, and return its idempotency key."),
            Forward(
                "batch",
                "return Batch(self._background, {call})",
                says="Publishes that travel in one payload: `with client.batch() as batch: batch.publish(…)`.",
            ),
            Forward("cancel_scheduled"),
            Forward("remote_call"),
            Forward("request"),
            Forward(
                "reply",
                'check_count("at_once", at_once)\n'
                "called = self._in_threads(callback, at_once, is_answer=True)\n"
                "return Subscription(self._background, self._background.wait_for({later}))",
                says="Answer the requests on a channel or a wildcard with the result of `callback(message)`, at most `at_once` "
                "at the same time, each in a thread.",
            ),
            Forward(
                "subscribe",
                _CALLED + "return Subscription(self._background, self._background.wait_for({later}))",
                says="Subscribe to a channel or a wildcard, before or after you open the client. A `callback` runs in a thread "
                "of this subscription, with one message after another. If it raises SystemExit, the client logs it, the "
                "message stays open, and the next one follows.",
            ),
            Forward(
                "consume",
                "made = self._background.call({later})\nreturn Consumer(self._background, made, Client.of(made.client))",
            ),
            Forward(
                "listen",
                _CALLED + "return Subscription(self._background, self._background.call({later}))",
                says="Receive messages on a channel or a wildcard without a subscription at the server. A `callback` runs in a "
                "thread.",
            ),
            Forward("presence", "return Presence(self._background, self._background.call({later}))"),
        ),
        renamed=(("OnRequest", "OnMessage"), ("Message", "client_message.Message")),
        replaced=(("callback", "called"), ("outbox", "own")),
    ),
    Region(
        "sync_batch",
        "publish_options.Batch",
        (*attributes(replies="list[Reply]"), Forward("publish", SAME)),
    ),
    Region(
        "sync_outbox",
        "outbox.Outbox",
        (
            Forward("__init__", "self._begin(outbox.Outbox({passed}))"),
            *attributes(path="Path | None", waiting="int", failure="ClientError | None"),
            Forward("drained"),
            Forward("refused"),
            Forward("forget_refused"),
        ),
        attribute="self.origin",
    ),
    Region(
        "sync_subscription",
        "subscription.Subscription",
        (
            *attributes(channel="str", bound="int", overflow="Overflow", dropped="int", invalid="int"),
            *attributes(recovered="bool | None"),
            Forward("position", "return self._background.call(lambda: self._origin.position)"),
            *facts("queued", "is_full", "is_ended"),
            Forward("receive", "return self._shown(self._background.take({later}, self._put_back))"),
            Forward("unsubscribe"),
        ),
    ),
    Region(
        "sync_presence",
        "client_presence.Presence",
        (
            *attributes(channel="str", id="str | None", dropped="int"),
            *facts("members"),
            Forward("enter"),
            Forward("update"),
            Forward("leave"),
        ),
    ),
    Region(
        "sync_consumer",
        "consumer.Consumer",
        (
            *attributes(attempts="int", retrying="int"),
            *facts("fetched", "invalid"),
            Forward(
                "batch",
                "messages = self._background.take({later}, self._origin.put_back)\n"
                "return [Delivery.of(message, self._background) for message in messages]",
            ),
            Forward("stop", "self._background.call_soon({later})"),
            Forward("close"),
        ),
    ),
    Region(
        "sync_app",
        "app.App",
        (
            Forward("__init__", 'check_count("number", number)\nself._begin(Client(url, **options), number)'),
            Forward(
                "consumer",
                'check_count("at_once", at_once)\n'
                "return self._adding(lambda own: self.client.consume(channel, name=own, data=data, **options), name, at_once)",
                says="Call the function below with each message of a channel or a wildcard, at most `at_once` at the same "
                "time, each in a thread.",
            ),
        ),
    ),
    Region(
        "sync_message",
        "client_message.Message",
        (
            Forward("settle", _DECIDE),
            Forward("reject", _DECIDE),
            Forward("working", _DECIDE),
            Forward("defer", _DECIDE),
            Forward("give_up", "return self.background.call({later})"),
        ),
        attribute=_MESSAGE,
    ),
    Region(
        "sync_message",
        "consumer.Delivery",
        (
            *attributes(attempt="int", failures="int"),
            *facts("is_open", "is_waiting"),
            Forward("acknowledge", _DECIDE),
            Forward("retry", _DECIDE),
        ),
        attribute="self._delivery",
    ),
)


def members(region: Region) -> Iterator[str]:
    """The source of the members of a region."""
    module, _, name = region.origin.partition(".")
    tree = ast.parse((CLIENT / f"{module}.py").read_text("utf-8"))
    [found] = [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    for forward in region.members:
        methods = [each for each in found.body if isinstance(each, _METHODS) and each.name == forward.name]
        if forward.kind:
            documentation = " ".join(_attribute_documentation(found, forward.name).split())
            yield _fact(forward.name, forward.kind, documentation, region)
        elif any(ast.unparse(each) == "property" for each in methods[0].decorator_list):
            documentation, kind = ast.get_docstring(methods[0]) or "", _written(methods[0].returns, region)
            if forward.body == SAME:
                yield _fact(forward.name, kind, documentation, region)
            else:
                yield _property(forward.name, kind, documentation, forward.body)
        else:
            yield from (_method(each, forward, region) for each in methods)


def _fact(name: str, kind: str, documentation: str, region: Region) -> str:
    part = region.attribute.removeprefix("self.")
    return f'{name} = Fact[{kind}]("{part}", "{name}")\n"""{documentation}"""'


def _property(name: str, kind: str, documentation: str, body: str) -> str:
    return f'@property\ndef {name}(self) -> {kind}:\n    """{documentation}"""\n    {body}\n'


def _attribute_documentation(found: ast.ClassDef, name: str) -> str:
    """The text below the assignment that makes an attribute."""
    init = [each for each in found.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    statements = [*found.body, *(init[0].body if init else ())]
    for before, after in pairwise(statements):
        targets = before.targets if isinstance(before, ast.Assign) else [getattr(before, "target", None)]
        is_it = any(each is not None and ast.unparse(each) in (name, f"self.{name}") for each in targets)
        if is_it and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            return str(after.value.value)
    raise ValueError(f"{found.name}.{name} has no text below it")


def _method(method: ast.FunctionDef | ast.AsyncFunctionDef, forward: Forward, region: Region) -> str:
    given, returned = _written(method.args, region), _written(method.returns, region)
    if any(ast.unparse(each) == "overload" for each in method.decorator_list):
        return f"@overload\ndef {method.name}({given}) -> {returned}: ...\n"
    passed = ", ".join(_passed(method.args, dict(region.replaced)))
    function = f"{region.attribute}.{method.name}"
    call = f"{function}({passed})"
    body = forward.body.format(call=call, later=f"lambda: {call}" if passed else function, passed=passed)
    if returned == "None":
        body = body.removeprefix("return ")
    if not method.name.startswith("_"):
        body = f'"""{_documentation(method, forward, region)}"""\n{body}'
    return f"def {method.name}({given}) -> {returned}:\n{textwrap.indent(body, '    ')}\n"


def _documentation(method: ast.FunctionDef | ast.AsyncFunctionDef, forward: Forward, region: Region) -> str:
    """Its documentation, if that fits a line or two; else its first sentence, and where the rest is."""
    text = forward.says or ast.get_docstring(method) or ""
    if not forward.says and "\n\n" not in text and "await" not in text and len(text) < _SHORT:
        return text
    sentence = _SENTENCE.match(text)
    first = forward.says or " ".join((sentence.group() if sentence else text).split())
    rest = f"The arguments and errors are those of `crewel.client.{region.name}.{method.name}`."
    return textwrap.fill(f"{first} {rest}", _WIDTH)


def _passed(arguments: ast.arguments, replaced: dict[str, str]) -> Iterator[str]:
    """The arguments of a call that passes on what it was given."""
    yield from (replaced.get(each.arg, each.arg) for each in arguments.args[1:])
    yield from (f"{each.arg}={replaced.get(each.arg, each.arg)}" for each in arguments.kwonlyargs)
    if arguments.kwarg is not None:
        yield f"**{arguments.kwarg.arg}"


def _written(node: ast.AST | None, region: Region) -> str:
    """The source of arguments or of a type, with the names that types have here."""
    text = "None" if node is None else ast.unparse(node)
    for there, here in region.renamed:
        text = re.sub(rf"(?<![.\w]){there}\b", here, text)
    return text


def written(file: str) -> str:
    """What this file of the synchronous client has to hold."""
    text = (CLIENT / "sync" / f"{file}.py").read_text("utf-8")
    for region in REGIONS:
        if region.file == file:
            begin = _BEGIN.format(name=f"crewel.client.{region.name}")
            before, found, rest = text.partition(f"    {begin}\n")
            _, is_ended, after = rest.partition(f"    {_END}\n")
            if not (found and is_ended):
                raise SystemExit(f"{file}.py lacks the comment `{_END if found else begin}`")
            body = textwrap.indent("\n".join(members(region)), "    ")
            text = f"{before}    {begin}\n{body}\n    {_END}\n{after}"
    ruff = str(Path(sys.executable).with_name("ruff"))
    command = [ruff, "format", "--stdin-filename", str(CLIENT / f"{file}.py"), "-"]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: Iterable[str]) -> int:
    """Write the regions, or check them."""
    stale = []
    for file in dict.fromkeys(region.file for region in REGIONS):
        path, text = CLIENT / "sync" / f"{file}.py", written(file)
        if path.read_text("utf-8") != text:
            stale.append(path)
            if "--check" not in arguments:
                path.write_text(text, "utf-8")
    for path in stale:
        print(path.relative_to(CLIENT.parents[2]))
    return 1 if stale and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
