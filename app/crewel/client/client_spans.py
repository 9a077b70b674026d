"""The spans of a client, with OpenTelemetry: `publish`, `request` and `process`.

They belong to the trace that is current where the application calls the client, or to that of the message that it processes.
The application sets the tracer provider; without one, no span is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind

from crewel.bayeux.message import Fields
from crewel.client.client_message import Message
from crewel.client.traces import Operation, Traces
from crewel.trace_context import carry, fail, sent

_KINDS = {"publish": SpanKind.PRODUCER, "request": SpanKind.CLIENT}


class Telemetry(Traces):
    """Makes the spans of one client."""

    def __init__(self) -> None:
        self._tracer = trace.get_tracer("crewel.client")

    @contextmanager
    def sending(self, operation: Operation, message: Fields) -> Iterator[Any]:
        """A span until the block has ended: with the reply, or with the answer."""
        # The application may know of a trace that is not the current one.
        span = self._begin(operation, message["channel"], sent(message.get("ext")) or None, _KINDS[operation])
        carry(span, message)
        with self._current(span):
            yield

    def failed(self, message: Fields, code: str, text: str) -> None:
        """A span that has failed, below that of the message: the trace ends with the refusal."""
        span = self._begin("publish", message["channel"], sent(message.get("ext")), SpanKind.PRODUCER)
        fail(span, code, text)
        span.end()

    @contextmanager
    def processing(self, message: Message) -> Iterator[Any]:
        """A span that continues the trace of the message."""
        span = self._begin("process", message.channel, sent(message.ext), SpanKind.CONSUMER)
        if message.id is not None:
            span.set_attribute("messaging.message.id", message.id)
        with self._current(span):
            yield

    def fail_processing(self, error: Exception) -> None:
        """The current span has failed."""
        _fail(trace.get_current_span(), error)

    def _begin(self, operation: str, channel: str, context: Context | None, kind: SpanKind) -> Span:
        attributes = {
            "messaging.system": "crewel",
            "messaging.operation.name": operation,
            "messaging.destination.name": channel,
        }
        return self._tracer.start_span(operation, context, kind, attributes)

    @contextmanager
    def _current(self, span: Span) -> Iterator[None]:
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                yield
        except Exception as error:
            _fail(span, error)
            raise
        finally:
            span.end()


def _fail(span: Span, error: Exception) -> None:
    fail(span, getattr(error, "error_code", "") or type(error).__name__, str(error))
