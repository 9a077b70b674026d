"""The table of checks, the report, and that each check of a kind notices what it is there for."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from crewel.conformance.check_table import CHECKS, SECTIONS, Level, Outcome
from crewel.conformance.report import as_html, as_json
from crewel.conformance.runner import Report, Result, Unreachable, run
from crewel.conformance.trial import Trial
from crewel.conformance.verdicts import WEBSOCKET, Failed
from crewel.conformance.wires import Site
from crewel.testing import LoopThread, Server
from tests.conformance.conftest import RunChecks

Messages = list[dict[str, Any]]
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@contextmanager
def answering(loop_thread: LoopThread, answer: Answer) -> Iterator[str]:
    """A server with this answer to all requests; yields its address."""

    async def start() -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner

    runner = loop_thread.run(start())
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        loop_thread.run(runner.cleanup())


def test_each_check_has_a_statement_and_says_how_it_looks() -> None:
    assert len(CHECKS) > 60
    for each in CHECKS.values():
        assert each.text.endswith(".")
        assert each.how.endswith(".")
        assert each.transports
    assert {each.section for each in CHECKS.values()} == set(SECTIONS)


def report_of(outcome: Outcome, detail: str) -> Report:
    check = CHECKS["meta-id"]
    return Report("http://x/<b>", ["long-polling"], [Result(check, "long-polling", outcome, detail, 0.25)])


def test_the_report_escapes_what_a_server_sends() -> None:
    page = as_html(report_of(Outcome.FAILED, "got <script>alert(1)</script>"))
    assert "<script>" not in page
    assert "got &lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<code>http://x/&lt;b&gt;</code>" in page


def test_the_report_lists_first_what_failed() -> None:
    page = as_html(report_of(Outcome.FAILED, "expected an id, got none"))
    before, _, table = page.partition("<h2>All checks</h2>")
    assert '<a class="id" href="#meta-id">meta-id</a> MUST, long-polling:' in before
    assert "expected an id, got none" in before
    assert '<tr id="meta-id">' in table
    assert "<p>No check failed.</p>" in as_html(report_of(Outcome.PASSED, ""))


def test_the_report_as_json() -> None:
    report = as_json(report_of(Outcome.UNTESTED, "why"))
    assert report["summary"]["MUST"] == {"passed": 0, "failed": 0, "not offered": 0, "untested": 1}
    (row,) = report["checks"]
    assert row["link"] == "https://docs.cometd.org/current8/reference/#_bayeux_id"
    assert row["results"] == [{"transport": "long-polling", "outcome": "untested", "detail": "why", "ms": 250}]


# Servers that do something wrong


def outcomes(report: Report) -> dict[str, Outcome]:
    """The outcomes on one transport, by check."""
    return {each.check.id: each.outcome for each in report.results}


def without(field: str, channel: str = "") -> Callable[[Messages], Messages]:
    def changed(messages: Messages) -> Messages:
        return [
            {name: value for name, value in each.items() if name != field or channel not in each["channel"]}
            for each in messages
        ]

    return changed


def with_fields(channel: str, **fields: Any) -> Callable[[Messages], Messages]:
    return lambda messages: [{**each, **(fields if channel in each["channel"] else {})} for each in messages]


def delivered(**fields: Any) -> Callable[[Messages], Messages]:
    return lambda messages: [{**each, **(fields if "data" in each else {})} for each in messages]


WRONG: dict[str, Callable[[Messages], Messages]] = {
    "meta-reply": lambda messages: [each for each in messages if each["channel"] != "/meta/unsubscribe"],
    "meta-id": with_fields("/meta/disconnect", id="other"),
    "meta-successful": without("successful", "/meta/disconnect"),
    "publish-successful": without("successful", "/conformance"),
    "message-channel": lambda messages: [
        {name: value for name, value in each.items() if name != "channel" or "data" not in each} for each in messages
    ],
    "message-array": lambda messages: messages[:2],
    "handshake-fields": without("version", "/meta/handshake"),
    "handshake-common": with_fields("/meta/handshake", supportedConnectionTypes=["smoke"]),
    "handshake-none-common": with_fields("/meta/handshake", successful=True),
    "handshake-failure": without("error", "/meta/handshake"),
    "client-id-unique": with_fields("/meta/handshake", clientId="same"),
    "client-id-alphanumeric": with_fields("/meta/handshake", clientId="a-b"),
    "client-id-random": with_fields("/meta/handshake", clientId="abcdefgh"),
    "long-polling-offered": with_fields("/meta/handshake", supportedConnectionTypes=["websocket"]),
    "error-format": with_fields("/meta/subscribe", error="no"),
    "timestamp-format": with_fields("/meta/connect", timestamp="Fri Nov 20 07:00:07 UTC 2026"),
    "connect-unknown": with_fields("/meta/connect", successful=True),
    "unconnected-handshake-advice": without("advice", "/meta/connect"),
    "error-arguments": with_fields("/meta/subscribe", error="403::subscribe_denied"),
    "disconnect-ends": with_fields("/meta/subscribe", successful=True),
    "subscribe-fields": without("subscription", "/meta/subscribe"),
    "unsubscribe-fields": without("subscription", "/meta/unsubscribe"),
    "delivery": lambda messages: [each for each in messages if "data" not in each],
    "delivery-data": delivered(data="other"),
    "delivery-has-data": lambda messages: [
        {name: value for name, value in each.items() if name != "data" or value is not None} for each in messages
    ],
    "one-copy": lambda messages: [each for each in messages for _ in range(1 + ("data" in each))],
    "order": lambda messages: messages[::-1],
    "no-publisher-id": delivered(id="publisher1"),
    "forged-fields": delivered(advice={"reconnect": "none"}),
    "messages-first": lambda messages: messages[::-1],
    "service-id": with_fields("/service/", id="other"),
    "service-subscribe": with_fields("/meta/subscribe", successful=False),
    "meta-subscribe": with_fields("/meta/subscribe", successful=True),
    "unconnected-refused": without("error"),
    "service-not-distributed": lambda messages: [
        each
        for message in messages
        for each in [{"channel": f"/service{message['channel'].rpartition('/')[0]}", "data": 1}, message]
        if message is each or "data" in message
    ],
    "prefer-response": lambda messages: [
        each for each in messages if "data" not in each or messages[-1]["channel"] == "/meta/connect"
    ],
    "multiple-clients": without("advice", "/meta/connect"),
}
"""What a server in between does to the messages of each response, and the check that must notice."""
HOLDS_ALL = ("connect-timeout-0", "connect-timeout", "first-connect")
"""The checks that notice a server that holds each connect, also the first, and whatever a client advises."""
WHILE_HELD = ("two-requests", "newer-connect", "broken-connection", "disconnect-releases")
"""Those that notice what a server does to other requests while a connect is held."""


class Meddler:
    """A server that passes requests on to a right one, and does something wrong, as the first part of the path says."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._handshaken: set[str] = set()
        self._publishers: dict[str, str] = {}
        self._held: defaultdict[str, set[Any]] = defaultdict(set)
        """The sessions with a connect that is not answered, by the first part of the path."""

    async def start(self) -> str:
        unlimited = aiohttp.TCPConnector(limit=0)  # held connects must not keep other requests waiting
        self._agent = aiohttp.ClientSession(connector=unlimited, cookie_jar=aiohttp.DummyCookieJar())
        app = web.Application()
        app.router.add_post("/{name}/cometd{tail:.*}", self._pass_on)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._agent.close()
        await self._runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.Response:
        name, asked = request.match_info["name"], await request.json()
        if "data" in asked[0]:
            self._publishers[name] = asked[0].get("clientId", "")
        refused = self._refused(name, asked[0])
        if refused is not None:
            return refused
        is_connect, session = asked[0]["channel"] == "/meta/connect", asked[0].get("clientId")
        requests = [asked]
        if is_connect and name in (*HOLDS_ALL, "holds-all"):
            plain = {field: value for field, value in asked[0].items() if field != "advice"}
            requests = [[{**plain, "id": "first", "advice": {"timeout": 0}}], [plain]]
        elif name == "batched-connect" and len(asked) > 1:
            requests = [asked[:1], asked[1:]]
        if is_connect:
            self._held[name].add(session)
        try:
            answers = [await self._answer(name, each, request.headers.get("Cookie", "")) for each in requests]
        except aiohttp.ClientError:  # the test has ended
            return web.Response(status=502)
        finally:
            if is_connect:
                self._held[name].discard(session)
        if name == "batched-connect" and len(asked) > 1:
            return web.json_response([each for answer in answers for each in json.loads(answer.text or "")])
        return answers[-1]

    async def _answer(self, name: str, asked: Messages, cookie: str) -> web.Response:
        headers = {"Cookie": cookie, "Content-Type": "application/json"}
        async with self._agent.post(self._target, json=asked, headers=headers) as response:
            body = await response.read()
            cookies = response.headers.getall("Set-Cookie", [])
        if response.status == 200:
            body = json.dumps(self._changed(name, json.loads(body))).encode()
        answer = web.Response(status=response.status, body=body, content_type="application/json")
        for each in cookies:
            answer.headers.add("Set-Cookie", each)
        return answer

    def _refused(self, name: str, message: dict[str, Any]) -> web.Response | None:
        """The answer to a request that is not passed on, because a connect is held."""
        channel, session, held = message["channel"], message.get("clientId"), self._held[name]
        reply = {"channel": channel, "id": message.get("id"), "successful": False}
        match name:
            case "two-requests" if session in held and channel != "/meta/disconnect":
                return web.Response(status=503)
            case "newer-connect" if session in held and channel == "/meta/connect":
                return web.json_response([reply])
            case "broken-connection" if held and channel == "/meta/connect":
                return web.json_response([reply])
            case "disconnect-releases" if session in held and channel == "/meta/disconnect":
                held.discard(session)  # the next one is passed on
                return web.json_response([{**reply, "successful": True}])
        return None

    def _changed(self, name: str, messages: Messages) -> Messages:
        if name not in self._handshaken:  # by the first one the runner learns what the server offers
            self._handshaken.add(name)
            return messages
        if name == "client-id-leak":
            return delivered(clientId=self._publishers.get(name))(messages)
        if name == "no-service-reply":
            return [each for each in messages if "/service/" not in each["channel"]]
        return WRONG.get(name, list)(messages)


