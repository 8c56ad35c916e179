// What @clickhouse/client makes of the SQL endpoint: prints one JSON object with an answer for each thing tried.
import { createClient } from "@clickhouse/client";

const client = createClient({ url: process.argv[2], database: "promptpath", compression: { response: true, request: true } });
const rows = async (query, format, more = {}) => (await client.query({ query, format, ...more })).json();
const failure = async (work) => {
  try {
    await work();
    return null;
  } catch (error) {
    return { code: error.code ?? null, type: error.type ?? null, message: error.message.slice(0, 200) };
  }
};
const found = {};

found.ping = (await client.ping()).success;
found.each = await rows("SELECT SpanName, count() AS n FROM otel_traces GROUP BY SpanName", "JSONEachRow");
found.json = (await rows("SELECT {text:String} AS t, {n:Array(UInt8)} AS n", "JSON", { query_params: { text: "a'\\\t日本", n: [1, 2] } })).data;
found.settings = await rows("SELECT getSetting('max_threads') AS n", "JSONEachRow", { clickhouse_settings: { max_threads: 3 } });
found.queryId = (await client.query({ query: "SELECT 1", query_id: "from-node-1" })).query_id;

const stream = (await client.query({ query: "SELECT number, repeat('x', 200) AS s FROM numbers(200000)", format: "JSONEachRow" })).stream();
let streamed = 0;
for await (const batch of stream) streamed += batch.length;
found.streamed = streamed;

found.refused = await failure(() => client.command({ query: "DROP TABLE otel_traces" }));
found.inserted = await failure(() => client.insert({ table: "otel_traces", values: [{ TraceId: "x" }], format: "JSONEachRow" }));
found.multiple = await failure(() => rows("SELECT 1; SELECT 2", "JSONEachRow"));
found.late = await failure(async () => {
  const late = (await client.query({ query: "SELECT number, throwIf(number = 3000000, 'too far') FROM numbers(4000000)", format: "JSONEachRow" })).stream();
  for await (const batch of late) if (batch.length < 0) break;
});

const abort = new AbortController();
setTimeout(() => abort.abort(), 300);
found.aborted = await failure(() => rows("SELECT sum(sipHash64(number)) FROM numbers(2000000000)", "JSONEachRow", { abort_signal: abort.signal }));
found.after = await rows("SELECT 1 AS one", "JSONEachRow");
await client.close();
console.log(JSON.stringify(found));
