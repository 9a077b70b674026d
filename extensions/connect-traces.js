/**
 * Spans of OpenTelemetry: `publish` and `request` around what a connection sends, `process` around what the page does with a message.
 * The context of a trace travels as W3C Trace Context in `ext`. The page hands over the API, so this module loads nothing.
 */

const PARENT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;
const NAME = "@crewel/client";
const SYSTEM = "crewel";

/** What a connection without traces does: no spans. */
export const NO_TRACES = {
    sending: (operation, channel, ext, send) => send(ext),
    processing: (message, process) => process(),
};

export class Traces {
    #api;

    /** @param api what `@opentelemetry/api` exports */
    constructor(api) {
        this.#api = api;
    }

    /** Returns the promise of `send(ext)`, in a span that ends with it. `ext` then has the context of the span. */
    sending(operation, channel, ext, send) {
        const {SpanKind, context} = this.#api;
        const kind = operation === "request" ? SpanKind.CLIENT : SpanKind.PRODUCER;
        // The page may know of a trace that is not the current one.
        const parent = ext.traceparent === undefined ? context.active() : this.#contextOf(ext);
        const span = this.#begin(operation, channel, kind, parent);
        return this.#run(span, parent, () => send(span.isRecording() ? {...ext, ...carried(span.spanContext())} : ext));
    }

    /** Returns what `process()` returns, in a span that continues the trace of the message. If that is a promise, the span ends with it. */
    processing(message, process) {
        const parent = this.#contextOf(message.ext ?? {});
        const span = this.#begin("process", message.channel, this.#api.SpanKind.CONSUMER, parent);
        const id = message.ext?.update?.id;
        if (id !== undefined) {
            span.setAttribute("messaging.message.id", id);
        }
        return this.#run(span, parent, process);
    }

    #begin(operation, channel, kind, parent) {
        const attributes = {
            "messaging.system": SYSTEM,
            "messaging.operation.name": operation,
            "messaging.destination.name": channel,
        };
        return this.#api.trace.getTracer(NAME).startSpan(operation, {kind, attributes}, parent);
    }

    #run(span, parent, work) {
        const {context, trace} = this.#api;
        const failed = (error) => {
            span.setAttribute("error.type", error?.errorCode || error?.name || "Error");
            span.setStatus({code: this.#api.SpanStatusCode.ERROR, message: String(error?.message ?? error)});
            span.end();
        };
        let returned;
        try {
            returned = context.with(trace.setSpan(parent, span), work);
        } catch (error) {
            failed(error);
            throw error;
        }
        if (typeof returned?.then === "function") {
            returned.then(() => span.end(), failed);
        } else {
            span.end();
        }
        return returned;
    }

    /** The context that `ext` says; an empty one if it says none, or a wrong one. */
    #contextOf({traceparent, tracestate}) {
        const {ROOT_CONTEXT, createTraceState, trace} = this.#api;
        const found = typeof traceparent === "string" && PARENT.exec(traceparent);
        if (!found) {
            return ROOT_CONTEXT;
        }
        const [, traceId, spanId, flags] = found;
        const traceState = typeof tracestate === "string" ? createTraceState(tracestate) : undefined;
        return trace.setSpanContext(ROOT_CONTEXT, {traceId, spanId, traceFlags: parseInt(flags, 16), isRemote: true, traceState});
    }
}

function carried({traceId, spanId, traceFlags, traceState}) {
    const traceparent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
    const tracestate = traceState?.serialize();
    return tracestate ? {traceparent, tracestate} : {traceparent, tracestate: undefined};
}