@pytest.fixture
def meddled(crewel: Server, loop_thread: LoopThread) -> Iterator[str]:
    """The address of a `Meddler` before a server."""
    meddler = Meddler(crewel.url)
    yield loop_thread.run(meddler.start())
    loop_thread.run(meddler.stop())


@pytest.mark.server
@pytest.mark.crewel(settings={"bayeux.timeout_ms": 60_000})
def test_each_check_notices_a_server_that_does_not_obey(meddled: str, loop_thread: LoopThread) -> None:
    names = [*WRONG, *HOLDS_ALL, *WHILE_HELD, "batched-connect", "client-id-leak"]

    async def failing(path: str, checks: list[str], limit_s: float) -> list[str]:
        site = Site(f"{meddled}/{path}/cometd", limit_s=limit_s)
        report = await run(site, only=checks, transports=["long-polling"])
        return [each.check.id for each in report.failed(*Level)]

    async def found() -> list[list[str]]:
        # Several of these failures are that nothing comes, and take the whole limit.
        return await asyncio.gather(*(failing(name, [name], 5) for name in names))

    # What a right server does is passed on unchanged: the checks do not fail because of the server in between.
    assert asyncio.run(failing("nothing", names, 30)) == []
    assert asyncio.run(found()) == [[name] for name in names]


