"""The orders, the menus and the payroll of a small company: a server with something of everything, and what it is asked.

Two servers can be had: one with the payroll, and one that has harmless things in its place. `CASES` says what each route is
asked at both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.admin.desk import SETS, TOKEN, Desk, Receiver
from tests.functional.bayeux import Message
from tests.functional.wire import until
from tests.security.issuer import secret_file, signed
from tests.server_process import Server

ROLES = ["destroy:/a/**", "view:/v/*"]
BY = "code,channel,receiver,likeness,reason,returns"
KEPT = {"publish": {"persistent": True, "history": {"maxEntries": 9}}}
SECRET = "salary-417"
NOTHING = ("1795179106957-0", "client/absentee/1", "1795324804876345")
"""A dead letter, a session and a message that neither server has."""

Names = dict[str, str]


class Stage(NamedTuple):
    """One of the two servers."""

    server: Server
    names: Names
    """What fills requests, of the orders."""
    hidden: Names
    """The same of the payroll; empty where there is none."""

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        response = Desk(self.server, signed(sub="ann", operator=ROLES)).ask(method, path, body)
        return response.status, response.body


def person(server: Server, name: str, *channels: str, group: str = "", **session: Any) -> Receiver:
    token = signed(sub=name.partition("/")[0], subscribe=["/**"], group=["/**"], presence=["/**"])
    receiver = Receiver(server).be(name, token=token, **session)
    options = {"ext": {"subscribe": {"group": group}}} if group else {}
    for channel in channels:
        (reply,) = receiver.send(receiver.message("/meta/subscribe", subscription=channel, **options))
        assert reply["successful"], reply
    return receiver


def say(speaker: Receiver, channel: str, data: Any, **publish: Any) -> str:
    """Publish a stored message; its id."""
    reply = speaker.publish(channel, data, ext={"publish": {**KEPT["publish"], **publish}})[-1]
    return str(reply["ext"]["publish"]["id"])


def rejected(admin: Desk, receiver: Receiver, messages: list[Message], text: str) -> list[str]:
    """The ids of the dead letters that these messages become."""
    receiver.reject(messages, text=text)
    query = f"receiver={receiver.login['name']}"
    letters = until(lambda: found if len(found := admin.letters(query)) == len(messages) else None)
    return [each["id"] for each in letters]


def work(admin: Desk, speaker: Receiver, receiver: Receiver, channel: str, word: str, key: str) -> Names:
    """Messages that are accepted, rejected, discarded, edited and redriven, and such that wait; what fills requests."""
    ids = [say(speaker, channel, {"word": f"{word} {number}"}, key=f"{key}{number}") for number in range(6)]
    messages = receiver.take()
    receiver.accept(messages[5:])
    letter, binned, edited, redriven = rejected(admin, receiver, messages[:4], f"no {word}")
    admin.post("/dead-letters/discard", {"ids": [binned]})
    admin.post(f"/dead-letters/{edited}/edit", {"data": {"word": f"better {word}"}})
    admin.post("/dead-letters/redrive", {"ids": [redriven]})
    until(lambda: admin.get(f"/messages/{ids[5]}")["states"].get("acknowledged"))
    # The second is cancelled before anyone asks.
    scheduled, cancelled = (say(speaker, channel, {"word": word}, deliverAt=at) for at in (4 * 10**12, 4 * 10**12 + 1))
    admin.post("/scheduled-messages/cancel", {"ids": [cancelled]})
    subject, number = receiver.login["name"].split("/")[-2:]
    return {
        "channel": channel, "subject": subject, "number": number, "message": ids[0], "accepted": ids[5], "letter": letter,
        "binned": binned, "edited": edited, "redriven": redriven, "word": word, "scheduled": scheduled, "cancelled": cancelled,
    }  # fmt: skip


def job(desk: Desk, **fields: Any) -> str:
    """Begin a job, and wait for its end; its id."""
    return ended(desk, desk.post("/jobs", fields)["id"])


def ended(desk: Desk, job_id: str) -> str:
    until(lambda: desk.get(f"/jobs/{job_id}")["ended"])
    return job_id


def staged(server: Server, *, has_payroll: bool) -> Stage:
    admin, speaker = Desk(server), Receiver(server).be("speaker/1", token=TOKEN)
    word, channel = (SECRET, "/payroll/x") if has_payroll else ("nothing", "/open/other")
    cook = person(server, "cook/1", "/a/orders")
    person(server, "cook/2", "/a/orders", group="workers")
    person(server, "mixed/1", "/a/orders", channel)
    person(server, "reader/1", "/v/menu")
    member = person(server, "member/1", "/a/orders")
    for entered in ("/a/orders", channel):
        member.publish("/service/presence", {"channel": entered, "action": "enter", "data": "here"})
    until(lambda: len(admin.get("/presence")["channels"]) == 2)
    person(server, "phoenix/1", channel)
    say(speaker, channel, word)
    former = person(server, "former/1", channel)
    past = person(server, "past/1", channel)
    guest = person(server, "guest/1", "/a/quiet", ptp=False)
    names = {}
    hidden = {}
    if has_payroll:
        clerk = person(server, "clerk/1", channel)
        person(server, "clerk/2", "/payroll/**", group="workers")
        hidden = work(admin, speaker, clerk, channel, SECRET, "k")
        speaker.publish("/service/print", 1)
    names = work(admin, speaker, cook, "/a/orders", "order", "k")
    say(speaker, "/v/menu", "soup")
    for number in range(3):
        say(speaker, channel, {"word": f"{word} {number}"}, key="k1")
    # A group on all channels, two queues with messages of a channel that the sessions have left, and one with an earlier life.
    person(server, "all/1", "/**", group="everything")
    assert former.send(former.message("/meta/unsubscribe", subscription=channel))[-1]["successful"]
    former.subscribe("/a/quiet")
    # A session that has dealt with all messages of a channel that it has left.
    first, *others = past.take()
    past.accept(others)
    rejected(admin, past, [first], f"no {word}")
    assert past.send(past.message("/meta/unsubscribe", subscription=channel))[-1]["successful"]
    past.subscribe("/a/quiet")
    # And one whose queue was full of messages of such a channel.
    full = person(server, "full/1", "/a/quiet", "/payroll/full", queue={"maxEntries": 1, "onOverflow": "dropOldest"})
    if has_payroll:
        for _ in range(3):
            say(speaker, "/payroll/full", word)
        until(lambda: any("policy" in each for each in admin.get("/sessions/full/1")["causes"]))
        full.accept(full.take())
    assert full.send(full.message("/meta/unsubscribe", subscription="/payroll/full"))[-1]["successful"]
    speaker.publish(
        channel,
        word,
        ext={"publish": {"persistent": True, "destination": [{"to": "client/guest", "forceQueuing": True}]}},
    )
    until(lambda: admin.get("/subjects/guest")["queued"])
    for name in ("phoenix/1", "mixed/1", "all/1"):
        admin.post(f"/sessions/{name}/hold", {"reason": word})
    admin.post("/sessions/phoenix/1/kill")
    person(server, "phoenix/1", "/a/quiet")
    assert guest.take() == []
    ann, wide = (Desk(server, signed(sub="ann", operator=roles)) for roles in (ROLES, "operate"))
    names["job"] = job(ann, what="redrive", all=True, contains="not there")
    if has_payroll:
        say(speaker, channel, {"word": f"{word} of many"})
        hidden["job"] = job(wide, what="redrive", all=True, contains="not there")
        job(admin, what="drain", sessions=["client/clerk/2"])
    return Stage(server, names, hidden)


def company(directory: Path, *, has_payroll: bool) -> Stage:
    """A server of its own in this directory, with all that is there."""
    sets = (
        *SETS,
        "security.policy=jwt",
        f"security.jwt_keys={secret_file(directory)}",
        "delivery.dead_letters_max=50",
        "limits.max_deliver_after_ms=0",
        "bayeux.sweep_ms=3600000",  # what is swept is there or not, as long as the answers take
        "bayeux.interval_ms=600000",  # and no client counts as away meanwhile
    )
    options = ["--port=0", "--service=tests.admin.slow_service", *(f"--set={text}" for text in sets)]
    return staged(Server(options, directory), has_payroll=has_payroll)


class Ask(NamedTuple):
    """One request. `{name}` stands for what the names say, of the orders, and `{hidden}` of the payroll."""

    path: str
    body: Any = None


def of_session(verb: str = "", body: Any = None, *, ends: bool = False) -> Callable[[Names, Names], list[Ask]]:
    """The requests about a session: of the payroll, one that is hidden on both, one that is nowhere, and one of the orders."""
    others = ["clerk/1", "clerk/2", "mixed/1", "former/1", "all/1", "absentee/1", "speaker/1"]
    return lambda _, __: [
        Ask(f"/sessions/{name}{verb}", body)
        for name in (*others, *([] if ends else ["cook/1", "reader/1", "past/1", "full/1"]))
    ]


def of_subject(verb: str = "") -> Callable[[Names, Names], list[Ask]]:
    return lambda _, __: [Ask(f"/subjects/{name}{verb}") for name in ("clerk", "guest", "mixed", "absentee", "reader")]


def of_channel(
    path: str, body: Any = None, channels: str = "payroll/x v/menu nowhere/x"
) -> Callable[[Names, Names], list[Ask]]:
    return lambda _, __: [Ask(path.replace("CHANNEL", name), body) for name in channels.split()]


def plain(*asks: str) -> Callable[[Names, Names], list[Ask]]:
    return lambda _, __: [Ask(each) for each in asks]


def of_id(path: str, *kinds: str, body: Any = None) -> Callable[[Names, Names], list[Ask]]:
    """The requests about an id of these kinds: of the payroll, of the orders, and of nothing."""
    nothing = [*NOTHING, "x"]

    def asks(names: Names, hidden: Names) -> list[Ask]:
        ids = [*(hidden[kind] for kind in kinds), *(names[kind] for kind in kinds), *nothing]
        return [Ask(path.replace("ID", each.replace("/", "%2F")), body) for each in ids]

    return asks


def of_ids(path: str, **more: Any) -> Callable[[Names, Names], list[Ask]]:
    """The requests with ids of the payroll in the body."""

    def asks(_: Names, hidden: Names) -> list[Ask]:
        kinds = ("letter", "binned", "edited", "redriven")
        bodies = [{"ids": [hidden[kind]]} for kind in kinds] + [{"ids": [NOTHING[0]]}]
        bodies += [{"ids": [NOTHING[0], *(hidden[kind] for kind in kinds)]}]
        return [Ask(path, {**body, **more}) for body in bodies]

    return asks


def bodies(path: str, *given: Any) -> Callable[[Names, Names], list[Ask]]:
    return lambda _, __: [Ask(path, body) for body in given]


def joined(*parts: Callable[[Names, Names], list[Ask]]) -> Callable[[Names, Names], list[Ask]]:
    return lambda names, hidden: [ask for part in parts for ask in part(names, hidden)]


FILTERS = [
    "", "contains=salary", "contains=salary-4", "contains=order", "field=word=salary-417%200", "channel=/payroll/**",
    "channel=/**", "receiver=client/clerk/1", "code=user", "deadReason=no%20salary-1", "since=1", "count=1",
]  # fmt: skip


def filtered(path: str, *more: str) -> Callable[[Names, Names], list[Ask]]:
    return plain(*(f"{path}?{each}" for each in (*FILTERS, *more)))


COMMANDS = [
    "?version", "?numSessions", "?sessionList", "?dump", "client/clerk/?numSessions", "client/absentee/?numSessions",
    "client/guest/?subjectQueueNumMsgs", "client/mixed/?sessionList", "client/clerk/1/?cbQueueNumMsgs",
    "client/absentee/1/?cbQueueNumMsgs", "client/former/1/?peekCallbackMessages=9", "client/former/1/?killSession",
    "client/past/1/?lastCallbackException", "client/past/1/?numCallbackExceptions", "client/past/1/?stalled",
    "client/cook/1/?cbQueueNumMsgs", "client/cook/1/?peekCallbackMessages=9", "client/phoenix/1/?holdback",
    "topic/payroll/x/?stateStr", "topic/nowhere/?stateStr", "topic/a/orders/?subscribers", "topic/a/orders/?groups",
    "topic/a/**/?subscribers", "topic/a/orders/?unSubscribeBySessionName=client/clerk/1",
    "topic/a/orders/?unSubscribeBySessionName=client/absentee/1", "topic/a/nowhere/?stateStr",
]  # fmt: skip
LISTS = ["", "?count=1", "?sort=waiting&count=2", "?contains=clerk", "?contains=e"]
CASES: dict[str, Callable[[Names, Names], list[Ask]]] = {
    "GET /commands": plain("/commands"),
    "POST /commands": bodies("/commands", *({"command": f"__cmd:{each}"} for each in COMMANDS)),
    "POST /sign-in": bodies("/sign-in", {"token": "none"}),
    "POST /sign-out": plain("/sign-out"),
    "POST /feed": plain("/feed"),
    "GET /me": plain("/me"),
    "GET /overview": plain("/overview"),
    "GET /timeline": plain("/timeline"),
    "GET /receivers": plain(
        *(f"/receivers{each}" for each in (*LISTS, "?sort=trouble&count=1", "?held=true", "?kind=group", "?kind=subject",
        "?condition=on%20hold", "?address=127", "?cause=overflow")),
    ),
    "GET /sessions": plain(*(f"/sessions{each}" for each in (*LISTS, "?active=false", "?subject=clerk", "?subject=former"))),
    "GET /sessions/{subject}/{number}": of_session(),
    "GET /sessions/{subject}/{number}/messages": of_session("/messages"),
    "GET /sessions/{subject}/{number}/timeline": joined(
        of_session("/timeline"), plain("/sessions/phoenix/1/timeline", "/sessions/phoenix/1/timeline?count=1")
    ),
    "GET /sessions/{subject}/{number}/trace": of_session("/trace?seconds=1"),
    **{
        f"POST /sessions/{{subject}}/{{number}}/{verb}": of_session(f"/{verb}", ends=verb in ("skip", "drain", "clear", "kill"))
        for verb in ("activate", "hold", "skip", "drain", "clear", "retry", "refresh", "kill")
    },
    "POST /sessions/{subject}/{number}/ping": of_session("/ping", ends=True),
    "GET /subjects": plain("/subjects", "/subjects?count=1", "/subjects?after=a", "/subjects?after=clerk"),
    "GET /subjects/{subject}": joined(of_subject(), plain("/subjects/cook")),
    "GET /subjects/{subject}/messages": joined(of_subject("/messages"), plain("/subjects/cook/messages")),
    "DELETE /subjects/{subject}/messages": of_subject("/messages"),
    **{f"POST /subjects/{{subject}}/{verb}": of_subject(f"/{verb}") for verb in ("kill", "block", "unblock")},
    "GET /topics": plain("/topics", "/topics?count=1", "/topics?pattern=/**", "/topics?pattern=/payroll/*", "/topics?after=/b"),
    "GET /topics/{channel}": of_channel("/topics/CHANNEL", channels="payroll/x a/orders a/quiet v/menu a/nowhere nowhere/x"),
    "GET /history/{channel}": of_channel("/history/CHANNEL", channels="payroll/x a/orders v/menu a/nowhere nowhere/x"),
    "DELETE /topics/{channel}": of_channel("/topics/CHANNEL"),
    "DELETE /history/{channel}": of_channel("/history/CHANNEL"),
    "GET /prefixes": plain("/prefixes", "/prefixes?count=1", "/prefixes?below=/payroll", "/prefixes?below=/a"),
    "GET /presence": plain("/presence", "/presence?count=1", "/presence?after=/a/orders"),
    "GET /presence/{channel}": of_channel("/presence/CHANNEL", channels="payroll/x a/orders v/menu a/nowhere nowhere/x"),
    "POST /publish/{channel}": of_channel("/publish/CHANNEL", {"data": 1}, "payroll/x v/menu nowhere/x a/unheard"),
    "GET /groups/{channel}": plain(
        "/groups/payroll/**?name=workers", "/groups/**?name=everything", "/groups/a/orders?name=workers",
        "/groups/a/orders?name=x",
    ),
    "GET /rates": plain("/rates?by=receiver", "/rates?by=group", "/rates?by=topic"),
    "GET /dead-letters/bin": plain(
        *(f"/dead-letters/bin?{each}" for each in FILTERS), "/dead-letters/bin?job=1795179106957-17"
    ),
    "GET /dead-letters/bin/{id}": of_id("/dead-letters/bin/ID", "binned", "edited", "letter"),
    "POST /dead-letters/restore": joined(
        of_ids("/dead-letters/restore"),
        bodies("/dead-letters/restore", {"all": True, "contains": "salary"}, {"all": True, "channel": "/payroll/x"}),
    ),
    "POST /dead-letters/{id}/edit": lambda names, hidden: [
        Ask(f"/dead-letters/{each}/edit", {"data": 1}) for each in (hidden["letter"], hidden["binned"], NOTHING[0], "x")
    ],
    "GET /dead-letters": filtered("/dead-letters", "newestFirst=true&count=1", "returns=0", "like=x"),
    "GET /dead-letters/count": plain(
        *(f"/dead-letters/count?{each}" for each in FILTERS if "count" not in each),
        *(f"/dead-letters/count?by={BY}&facets={each}" for each in ("true&code=user.update", "true", "false")),
    ),
    "GET /dead-letters/accounts": plain("/dead-letters/accounts"),
    "GET /dead-letters/groups": plain(
        *(f"/dead-letters/groups?by={by}" for by in ("code", "channel", "receiver", "likeness", "reason", "returns")),
        *(f"/dead-letters/groups?{each}" for each in FILTERS if "count" not in each),
    ),
    "GET /dead-letters/export": plain(*(f"/dead-letters/export?{each}" for each in FILTERS if "count" not in each)),
    "GET /dead-letters/{id}": of_id("/dead-letters/ID", "letter", "binned", "edited"),
    "POST /dead-letters/redrive": joined(
        of_ids("/dead-letters/redrive"), of_ids("/dead-letters/redrive", dryRun=True),
        bodies("/dead-letters/redrive", {"all": True, "dryRun": True}, {"all": True, "contains": "salary"}),
    ),
    "POST /dead-letters/discard": joined(
        of_ids("/dead-letters/discard", dryRun=True), of_ids("/dead-letters/discard", forGood=True),
        bodies("/dead-letters/discard", {"all": True, "dryRun": True}, {"all": True, "contains": "salary"}),
    ),
    "POST /jobs": joined(
        of_ids("/jobs", what="redrive"),
        bodies(
            "/jobs",
            *({"what": "drain", "sessions": [name]} for name in ("client/clerk/1", "client/former/1", "client/absentee/1")),
            *({"what": "drain", "subject": name} for name in ("clerk", "mixed", "absentee")),
            {"what": "discard", "all": True, "contains": "salary"},
        ),
    ),
    "GET /jobs": lambda names, hidden: [
        Ask(f"/jobs{each}") for each in ("", "?count=1", "?state=done", f"?after={hidden['job']}", f"?after={names['job']}")
    ],
    "GET /jobs/{job}/letters": of_id("/jobs/ID/letters", "job"),
    "GET /jobs/{job}": of_id("/jobs/ID", "job"),
    **{f"POST /jobs/{{job}}/{verb}": of_id(f"/jobs/ID/{verb}", "job") for verb in ("pause", "resume", "stop")},
    "GET /scheduled-messages": plain(
        *(f"/scheduled-messages{each}" for each in ("", "?channel=/payroll/**", "?channel=/**", "?count=1", "?after=4-5"))
    ),
    "GET /scheduled-messages/{scheduled}": of_id("/scheduled-messages/ID", "scheduled", "cancelled", "message"),
    "POST /scheduled-messages/cancel": lambda names, hidden: [
        Ask("/scheduled-messages/cancel", {"ids": ids})
        for ids in ([hidden["scheduled"]], [NOTHING[2]], [hidden["scheduled"], names["scheduled"]], [names["cancelled"]])
    ],
    "GET /messages/{message}": of_id(
        "/messages/ID", "message", "accepted", "letter", "binned", "edited", "redriven", "scheduled", "cancelled"
    ),
    "GET /messages": plain(
        *(
            f"/messages?{each}{count}"
            for each in (*FILTERS[:5], "key=k1", "key=k3")
            for count in ("", "&count=1", "&count=3")
        )
    ),
    "GET /dead-letters/{id}/end": of_id("/dead-letters/ID/end", "letter", "binned", "edited", "redriven"),
    "GET /requests": plain("/requests", "/requests?channel=/service"),
    "GET /nodes": plain("/nodes"),
    "GET /alerts": plain("/alerts"),
    "GET /settings": plain("/settings"),
    "PATCH /settings": bodies("/settings", {"bayeux.timeout_ms": 1000}),
    "GET /audit": plain("/audit", "/audit?contains=salary"),
    "GET /audit/export": plain("/audit/export"),
    "GET /openapi.json": plain("/openapi.json"),
}  # fmt: skip
"""What each route is asked at both servers."""
IN_ORDER = sorted(CASES, key=lambda case: (not case.startswith("GET"), "kill" in case or "block" in case))
"""The routes, what changes something after what looks at it."""


def neutral(text: str, names: Names) -> str:
    """The answer without what differs between two runs: ids and times. Ids of the orders stay apart from each other."""
    for name, value in names.items():
        if value[:1].isdigit() and len(value) > 5:
            text = text.replace(value, f"<{name}>")
    rates = json.loads(text) if text.startswith('{"by"') and '"rates"' in text else None
    if rates is not None:  # slices of time
        return json.dumps({name: round(30 * sum(filter(None, each))) for name, each in sorted(rates["rates"].items())})
    for pattern, word in _DIFFERS:
        text = re.sub(pattern, word, text)
    return text


_DIFFERS = (
    (r'"(next|after)":"~[^"]+"', r'"\1":"<place>"'),
    (r"\b1\d{12}-\d+\b", "<dead id>"),
    (r"\b1\d{15,18}\b", "<id>"),
    (r"\b1\d{12}(\.\d+)?\b", "<time>"),
    (r'"(withinMs|trouble|diesIn|uptimeMs)":\d+', r'"\1":0'),
    (r'"epoch":"[^"]+"', '"epoch":"<epoch>"'),
    (r"\b\d+ (ms|s|min|h)\b", "<span>"),
    (r'"load":(null|\{[^}]*\})', '"load":<load>'),
    (r'"samples":\{[^}]*\}', '"samples":<samples>'),
    # A client that has had a message for ten seconds: one server was there before the other.
    (r',\{"kind":"busy"[^}]*\}', ""),
)


def first_difference(one: str, other: str) -> tuple[str, str]:
    """What stands in both texts around the first place where they differ."""
    at = next((at for at, (here, there) in enumerate(zip(one, other, strict=False)) if here != there), 0)
    return one[max(at - 60, 0) : at + 60], other[max(at - 60, 0) : at + 60]
