"""What the search of the site finds (docs/mkdocs_hooks.py): which page is for which word, and the names in the tables.

The tables of the reference come from the code (docs/generate.py), and so do the names: each row gets an anchor and becomes a
document of the index, as do headings that are the name of a command, a resource or something in Python. docs/assets/search.js
searches the index; a query that is exactly a name finds it first.
"""

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

BOOST = {"tutorial": 1.6, "how-to": 1.5, "explanation": 1.2, "contributing": 0.7, "project": 0.3, "decisions": 0.3}
"""How much a word in a page of each directory counts: most readers look for a guide, few for a reason."""
FINDS = {
    "explanation/guarantees.md": (
        "at least once",
        "backpressure",
        "deduplication",
        "delivery guarantee",
        "exactly once",
        "idempotent",
        "order of messages",
        "ordering",
        "slow consumer",
    ),
    "explanation/performance.md": ("benchmark", "latency", "memory", "throughput"),
    "explanation/storage.md": ("persistence", "redis", "valkey"),
    "how-to/acknowledging.md": ("ack", "acknowledge", "acknowledgement", "nack", "reject", "retry"),
    "how-to/analysing.md": ("duckdb", "pandas"),
    "how-to/celery.md": ("beat", "celery", "cron", "crontab", "periodic task", "task queue"),
    "how-to/cells.md": ("cell", "multi-tenancy", "sharding", "tenant"),
    "how-to/cluster.md": (
        "high availability",
        "load balancer",
        "rolling restart",
        "rolling update",
        "rolling upgrade",
        "scale",
        "scaling",
        "sticky sessions",
        "workers",
        "zero downtime",
    ),
    "how-to/console.md": ("admin", "console", "dashboard"),
    "how-to/curl.md": ("other languages",),
    "how-to/dead-letters.md": ("webhook",),
    "how-to/deploying.md": ("backup", "restore", "systemd", "upgrade"),
    "how-to/disk.md": ("disk full", "out of memory"),
    "how-to/django.md": ("django", "asgi", "wsgi"),
    "how-to/docker.md": ("compose", "container", "docker compose"),
    "how-to/fastapi.md": ("fastapi", "pydantic"),
    "how-to/flask.md": ("flask", "gunicorn"),
    "how-to/from-cometd-java.md": ("cometd",),
    "how-to/from-faye.md": ("faye",),
    "how-to/from-queues.md": (
        "amqp",
        "delay queue",
        "fifo queue",
        "message queue",
        "rabbitmq",
        "sqs",
        "sns",
        "visibility timeout",
    ),
    "how-to/from-socket-io.md": ("rooms", "socket.io"),
    "how-to/java.md": ("I_Callback", "java", "jms", "xmlblaster client"),
    "how-to/jwt.md": ("jwt", "authentication", "login", "oauth", "token"),
    "how-to/kubernetes.md": ("helm", "k8s"),
    "how-to/monitoring.md": ("alert", "alerts", "grafana", "prometheus"),
    "how-to/operating.md": ("backlog", "debug", "not delivered", "troubleshooting"),
    "how-to/page.md": ("CORS", "browser"),
    "how-to/pipeline.md": ("gold", "pipeline", "spark"),
    "how-to/point-to-point.md": ("consumer group", "offline", "work queue"),
    "how-to/presence.md": ("online", "presence", "typing indicator", "who is here"),
    "how-to/proxies.md": ("caddy", "certificate", "haproxy", "https", "nginx", "tls", "websocket"),
    "how-to/python.md": ("asyncio", "pip install", "python", "sync", "synchronous"),
    "how-to/react.md": ("React", "Vite"),
    "how-to/request-reply.md": ("request reply", "rpc"),
    "how-to/salesforce.md": ("change events", "platform events", "salesforce"),
    "how-to/scheduled-messages.md": ("countdown", "delayed message", "eta", "schedule", "timer"),
    "how-to/security.md": ("authorization", "permissions", "rate limit"),
    "how-to/sessions.md": ("durable", "session"),
    "how-to/subscribing.md": ("filter", "recovery", "replay", "subscribe", "subscription", "wildcard"),
    "how-to/testing.md": ("clock", "pytest", "test"),
    "how-to/topics.md": ("erase", "expiry", "GDPR", "retention", "ttl"),
    "reference/browser.md": ("@crewel/client", "Next.js", "React", "Svelte", "Vue", "npm", "typescript"),
    "reference/client.md": ("prefetch",),
    "reference/errors.md": ("402", "403", "413", "error code"),
    "reference/interop.md": ("client library",),
    "reference/protocol.md": (
        "/meta/connect",
        "/meta/handshake",
        "bayeux",
        "connect",
        "handshake",
        "long-polling",
        "server-sent events",
        "sse",
    ),
    "reference/rest.md": ("http api", "rest api", "swagger"),
    "reference/settings.md": ("configuration", "crewel.toml", "environment variables"),
    "reference/stability.md": ("downgrade", "semantic versioning"),
    "reference/subscriptions.md": ("replayId",),
    "tutorial/chat.md": ("getting started", "install", "quickstart"),
    "tutorial/dead-letters.md": ("dead letter", "dead letter queue", "dlq", "poison message", "redrive"),
    "tutorial/held-receiver.md": ("hold", "on hold", "pause"),
}
"""What readers type who look for a page, beside the words of its title."""
NAMED = "reference/"
"""The pages whose tables and headings hold names."""
_COMMANDS = {"how-to/pipeline.html": "crewel pipeline "}
"""Guides with a table of commands, and how a command begins there."""

