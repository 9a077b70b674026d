"""Spans of what happens to a message, as the SDK of OpenTelemetry gets them from a server that runs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from crewel import Message, Service, Session
from crewel.client import Client, ErrorAnswer, Outbox, PayloadRefusedError, UnknownDestination, sync
from crewel.client import Message as ClientMessage
from crewel.testing import Server
from crewel.testing.instance import ADMIN_TOKEN, Instance
from tests.admin.desk import STORED, Desk, Receiver
from tests.client.support import LIMIT_S
from tests.functional.wire import close_connections, until
from tests.server_process import ROOT

INTEROP = ROOT / "tests" / "interop"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SENT = f"00-{TRACE}-00f067aa0ba902b7-01"
service = Service("orders")


@service.listener("/asked")
async def asked(session: Session, message: Message) -> None:
    """Answer with a message of the server's own, in a span of the application's."""
    with trace.get_tracer("orders").start_as_current_span("own work"):
        await service.broker.publish_stored("/orders", "own")


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """What has the spans of all servers of this process: a process has one provider."""
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Iterator[InMemorySpanExporter]:
    exporter.clear()
    yield exporter
    close_connections()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def id_of(span: ReadableSpan) -> str:
    return "" if span.context is None else format(span.context.span_id, "016x")


def is_below(span: ReadableSpan, parent: str) -> bool:
    return span.parent is not None and format(span.parent.span_id, "016x") == parent


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


pytestmark = pytest.mark.server


@pytest.mark.crewel(store=True, settings={"telemetry.traces": True})
def test_a_message_is_followed_from_its_publish_to_its_redrive(
    spans: InMemorySpanExporter, crewel: Server[Instance]
) -> None:
    joe, speaker = Receiver(crewel).be("joe/1"), Receiver(crewel).be("ann/1")
    joe.subscribe("/orders")
    (reply,) = speaker.publish("/orders", 17, ext={**STORED, "traceparent": SENT, "tracestate": "shop=1"})
    (publish,) = named(spans, "publish")
    assert publish.context is not None
    assert format(publish.context.trace_id, "032x") == TRACE
    assert is_below(publish, SENT.split("-")[2])
    message = reply["ext"]["publish"]["id"]
    assert attributes(publish) == {
        "messaging.system": "crewel", "messaging.operation.name": "publish", "messaging.destination.name": "/orders",
        "messaging.message.id": message, "crewel.session": "client/ann/1",
    }  # fmt: skip

    taken = until(joe.take)
    assert taken[0]["ext"]["traceparent"] == f"00-{TRACE}-{id_of(publish)}-01"
    assert taken[0]["ext"]["tracestate"] == "shop=1"
    joe.reject(taken, "user.update.illegalArgument", "no such order")
    (letter,) = until(lambda: Desk(crewel, ADMIN_TOKEN).letters())
    (dead,) = until(lambda: named(spans, "dead letter"))
    assert dead.status.status_code is StatusCode.ERROR
    assert attributes(dead)["error.type"] == "user.update.illegalArgument"
    assert attributes(dead)["crewel.dead_letter.id"] == letter["id"]

    assert Desk(crewel, ADMIN_TOKEN).post("/dead-letters/redrive", {"ids": [letter["id"]]})["redriven"] == 1
    (redrive,) = named(spans, "redrive")
    again = until(joe.take)
    joe.accept(again)
    failed, accepted = until(lambda: found if len(found := named(spans, "acknowledge")) == 2 else None)
    assert (failed.status.status_code, accepted.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    first, second = named(spans, "deliver")
    assert first.start_time is not None
    assert first.start_time < (first.end_time or 0)
    assert attributes(second)["messaging.message.id"] == again[0]["ext"]["update"]["id"] != message
    assert attributes(redrive)["messaging.message.id"] == again[0]["ext"]["update"]["id"]
    assert attributes(second)["crewel.session"] == "client/joe/1"
    for span in (dead, redrive, failed, accepted, first, second):
        assert is_below(span, id_of(publish)), span.name
        assert attributes(span)["messaging.destination.name"] == "/orders"


@pytest.mark.crewel(store=True, settings={"telemetry.traces": True}, services=[service])
def test_what_a_publisher_says_of_its_trace_is_checked(spans: InMemorySpanExporter, crewel: Server[Instance]) -> None:
    joe, speaker = Receiver(crewel).be("joe/1"), Receiver(crewel).be("ann/1")
    joe.subscribe("/orders", "/plain")
    for wrong in ("", "00-" + "0" * 32 + "-00f067aa0ba902b7-01", SENT[:-5], 5, None, {"a": 1}):
        speaker.publish("/plain", "x", ext={"traceparent": wrong})
    published = named(spans, "publish")
    assert len(published) == 6
    assert all(span.parent is None for span in published), "a wrong context begins a trace of its own"
    assert [each["ext"]["traceparent"].split("-")[2] for each in until(joe.take)] == [id_of(span) for span in published]

    unsampled = SENT[:-2] + "00"
    speaker.publish("/plain", "y", ext={"traceparent": unsampled})
    assert until(joe.take)[0]["ext"]["traceparent"] == unsampled, "a trace that is not recorded passes as it is"
    same = {"publish": {"persistent": True, "forceUpdate": False, "history": {"maxEntries": 2}}}
    for _ in range(2):
        speaker.publish("/orders", "same", ext=same)
    assert [each["data"] for each in joe.take_all()] == ["same"], "a message that says the same is still the same"
    assert len(named(spans, "publish")) == 8

    assert speaker.send(speaker.message("/orders/*", data=1))[-1]["successful"] is False
    (failed,) = [span for span in named(spans, "publish") if span.status.status_code is StatusCode.ERROR]
    assert attributes(failed)["error.type"].startswith("405")

    speaker.publish("/asked", 1)
    own = until(joe.take)[0]
    (work,) = named(spans, "own work")
    (span,) = [each for each in named(spans, "publish") if is_below(each, id_of(work))]
    assert own["ext"]["traceparent"].split("-")[2] == id_of(span)


def test_a_server_without_traces_does_not_import_opentelemetry() -> None:
    """The client of Redis imports the parts for metrics by itself."""
    program = (
        "import asyncio, sys\n"
        "from crewel.server import build\n"
        "from crewel.settings import Settings\n"
        "async def main():\n"
        "    build(Settings())\n"
        "    unused = 'crewel.telemetry', 'opentelemetry.sdk.trace', 'opentelemetry.exporter'\n"
        "    print([name for name in sys.modules if name.startswith(unused)])\n"
        "asyncio.run(main())\n"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert told.stdout == "[]\n", told


# Clients in Python


def below(spans: InMemorySpanExporter, parent: ReadableSpan, name: str) -> ReadableSpan:
    """Wait for the span of this name whose parent is this one."""
    return until(lambda: next((span for span in named(spans, name) if is_below(span, id_of(parent))), None))


TRACED = pytest.mark.crewel(store=True, settings={"telemetry.traces": True})


@TRACED
async def test_one_trace_goes_from_a_browser_over_a_worker_to_what_that_publishes(
    spans: InMemorySpanExporter, crewel: Server[Instance], tmp_path: Path
) -> None:
    async with (
        asyncio.timeout(LIMIT_S),
        Client(crewel.url, traces=True) as client,
        client.consume("/orders", name="oven/1", resume_file=tmp_path / "secret") as worker,
    ):
        Receiver(crewel).be("ann/1").publish("/orders", 17, ext={**STORED, "traceparent": SENT})
        async with await anext(worker) as order:
            await client.publish("/baked", order.data, persistent=True)
        (first,) = [span for span in named(spans, "publish") if is_below(span, SENT.split("-")[2])]
        process = below(spans, first, "process")
        own = below(spans, process, "publish")
        at_server = below(spans, own, "publish")
    assert {trace_of(each) for each in (process, own, at_server)} == {TRACE}
    assert (process.kind, own.kind, at_server.kind) == (SpanKind.CONSUMER, SpanKind.PRODUCER, SpanKind.SERVER)
    assert attributes(process) == {
        "messaging.system": "crewel", "messaging.operation.name": "process", "messaging.destination.name": "/orders",
        "messaging.message.id": order.id,
    }  # fmt: skip


@TRACED
async def test_requests_batches_callbacks_and_failures_have_spans(
    spans: InMemorySpanExporter, crewel: Server[Instance]
) -> None:
    def refuse(message: ClientMessage) -> None:
        raise ErrorAnswer("user.zero", "there is nothing to square")

    outbox, came = Outbox(), asyncio.Event()
    async with (
        asyncio.timeout(LIMIT_S),
        Client(crewel.url, traces=True, outbox=outbox) as client,
    ):
        await client.reply("/square", lambda message: message.data**2)
        await client.reply("/refuse", refuse)
        await client.subscribe("/orders", lambda message: came.set())
        with trace.get_tracer("shop").start_as_current_span("shopping") as shopping:
            assert (await client.request("/square", 3, timeout=LIMIT_S)).data == 9
            with pytest.raises(ErrorAnswer):
                await client.request("/refuse", 0, timeout=LIMIT_S)
            async with client.batch() as batch:
                batch.publish("/orders", 1)
            await client.enqueue("/queued", 2)
            await outbox.drained()
            await client.publish("/told", 3, ext={"traceparent": SENT})
        await came.wait()
        assert isinstance(shopping, ReadableSpan)
        asked = below(spans, shopping, "request")
        answered = below(spans, below(spans, asked, "publish"), "process")
        assert (asked.kind, below(spans, answered, "publish").kind) == (SpanKind.CLIENT, SpanKind.PRODUCER)
        failed = until(lambda: [each for each in named(spans, "request") if not each.status.is_unset])
        assert [attributes(each)["error.type"] for each in failed] == ["user.zero"]
        refused = below(spans, below(spans, failed[0], "publish"), "process")
        assert (refused.status.status_code, attributes(refused)["error.type"]) == (StatusCode.ERROR, "user.zero")
        assert answered.status.is_unset
        batched = until(lambda: server_span(spans, "/orders"))
        assert below(spans, batched, "process").kind is SpanKind.CONSUMER
        traces = {channel: trace_of(until(lambda: server_span(spans, channel))) for channel in ("/queued", "/told")}  # noqa: B023
        assert traces == {"/queued": trace_of(shopping), "/told": TRACE}
        assert trace_of(batched) == trace_of(shopping)


async def publish_together(client: Client, receivers: dict[str, str | None]) -> None:
    """Publish one message to each channel, for this receiver."""
    async with client.batch() as batch:
        for channel, receiver in receivers.items():
            batch.publish(channel, 1, to=receiver)


@TRACED
async def test_what_the_server_refuses_has_spans_that_failed(
    spans: InMemorySpanExporter, crewel: Server[Instance]
) -> None:
    outbox, reason = Outbox(), "user.ptp.unknownDestination"
    async with asyncio.timeout(LIMIT_S), Client(crewel.url, traces=True, outbox=outbox) as client:
        with trace.get_tracer("shop").start_as_current_span("shopping") as shopping:
            with pytest.raises(UnknownDestination):
                await client.publish("/published", 1, to="client/absent")
            with pytest.raises(UnknownDestination):
                await client.request("/requested", 1, timeout=LIMIT_S, to="client/absent")
            with pytest.raises(UnknownDestination):
                await publish_together(
                    client, {"/batched/0": None, "/batched/1": "client/absent", "/batched/2": "client/ab"}
                )
            await client.enqueue("/queued", 1, to="client/absent")
            await outbox.drained()
            with pytest.raises(PayloadRefusedError):
                await publish_together(client, {"/large": "x" * 100_000})
    failed = {
        attributes(each)["messaging.destination.name"]: each
        for each in spans.get_finished_spans()
        if each.kind is not SpanKind.SERVER and each.status.status_code is StatusCode.ERROR
    }
    refused = ("/published", "/requested", "/batched/1", "/batched/2", "/queued")
    told = {name: attributes(each)["error.type"] for name, each in failed.items()}
    assert told == dict.fromkeys(refused, reason) | {"/large": "MessageTooLargeError"}
    assert isinstance(shopping, ReadableSpan)
    assert {trace_of(each) for each in failed.values()} == {trace_of(shopping)}


def trace_of(span: ReadableSpan) -> str:
    return "" if span.context is None else format(span.context.trace_id, "032x")


def server_span(spans: InMemorySpanExporter, channel: str) -> ReadableSpan | None:
    """The server's span of the publish to this channel, if it has ended."""
    found = [each for each in named(spans, "publish") if each.kind is SpanKind.SERVER]
    return next((each for each in found if attributes(each)["messaging.destination.name"] == channel), None)


