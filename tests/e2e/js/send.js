// Sends a parent and a child span by each exporter of traces, a sum and a log record, and exits 0 if all were accepted.
"use strict";

const { trace, context, SpanKind } = require("@opentelemetry/api");
const { NodeTracerProvider, SimpleSpanProcessor } = require("@opentelemetry/sdk-trace-node");
const { MeterProvider, PeriodicExportingMetricReader } = require("@opentelemetry/sdk-metrics");
const { LoggerProvider, SimpleLogRecordProcessor } = require("@opentelemetry/sdk-logs");
const { resourceFromAttributes } = require("@opentelemetry/resources");
const proto = require("@opentelemetry/exporter-trace-otlp-proto");
const json = require("@opentelemetry/exporter-trace-otlp-http");
const rpc = require("@opentelemetry/exporter-trace-otlp-grpc");
const { OTLPMetricExporter } = require("@opentelemetry/exporter-metrics-otlp-proto");
const { OTLPLogExporter } = require("@opentelemetry/exporter-logs-otlp-proto");
const { Metadata } = require("@grpc/grpc-js");

const [httpUrl, grpcUrl, token] = process.argv.slice(2);
const headers = token ? { authorization: `Bearer ${token}` } : {};
const metadata = new Metadata();
if (token) metadata.set("authorization", `Bearer ${token}`);
let failures = 0;

// The result that the processors would only log.
function watched(exporter) {
  const send = exporter.export.bind(exporter);
  exporter.export = (items, done) =>
    send(items, (result) => {
      if (result.code !== 0) {
        failures += 1;
        console.error(result.error);
      }
      done(result);
    });
  return exporter;
}

async function traces(name, exporter) {
  const provider = new NodeTracerProvider({
    resource: resourceFromAttributes({ "service.name": name }),
    spanProcessors: [new SimpleSpanProcessor(watched(exporter))],
  });
  const tracer = provider.getTracer("js", "1.0");
  const parent = tracer.startSpan("parent", { kind: SpanKind.CLIENT, attributes: { "gen_ai.request.model": "m", n: 7 } });
  tracer.startSpan("child", {}, trace.setSpan(context.active(), parent)).end();
  parent.addEvent("first", { ok: true });
  parent.end();
  await provider.shutdown();
}

async function main() {
  const gzip = "gzip";
  await traces("js-proto", new proto.OTLPTraceExporter({ url: `${httpUrl}/v1/traces`, headers, compression: gzip }));
  await traces("js-http", new json.OTLPTraceExporter({ url: `${httpUrl}/v1/traces`, headers }));
  await traces("js-grpc", new rpc.OTLPTraceExporter({ url: grpcUrl, metadata, compression: gzip }));
  const resource = resourceFromAttributes({ "service.name": "js-proto" });
  const meters = new MeterProvider({
    resource,
    readers: [
      new PeriodicExportingMetricReader({
        exporter: watched(new OTLPMetricExporter({ url: `${httpUrl}/v1/metrics`, headers })),
      }),
    ],
  });
  meters.getMeter("js").createCounter("requests").add(3, { k: "v" });
  await meters.shutdown();
  const exporter = watched(new OTLPLogExporter({ url: `${httpUrl}/v1/logs`, headers }));
  const logs = new LoggerProvider({ resource, processors: [new SimpleLogRecordProcessor({ exporter })] });
  logs.getLogger("js").emit({ body: "hello", severityNumber: 9 });
  await logs.shutdown();
  process.exit(failures ? 1 : 0);
}

main();
