/*
 * Spans of connections in Node.js: `node traces.mjs URL PATH`. A page publishes, asks, and keeps a publish in an outbox, and a worker hears
 * and answers. Prints the spans of both as JSON.
 */
import * as api from "@opentelemetry/api";
import {AsyncLocalStorageContextManager} from "@opentelemetry/context-async-hooks";
import {BasicTracerProvider, InMemorySpanExporter, SimpleSpanProcessor} from "@opentelemetry/sdk-trace-base";
import {adapt} from "cometd-nodejs-client";

adapt();
const {connect} = await import("../../../extensions/connect.js");

const exporter = new InMemorySpanExporter();
api.trace.setGlobalTracerProvider(new BasicTracerProvider({spanProcessors: [new SimpleSpanProcessor(exporter)]}));
api.context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
const tracer = api.trace.getTracer("page");

const [url, path] = process.argv.slice(2);
const page = connect({url, name: "page/1", traces: api, outbox: {path}});
const worker = connect({url, name: "worker/1", traces: api});
const ORDERS = 3;
let left = ORDERS;
const heard = new Promise((resolve) => {
    worker.on("rejected", () => {});
    worker.subscribe("/orders", async ({data}) => {
        await null;
        tracer.startSpan(`bake ${data}`).end();
        left -= 1;
        if (left === 0) {
            setImmediate(resolve); // when the span of this message has ended
        }
        if (data === "wrong") {
            throw Object.assign(new Error("too hot"), {errorCode: "user.oven"});
        }
    });
});
await worker.reply("/price", ({data}) => data * 8);
await tracer.startActiveSpan("order", async (span) => {
    await page.publish("/orders", "now", {persistent: true});
    await page.outbox.publish("/orders", "kept");
    await page.request("/price", 2);
    span.end();
});
await page.outbox.drained();
await page.publish("/orders", "wrong", {persistent: true});
await page.publish("/orders", "refused", {priority: 77}).catch(() => {});
await heard;
await Promise.all([page.close(), worker.close()]);
const spans = exporter.getFinishedSpans().map((span) => ({
    name: span.name,
    kind: api.SpanKind[span.kind],
    trace: span.spanContext().traceId,
    id: span.spanContext().spanId,
    parent: span.parentSpanContext?.spanId ?? null,
    attributes: span.attributes,
    failed: span.status.code === api.SpanStatusCode.ERROR,
}));
console.log(JSON.stringify(spans));
