"""Traces of messages with OpenTelemetry: spans for publish, deliver, acknowledge, dead letter and redrive.

The context travels with the message, as W3C Trace Context in `ext.traceparent`. That of the span `publish` replaces what the
publisher has sent, so that receivers, other nodes and dead letters continue the trace. This module is imported only if
`telemetry.traces` is on, and enters through hooks, so that a server without it has no work of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from aiohttp import web
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind

from crewel.bayeux.channel import Channel, parse
from crewel.bayeux.codec import reread
from crewel.bayeux.message import Fields, Message
from crewel.bayeux.replies import Reply
from crewel.broker.broker import Broker
from crewel.broker.dead_letter import DeadLetter
from crewel.broker.handler_steps import Steps, resume, start
from crewel.broker.publishing.publish_handler import Publisher
from crewel.broker.session import Session, SessionPart
from crewel.delivery.entry import Entry
from crewel.errors import CrewelError
from crewel.extension import Extension
from crewel.storage.dead_letter_records import StoredDeadLetter
from crewel.storage.dead_letter_store import Redriven
from crewel.trace_context import carry, fail, sent
from crewel.version import VERSION

_OWN: Final = "/__sys__"


class Tracing(Extension):
    """Makes the spans of one server."""

    name = "traces"

    def __init__(self, node: str) -> None:
        """Use the application's tracer provider if it has set one, else one that sends the spans by OTLP over HTTP, as
        OpenTelemetry's variables of the environment say."""
        provider = trace.get_tracer_provider()
        self._provider: TracerProvider | None = None
        if isinstance(provider, ProxyTracerProvider):
            attributes = {"service.name": "crewel", "service.instance.id": node, "service.version": VERSION}
            # What the environment says of the service counts more.
            resource = Resource.create(attributes).merge(OTELResourceDetector().detect())
            provider = self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = trace.get_tracer("crewel", VERSION, provider)
        self._part = _Departing(self)
        self._is_publishing = False

    async def life(self, _: web.Application) -> AsyncIterator[None]:
        """Send the last spans when the server ends."""
        yield
        if self._provider is not None:
            await asyncio.to_thread(self._provider.shutdown)

    def installed(self, broker: Broker) -> None:
        """Enter through the hooks of this broker."""
        self._topics = broker.topics.table
        broker.runtime.services.session_added.append(lambda session: session.add_part(self._part))
        broker.runtime.services.dead_letter.append(self._died)
        broker.mailboxes.events.on_settled.append(self._settled)
        broker.dead_letters.redrive.on_redriven.append(self._redriven)

    # Publish

    def wrap_publisher(self, publisher: Publisher) -> Publisher:
        """Stand before what takes publishes."""
        self._publisher = publisher
        return self

    def publish(self, session: Session, message: Message) -> Reply | Steps[Reply]:
        """Handle a publish inside a span."""
        span = self._begin("publish", message.channel.name, sent(message.ext), session, kind=SpanKind.SERVER)
        if self._may_carry(message.channel, message.ext.get("publish")):
            carry(span, message.fields)
        return self._steps(span, session, message)

    def _steps(self, span: Span, session: Session, message: Message) -> Steps[Reply]:
        try:
            with self._current(span):
                outcome = self._publisher.publish(session, message)
            if not isinstance(outcome, dict):
                with self._current(span):
                    waiting, reply = start(outcome)
                while waiting is not None:
                    try:
                        result = yield waiting
                    except Exception as error:  # noqa: BLE001 - it is handed on
                        result = error
                    with self._current(span):
                        waiting, reply = resume(outcome, result)
                assert reply is not None
                outcome = reply
            told = outcome.get("ext", {}).get("publish", {})
            if "id" in told:
                span.set_attribute("messaging.message.id", told["id"])
            if outcome.get("successful") is False:
                fail(span, told.get("errorCode") or str(outcome.get("error")))
        except Exception as error:
            told = str(error) if isinstance(error, CrewelError) else type(error).__name__
            fail(span, getattr(error, "code", "") or told, str(error))
            raise
        else:
            return outcome
        finally:
            span.end()

    @contextmanager
    def _current(self, span: Span) -> Iterator[None]:
        """What services do meanwhile belongs to the span."""
        self._is_publishing = True
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        finally:
            self._is_publishing = False

    def send(self, session: Session | None, fields: Fields) -> bool:
        """A message goes out. One of the server's own, for all, gets the context in which the application publishes it."""
        ext = fields.get("ext")
        is_known = self._is_publishing or (isinstance(ext, dict) and "traceparent" in ext)
        if session is not None or is_known or fields["channel"].startswith(_OWN):
            return True
        if trace.get_current_span().get_span_context().is_valid:
            channel = parse(fields["channel"])
            if channel is not None and self._may_carry(channel, None):
                span = self._begin("publish", channel.name, None, kind=SpanKind.PRODUCER)
                carry(span, fields)
                span.end()
        return True

    def _may_carry(self, channel: Channel, asked: object) -> bool:
        """Whether the message may be changed: not if it is delivered only if it differs from the one before."""
        usual = self._topics.usual(channel)
        if not isinstance(asked, dict):
            return usual.force_update
        return asked.get("forceUpdate", usual.force_update) is True

    # Its outcome

    def departing(self, session: Session, entry: Entry) -> None:
        """The message leaves for the client. The span lasts since it was stored."""
        context = _context_of(entry.wire)
        if context is not None:
            began = entry.position * 1000 or None
            self._begin("deliver", entry.channel, context, session, entry, began, SpanKind.PRODUCER).end()

    def _settled(self, session: Session, entries: Iterable[Entry], code: str) -> None:
        for entry in entries:
            context = _context_of(entry.wire)
            if context is not None:
                span = self._begin("acknowledge", entry.channel, context, session, entry)
                if code:
                    fail(span, code)
                span.end()

    def _died(self, letter: DeadLetter) -> None:
        context = _context(letter.ext)
        if context is not None:
            span = self._begin("dead letter", letter.channel, context)
            span.set_attribute("messaging.message.id", letter.id)
            span.set_attribute("crewel.session", letter.receiver)
            span.set_attribute("crewel.dead_letter.id", letter.dead_id)
            fail(span, letter.code, letter.reason)
            span.end()

    def _redriven(self, letter: StoredDeadLetter, receiver: str, moved: Redriven) -> None:
        context = _context_of(letter.body)
        if context is not None:
            span = self._begin("redrive", letter.channel, context)
            span.set_attribute("messaging.message.id", str(moved.id))
            span.set_attribute("crewel.session", receiver)
            span.set_attribute("crewel.dead_letter.id", letter.dead_id)
            span.end()

    def _begin(
        self,
        operation: str,
        channel: str,
        context: Context | None,
        session: Session | None = None,
        entry: Entry | None = None,
        began_ns: int | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        attributes = {
            "messaging.system": "crewel",
            "messaging.operation.name": operation,
            "messaging.destination.name": channel,
        }
        if session is not None and session.name:
            attributes["crewel.session"] = session.name
        if entry is not None and entry.position:
            attributes["messaging.message.id"] = str(entry.position)
        return self._tracer.start_span(operation, context, kind, attributes, start_time=began_ns)


class _Departing(SessionPart):
    """Sees what leaves for a client; the same for all sessions."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def send(self, session: Session, entries: list[Entry]) -> list[Entry]:
        """These leave."""
        for entry in entries:
            self._tracing.departing(session, entry)
        return entries


def _context_of(wire: bytes) -> Context | None:
    """The context that a message carries, if its trace is recorded."""
    if b'"traceparent"' not in wire:
        return None
    fields = reread(wire)
    return _context(fields.get("ext")) if isinstance(fields, dict) else None


def _context(ext: object) -> Context | None:
    context = sent(ext)
    return context if trace.get_current_span(context).get_span_context().trace_flags.sampled else None