_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_ROW = re.compile(r"<tr>(.*?)</tr>", re.DOTALL)
_CELL = re.compile(r"<(t[dh])([^>]*)>(.*?)</\1>", re.DOTALL)
_ID = re.compile(r'\bid="([^"]+)"')
_CODE = re.compile(r"<code>([^<]+)</code>")
_PAGE, _WRAPPED, _PADDING = 110, 30, 4
"""Widths in characters: of a page of 1,280 pixels between its lists, of a column whose text is wrapped, and beside a column."""
_FIGURES = ("project/bench/", "project/index.html")
"""The results of the benchmark and the README: their wide tables are compared by column."""
_NAME_COLUMNS = ("class", "field")
"""The columns beside the first one that hold names."""
_NAME = re.compile(r"(?:--)?[\w@/][\w@./:{}*-]*")
_MOST_WORDS = 3
"""Of a name with what follows it, such as `PUT /_mock/script`; more are a command line, and no name."""
_FIELDS = re.compile(r"<code>\{((?:&quot;|\")\w+[^<]*)\}</code>")
"""The fields of an object, in what a row says of it."""
_PYTHON = re.compile(r"#(crewel(?:\.\w+)+)$")


@dataclass(frozen=True)
class Name:
    """A name in a row of a table: where it stands, and what the row says of it."""

    name: str
    location: str
    meaning: str


def with_rows(content: str, url: str) -> tuple[str, list[Name]]:
    """Return the content of a page whose rows have anchors and whose cells say their column, and the names in the rows.

    The columns are for small screens, where each row is a card (docs/assets/site.css).
    """
    taken, names, begin = set(_ID.findall(content)), [], _COMMANDS.get(url, "")
    seen: set[str] = set()  # an option of many commands is a name once

    def table(found: re.Match[str]) -> str:
        head, _, body = found[0].partition("</thead>")
        columns = [text(cell[3]) for cell in _CELL.finditer(head)]

        def row(each: re.Match[str]) -> str:
            cells = [cell[3] for cell in _CELL.finditer(each[1])]
            labels = iter(columns)
            inner = _CELL.sub(
                lambda cell: f'<td{cell[2]} data-label="{html.escape(next(labels, ""))}">{cell[3]}</td>', each[1]
            )
            anchor = ""
            is_named = url.startswith(NAMED) or (begin and columns[:1] == ["command"])
            for name in map(begin.__add__, _names(columns, cells) if is_named else ()):
                if name in seen:
                    continue
                seen.add(name)
                anchor = anchor or _free(name, taken)
                names.append(Name(name, f"{url}#{anchor}", text(cells[1 if begin else -1])))
            if not anchor:
                return f"<tr>{inner}</tr>"
            first, end, rest = inner.partition("</code>")
            return (
                f'<tr id="{html.escape(anchor)}">{re.sub(r"(?<=[a-z])[.](?=[a-z])", ".<wbr>", first)}{end}{rest}</tr>'
            )

        if _is_wide(body) and not url.startswith(_FIGURES):
            head = head.replace("<table>", "<table data-cards>")
        return f"{head}</thead>{_ROW.sub(row, body)}"

    return _TABLE.sub(table, content), names