@TRACED
def test_threads_continue_the_trace_of_their_message(
    spans: InMemorySpanExporter, crewel: Server[Instance], tmp_path: Path
) -> None:
    done: list[object] = []

    def bake(order: sync.Delivery) -> None:
        client.publish("/baked", order.data)
        done.append(order.data)
        worker.stop()

    with sync.Client(crewel.url, traces=True) as client:
        worker = client.consume("/orders", name="oven/1", resume_file=tmp_path / "secret")
        with worker:
            client.publish("/orders", 1, persistent=True)
            with next(worker) as order:
                client.publish("/looped", order.data)
            client.publish("/orders", 2, persistent=True)
            worker.run(bake)
        with pytest.raises(ValueError, match="wildcard"):
            client.publish("/orders/*", 3)
    assert done == [2]
    for channel in ("/looped", "/baked"):
        at_server = until(lambda: server_span(spans, channel))  # noqa: B023 - it is called at once
        (own,) = [span for span in named(spans, "publish") if is_below(at_server, id_of(span))]
        (process,) = [span for span in named(spans, "process") if is_below(own, id_of(span))]
        assert process.parent is not None


def test_a_client_without_traces_does_not_import_opentelemetry() -> None:
    script = (
        "import sys; from crewel.client.sync import Client; Client('http://a'); print('opentelemetry' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("False\n", "")


def test_a_client_without_opentelemetry_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['opentelemetry'] = None; from crewel.client import Client, ClientError\n"
        "try: Client('http://localhost', traces=True)\nexcept ClientError as error: print(error)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ended.stdout.startswith(
        "traces needs OpenTelemetry (there is no opentelemetry): pip install '.[otel]' in"
    ), ended.stderr


