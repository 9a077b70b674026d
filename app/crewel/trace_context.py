"""The context of a trace in a message: W3C Trace Context in its `ext`.

Only what makes spans imports this, in a server or a client, because it needs OpenTelemetry.
"""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_CARRIED: Final = ("traceparent", "tracestate")
"""The fields of `ext` that W3C Trace Context has."""
_W3C: Final = TraceContextTextMapPropagator()


def sent(ext: object) -> Context:
    """The context that `ext` says; an empty one if it says none, or a wrong one."""
    given = ext if isinstance(ext, dict) else {}
    return _W3C.extract({name: given[name] for name in _CARRIED if isinstance(given.get(name), str)}, Context())


def carry(span: Span, fields: dict[str, Any]) -> None:
    """Put the span's context into the message, if the span is recorded."""
    if not span.is_recording():
        return
    ext = fields.get("ext")
    carried: dict[str, str] = {}
    _W3C.inject(carried, set_span_in_context(span, Context()))
    kept = {name: value for name, value in ext.items() if name not in _CARRIED} if isinstance(ext, dict) else {}
    fields["ext"] = {**kept, **carried}


def fail(span: Span, code: str, text: str = "") -> None:
    """Let the span say what has failed: a dotted code, or the name of an exception, and words for people."""
    span.set_attribute("error.type", code)
    span.set_status(StatusCode.ERROR, text or code)