@pytest.mark.server
def test_a_server_that_does_not_reply_on_service_channels_does_not_fail_by_it(
    meddled: str, run_checks: RunChecks
) -> None:
    only = ["service-not-distributed", "service-id"]
    report = run_checks(f"{meddled}/no-service-reply/cometd", only=only, transports=["long-polling"])
    assert outcomes(report) == {"service-not-distributed": Outcome.PASSED, "service-id": Outcome.UNTESTED}


@pytest.mark.server
@pytest.mark.crewel(settings={"bayeux.timeout_ms": 6000})
def test_a_server_that_holds_each_connect_fails_only_what_is_about_that(meddled: str, run_checks: RunChecks) -> None:
    meta = ("meta-reply", "meta-id", "meta-successful")
    others = ("delivery", "wildcard-one", "two-requests", "broken-connection")
    only = [*HOLDS_ALL, *meta, *others]
    report = run_checks(f"{meddled}/holds-all/cometd", 3, only=only, transports=["long-polling"])
    assert outcomes(report) == {
        **dict.fromkeys(HOLDS_ALL, Outcome.FAILED),
        **dict.fromkeys(meta, Outcome.PASSED),
        **dict.fromkeys(others, Outcome.UNTESTED),
    }


IMMEDIATE = [*HOLDS_ALL, "batched-connect", "disconnect-releases"]
"""The checks that a connect is answered within the limit, although it could be held."""