@pytest.mark.crewel(store=True, settings={"telemetry.traces": True})
def test_one_trace_leads_from_a_page_over_the_server_to_a_worker_in_javascript(
    spans: InMemorySpanExporter, crewel: Server[Instance], tmp_path: Path
) -> None:
    command = ["node", "drivers/traces.mjs", crewel.url, str(tmp_path / "orders.outbox")]
    ended = subprocess.run(command, cwd=INTEROP, capture_output=True, text=True, timeout=LIMIT_S)
    assert ended.returncode == 0, ended.stderr
    made: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    (order,) = (span for span in made if span["name"] == "order")
    of_order = [span for span in made if span["trace"] == order["trace"]]
    names = sorted((span["name"], span["attributes"].get("messaging.destination.name", "")) for span in of_order)
    assert names == [
        ("bake kept", ""), ("bake now", ""), ("order", ""),
        ("process", "/orders"), ("process", "/orders"), ("process", "/price"),
        ("publish", "/orders"), ("publish", "/orders"), ("request", "/price"),
    ]  # fmt: skip
    by_id = {span["id"]: span for span in made}
    kinds = {"publish": "PRODUCER", "request": "CLIENT", "process": "CONSUMER"}
    assert all(span["kind"] == kinds.get(span["name"], "INTERNAL") for span in made)
    # The server's span of a publish lies between that of the page and that of the worker.
    of_server = {id_of(span): span for span in named(spans, "publish")}
    for process in (span for span in of_order if span["name"] == "process"):
        published = of_server[process["parent"]]
        assert published.parent is not None
        assert by_id[format(published.parent.span_id, "016x")]["name"] in {"publish", "request"}
        assert process["attributes"]["messaging.message.id"] == attributes(published)["messaging.message.id"]
    for bake in (span for span in made if span["name"].startswith("bake")):
        assert by_id[bake["parent"]]["name"] == "process"
    failed = {(span["name"], span["attributes"]["error.type"]) for span in made if span["failed"]}
    assert failed == {("process", "user.oven"), ("publish", "user.illegalArgument")}