def _names(columns: Sequence[str], cells: Sequence[str]) -> Iterator[str]:
    """Yield the names of a row: the code with which its first cell begins, and that in columns of names."""
    for number, (column, cell) in enumerate(zip(columns, cells, strict=False)):
        if (number and column not in _NAME_COLUMNS) or not cell.startswith("<code>"):
            continue
        codes = _CODE.findall(cell)
        if any(len(code.split()) > _MOST_WORDS for code in codes[:1]):
            continue
        for code in codes:
            name = html.unescape(code).partition(" ")[0]
            if _NAME.fullmatch(name):
                yield name
                yield from (
                    f"{name}.{field}"
                    for fields in _FIELDS.findall(cells[-1])
                    for field in re.findall(r"\w{3,}", html.unescape(fields))
                )


def _is_wide(body: str) -> bool:
    """Tell whether a table needs more than the page has beside its two lists: names are not broken, and text wants room."""
    rows = [[text(cell[3]) for cell in _CELL.finditer(row[1])] for row in _ROW.finditer(body)]
    wants = (max(_want(cell) for cell in column) for column in zip_longest(*rows, fillvalue=""))
    return sum(want + _PADDING for want in wants) > _PAGE


def _want(cell: str) -> int:
    """Return how wide a cell wants to be: its longest word, and room to wrap the rest."""
    return max(min(len(cell), _WRAPPED), *map(len, cell.split()), 0)


def _free(name: str, taken: set[str]) -> str:
    """Return an anchor for a name that nothing else on the page has."""
    anchor = re.sub(r"[^\w.:-]+", "-", name).strip("-")
    number = 1
    while anchor in taken or not anchor:
        number += 1
        anchor = f"{anchor.rpartition('--')[0] or anchor}--{number}"
    taken.add(anchor)
    return anchor


def text(content: str) -> str:
    """Return HTML as plain text."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", content)).split())


def spellings(name: str) -> list[str]:
    """Return how readers may write a name: whole, and without what stands before it."""
    ends = [name[found.end() :] for found in re.finditer(r"[./]|^--|^crewel ", name)]
    if name.startswith("crewel."):  # a method is not what a reader of plain words looks for, such as `install`
        ends = [end for end in ends if not re.fullmatch("[a-z]+", end)]
    return list(dict.fromkeys([name, *(end for end in ends if end)]))


def write(site: Path, names: Sequence[Name], titles: Mapping[str, str]) -> None:
    """Put the names into the index that the theme has made; `titles` are those of the pages, in the order of the navigation."""
    file = site / "search" / "search_index.json"
    index: dict[str, Any] = json.loads(file.read_text("utf-8"))
    order = {url: number for number, url in enumerate(titles)}
    groups: set[str] = set()  # of commands, such as `crewel sessions`: found where the first of them is
    for doc in index["docs"]:
        if doc["location"].startswith(NAMED) and (name := _headline(doc)):
            group = name.rpartition(" ")[0] if name.startswith("crewel ") else ""
            doc["names"] = spellings(name) + ([] if group in {*groups, "", "crewel"} else [group])
            groups.add(group)
    found = (
        {
            "location": each.location,
            "title": html.escape(each.name, quote=False),
            "text": html.escape(f"{titles.get(page, page)}: {each.meaning}", quote=False),
            "names": spellings(each.name),
        }
        for each in sorted(names, key=lambda each: order.get(each.location.partition("#")[0], len(order)))
        for page in [each.location.partition("#")[0]]
    )
    index["docs"] = [doc for doc in index["docs"] if "names" not in doc] + sorted(
        [*(doc for doc in index["docs"] if "names" in doc), *found],
        key=lambda doc: order.get(doc["location"].partition("#")[0], len(order)),
    )
    file.write_text(json.dumps(index, separators=(",", ":")), "utf-8")


def _headline(doc: Mapping[str, Any]) -> str:
    """Return the name that a section has as its heading; empty if the heading is words."""
    if found := _PYTHON.search(doc["location"]):
        return found[1]
    whole = re.fullmatch(r"<code>([^<]+)</code>", doc["title"])
    return html.unescape(whole[1]) if whole else ""