@pytest.mark.server
@pytest.mark.crewel(settings={"bayeux.timeout_ms": 0})
def test_a_server_that_holds_no_connect_gives_no_occasion_to_look(crewel: Server, run_checks: RunChecks) -> None:
    held = ["two-requests", "prefer-response", "newer-connect", "multiple-clients", "broken-connection"]
    report = run_checks(crewel.url, only=[*held, *IMMEDIATE], transports=["long-polling"])
    assert outcomes(report) == dict.fromkeys([*held, *IMMEDIATE], Outcome.UNTESTED)
    report = run_checks(crewel.url, only=["two-requests"], transports=["websocket"])
    assert outcomes(report) == {"two-requests": Outcome.UNTESTED}


@pytest.mark.server
@pytest.mark.crewel(settings={"bayeux.timeout_ms": 20_000})
def test_a_limit_above_the_time_that_a_connect_is_held_tests_nothing_of_it(
    crewel: Server, run_checks: RunChecks
) -> None:
    report = run_checks(crewel.url, 20, only=IMMEDIATE, transports=["long-polling"])
    assert outcomes(report) == dict.fromkeys(IMMEDIATE, Outcome.UNTESTED)
    assert {each.detail for each in report.results} == {
        "the server answers every connect within 20 s, and the limit is 20 s"
    }


@pytest.mark.server
def test_a_server_that_refuses_without_an_error_has_no_format_of_errors(meddled: str, run_checks: RunChecks) -> None:
    report = run_checks(f"{meddled}/unconnected-refused/cometd", only=["error-format"], transports=["long-polling"])
    assert outcomes(report) == {"error-format": Outcome.UNTESTED}


@pytest.mark.server
def test_a_frame_that_is_no_payload_fails_what_waits_for_it(loop_thread: LoopThread) -> None:
    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_str("<html>")
        await socket.receive()
        return socket

    async def shake(url: str) -> None:
        async with Trial(Site(url, limit_s=10), WEBSOCKET, "/conformance", None) as trial:
            await trial.client().handshake()

    expected = "expected a JSON array of messages, got a frame '<html>'"
    with answering(loop_thread, answer) as url, pytest.raises(Failed, match=expected):
        asyncio.run(shake(url))


@pytest.mark.server
@pytest.mark.parametrize("body", ["[]", "{}", "null", "7", "[7]", "<html>", "[{}]", '[{"channel":7}]'])
def test_a_server_that_speaks_something_else_is_named(
    body: str, loop_thread: LoopThread, run_checks: RunChecks
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    with answering(loop_thread, answer) as url, pytest.raises(Unreachable, match="no Bayeux server answers"):
        run_checks(url)
