// A client in a second language, made from the same .proto files: node client.js TARGET PROTO_FOLDER STANDARD_SET
//
// It uses each part of the contract once, compares what comes with what it works out itself, and prints one line of JSON.
// It ends with 0 only if all was as expected. STANDARD_SET is a FileDescriptorSet with health, reflection and google.rpc.
"use strict";

const assert = require("node:assert/strict");
const fs = require("node:fs");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const arrow = require("apache-arrow");

const { int64, makeStore, tableOf, timesOf } = require("./stores.js");

const DEADLINE_SECONDS = 60; // of every call: a server that hangs is told of, not waited for
const ROWS = 3000; // of each store: 720,000 pairs, far more than fits into the buffers on the way
const PRODUCER = "node";
const SERVICES = ["StreamService", "SummaryService", "QueryService", "AdminService"];
const LOADING = { keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true };
const JOIN = `SELECT a.item_id, a.price, b.price AS other FROM store1 a, store2 b WHERE a.item_id = b.item_id
  WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.item_id), SUMMARY.Estimate.Count(b.item_id)`;

const [target, protos, standardSet] = process.argv.slice(2);
const files = ["streams", "summaries", "queries", "admin"].map((name) => `promising/v1/${name}.proto`);
const contract = loader.loadSync(files, { ...LOADING, includeDirs: [protos] });
const standard = loader.loadFileDescriptorSetFromBuffer(fs.readFileSync(standardSet), LOADING);
const clients = [];

function connect(definitions, name) {
  const Client = grpc.makeGenericClientConstructor(definitions[name], name);
  const client = new Client(target, grpc.credentials.createInsecure());
  clients.push(client);
  return client;
}

const deadline = () => ({ deadline: Date.now() + DEADLINE_SECONDS * 1000 });

/** One answer to one question. */
function ask(client, method, request = {}) {
  return new Promise((resolve, reject) => {
    client[method](request, deadline(), (problem, response) => (problem ? reject(problem) : resolve(response)));
  });
}

/** The error that a call ends with. */
async function refused(promise) {
  try {
    await promise;
  } catch (problem) {
    return problem;
  }
  return assert.fail("the call was answered");
}

/** What an error knows beyond its code: the ErrorInfo of its details, and the fields that were wrong. */
function detailsOf(problem) {
  const [bytes] = problem.metadata.get("grpc-status-details-bin");
  const status = standard["google.rpc.Status"].deserialize(bytes);
  assert.equal(status.code, problem.code);
  const find = (name) => {
    const packed = status.details.find((detail) => detail.type_url === `type.googleapis.com/google.rpc.${name}`);
    return packed && standard[`google.rpc.${name}`].deserialize(packed.value);
  };
  const info = find("ErrorInfo");
  // A map, as descriptors tell it: a list of entries.
  const metadata = Object.fromEntries(info.metadata.map(({ key, value }) => [key, value]));
  return { info: { ...info, metadata }, bad: find("BadRequest") };
}

// --- tuples in -------------------------------------------------------------------------------------------------------

/** Sends batches over one call; each is sent when the one before is answered. */
async function ingest(streams, requests) {
  const call = streams.Ingest(deadline());
  const answers = call[Symbol.asyncIterator]();
  const outcomes = [];
  for (const request of requests) {
    call.write(request);
    const { value, done } = await answers.next();
    assert.ok(!done, "the call ended before all batches were answered");
    assert.equal(value.sequence, request.sequence ?? 0);
    outcomes.push(value);
  }
  call.end();
  assert.ok((await answers.next()).done, "an answer to no batch");
  return outcomes;
}

async function createAndIngest(seen) {
  const streams = connect(contract, "promising.v1.StreamService");
  const summaries = connect(contract, "promising.v1.SummaryService");
  const stores = [makeStore(1, ROWS), makeStore(2, ROWS)];
  for (const number of [1, 2]) {
    const columns = [
      { name: "ts", type: "COLUMN_TYPE_TIMESTAMP" },
      { name: "item_id", type: "COLUMN_TYPE_INT" },
      { name: "price", type: "COLUMN_TYPE_FLOAT" },
    ];
    const { done } = await ask(streams, "CreateStream", { name: `store${number}`, columns, time_column: "ts" });
    assert.ok(done.changed);
    const summary = { name: `items${number}`, stream: `store${number}`, key: "item_id", granularity: { seconds: 60 } };
    assert.ok((await ask(summaries, "CreateSummary", summary)).done.changed);
  }

  const batches = [];
  for (const number of [1, 2]) {
    const store = stores[number - 1];
    for (let part = 0; part < 3; part += 1) {
      const rows = store.slice((part * ROWS) / 3, ((part + 1) * ROWS) / 3);
      const bytes = arrow.tableToIPC(tableOf(rows), "stream");
      batches.push({ stream: `store${number}`, producer_id: PRODUCER, sequence: part + 1, arrow: bytes });
    }
  }
  const acknowledged = await ingest(streams, batches);
  for (const answer of acknowledged) {
    assert.equal(answer.outcome, "appended", answer.refusal?.message);
    assert.deepEqual([answer.appended.accepted, answer.appended.duplicate], [ROWS / 3, false]);
  }

  // The same batch again, as after a lost connection; one with a column too many; and one that is no Arrow. Then a good one
  // under the number of a refused one: the call went on.
  const extra = tableOf(stores[0].slice(0, 3)).assign(new arrow.Table({ colour: int64([1, 2, 3]) }));
  const again = { stream: "store1", producer_id: "again" };
  const good = { ...again, sequence: 1, arrow: arrow.tableToIPC(tableOf([{ item: 424242, price: 1, ts: 0 }])) };
  const mixed = await ingest(streams, [
    batches[0],
    { ...again, sequence: 1, arrow: arrow.tableToIPC(extra) },
    { ...again, sequence: 1, arrow: Buffer.from("no arrow at all") },
    good,
    good,
  ]);
  assert.deepEqual([mixed[0].appended.accepted, mixed[0].appended.duplicate], [ROWS / 3, true]);
  assert.equal(mixed[1].refusal.reason, "UNKNOWN_COLUMN");
  assert.equal(mixed[2].refusal.reason, "BAD_ARROW");
  assert.deepEqual([mixed[3].appended.accepted, mixed[3].appended.duplicate], [1, false]);
  assert.deepEqual([mixed[4].appended.accepted, mixed[4].appended.duplicate], [1, true]);

  const { stream } = await ask(streams, "DescribeStream", { name: "store1" });
  assert.equal(stream.tuples, ROWS + 1);
  assert.deepEqual(stream.summaries, ["items1"]);
  const list = await ask(streams, "ListStreams");
  assert.deepEqual(list.streams.map((s) => s.name), ["store1", "store2"]);
  seen.acknowledged = acknowledged.length;
  seen.duplicates = mixed.filter((answer) => answer.appended?.duplicate).length;
  seen.refusals = mixed.filter((answer) => answer.refusal).map((answer) => answer.refusal.reason);
  return { stores, summaries };
}

// --- answers out -----------------------------------------------------------------------------------------------------

/** Reads a query to its end: the rows it has, and the last progress. `onOpened` may hold the reading up. */
async function read(queries, request, onOpened = async () => {}) {
  const call = queries.Query(request, deadline());
  const answer = { rows: [], frames: 0, progress: undefined };
  let columns;
  let parts = [];
  for await (const response of call) {
    if (response.event === "opened") {
      assert.equal(columns, undefined, "opened twice");
      columns = arrow.tableFromIPC(response.opened.schema).schema.fields.map((field) => field.name);
      await onOpened(response.opened, call); // nothing is read meanwhile
      continue;
    }
    const { frame } = response;
    assert.ok(columns, "a frame before opened");
    if (frame.rows.length > 0) {
      const table = arrow.tableFromIPC(frame.rows);
      assert.deepEqual(table.schema.fields.map((field) => field.name), columns);
      parts.push(table);
    }
    if (frame.continued) continue;
    assert.notEqual(frame.mode, "FRAME_MODE_UNSPECIFIED");
    answer.rows = frame.mode === "FRAME_MODE_REPLACE" ? parts : answer.rows.concat(parts);
    answer.frames += 1;
    answer.progress = frame.progress;
    parts = [];
  }
  assert.deepEqual(parts, [], "the last frame was not whole");
  return answer;
}

/** Adds to what a map has of a key, 0 if nothing. */
const add = (map, key, number) => map.set(key, (map.get(key) ?? 0) + number);

/** The join, worked out here: pairs of each item, and the sum of the products of their prices. */
function joined([left, right]) {
  const [counts, prices, pairs] = [new Map(), new Map(), new Map()];
  for (const { item, price } of right) {
    add(counts, item, 1);
    add(prices, item, price);
  }
  let sum = 0;
  for (const { item, price } of left.filter((row) => counts.has(row.item))) {
    add(pairs, item, counts.get(item));
    sum += price * prices.get(item);
  }
  return { pairs, sum };
}

async function queryAndResume(seen, queries, stores) {
  const expected = joined(stores);
  const found = { pairs: new Map(), sum: 0 };
  let first;
  let answer = await read(queries, { sql: JOIN, budget: { seconds: 0, nanos: 2e6 } });
  assert.equal(answer.progress.cut, "CUT_BUDGET", "2 ms were enough for all");
  for (let resumed = 0; ; resumed += 1) {
    for (const table of answer.rows) {
      const [items, prices, others] = ["item_id", "price", "other"].map((name) => table.getChild(name).toArray());
      first ??= Number(items[0]);
      items.forEach((item, i) => {
        add(found.pairs, Number(item), 1);
        found.sum += prices[i] * others[i];
      });
    }
    const token = answer.progress.resume_token;
    if (!token) break;
    assert.ok(resumed < 1000, "no end of tokens");
    answer = await read(queries, { resume_token: token, budget: { seconds: 1 } });
  }
  const rows = [...expected.pairs.values()].reduce((a, b) => a + b, 0);
  assert.ok(answer.progress.complete);
  assert.deepEqual([answer.progress.rows, answer.progress.coverage.value], [rows, 1]);
  assert.deepEqual(found.pairs, expected.pairs);
  assert.ok(Math.abs(found.sum / expected.sum - 1) < 1e-9);
  const [[heaviest]] = [...expected.pairs].sort((a, b) => b[1] - a[1]);
  assert.equal(first, heaviest, "the most promising pairs come first");
  seen.join = { rows, first };
}

async function aggregate(seen, queries) {
  const sql = "SELECT count(*) AS n FROM store1";
  const answer = await read(queries, { sql });
  assert.equal(answer.rows.length, 1, "a replacing frame takes the place of all before");
  assert.equal(Number(answer.rows[0].getChild("n").get(0)), ROWS + 1);
  const { explanation } = await ask(queries, "Explain", { sql });
  assert.ok(explanation.lines.length > 0);
  const { table } = await ask(queries, "Execute", { sql: "SHOW STREAMS" });
  assert.equal(arrow.tableFromIPC(table).numRows, 2);

  const selections = [7, 8].map((price) => `SELECT price FROM store1 WHERE price >= ${price} AND price < ${price + 1}`);
  const counts = [0, 0];
  for await (const part of queries.QueryBatch({ sql: selections }, deadline())) {
    if (part.rows.length > 0) counts[part.statement] += arrow.tableFromIPC(part.rows).numRows;
  }
  seen.batch = counts;
}

async function probe(queries, stores) {
  const keys = { ints: [3, 424242] };
  const counts = [0, 0];
  for await (const part of queries.Probe({ summary: "items1", keys, columns: ["price"] }, deadline())) {
    const table = arrow.tableFromIPC(part.rows);
    assert.deepEqual(table.schema.fields.map((field) => field.name), ["probe", "price"]);
    for (const place of table.getChild("probe").toArray()) counts[place] += 1;
  }
  assert.deepEqual(counts, [stores[0].filter((row) => row.item === 3).length, 1]);
}

async function cancel(seen, queries, admin) {
  // CancelQuery: while nobody reads the query waits for room, so it is there to be ended. One last frame has a token.
  const kept = await read(queries, { sql: JOIN }, async (opened) => {
    assert.ok(opened.query_id);
    await ask(queries, "CancelQuery", { query_id: opened.query_id });
  });
  assert.equal(kept.progress.cut, "CUT_CANCELLED");
  assert.ok(kept.progress.resume_token);
  const rest = await read(queries, { resume_token: kept.progress.resume_token });
  assert.ok(rest.progress.complete);

  // The call itself: all is over at once, on both sides.
  const problem = await refused(read(queries, { sql: JOIN }, async (_, call) => call.cancel()));
  assert.equal(problem.code, grpc.status.CANCELLED);
  const until = Date.now() + DEADLINE_SECONDS * 1000;
  while ((await ask(admin, "ListQueries")).queries.length > 0) {
    assert.ok(Date.now() < until, "the server goes on with a query that nobody reads");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  seen.cancelled = kept.progress.cut;
}

async function estimate(seen, summaries, stores) {
  const keys = [1, 2, 50, 999999];
  const told = await ask(summaries, "Estimate", { summary: "items1", keys: { ints: keys } });
  keys.forEach((key, i) => {
    const truth = stores[0].filter((row) => row.item === key).length;
    assert.ok(told.lower[i] <= truth && truth <= told.upper[i], `item ${key}: ${truth}`);
    assert.ok(told.lower[i] <= told.value[i] && told.value[i] <= told.upper[i]);
  });
  assert.equal(told.upper[3], 0);
  const [start, end] = timesOf(stores[0]);
  const window = { start: { seconds: start }, end: { seconds: end + 1 } };
  const regions = await ask(summaries, "Regions", { summary: "items1", keys: { ints: [1] }, window });
  assert.ok(regions.key.length > 0);
  for (const column of ["zone", "bucket", "estimate", "tuples", "start"]) {
    assert.equal(regions[column].length, regions.key.length);
  }
  const { summary } = await ask(summaries, "DescribeSummary", { name: "items1" });
  assert.equal(summary.tuples, ROWS + 1);
  assert.ok(summary.zones.length > 0);
  seen.estimates = told.value.length;
}

async function errors(seen, queries) {
  const problem = await refused(read(queries, { sql: "SELECT prize\nFROM store1" }));
  assert.equal(problem.code, grpc.status.NOT_FOUND);
  const { info, bad } = detailsOf(problem);
  assert.deepEqual([info.reason, info.domain], ["NO_SUCH_NAME", "promising"]);
  assert.deepEqual([info.metadata.line, info.metadata.column], ["1", "8"]);
  assert.equal(bad.field_violations[0].field, "sql");
  const forged = await refused(read(queries, { resume_token: "made.up" }));
  assert.equal(forged.code, grpc.status.INVALID_ARGUMENT);
  seen.error = { code: problem.code, reason: info.reason };
  seen.forged = detailsOf(forged).info.reason;
}

// --- the standard services -------------------------------------------------------------------------------------------

async function healthAndReflection(seen) {
  const names = SERVICES.map((name) => `promising.v1.${name}`);
  const health = connect(standard, "grpc.health.v1.Health");
  for (const service of ["", ...names]) {
    assert.equal((await ask(health, "Check", { service })).status, "SERVING", service);
  }
  const unknown = await refused(ask(health, "Check", { service: "promising.v1.NoService" }));
  assert.equal(unknown.code, grpc.status.NOT_FOUND);

  const reflection = connect(standard, "grpc.reflection.v1.ServerReflection");
  const call = reflection.ServerReflectionInfo(deadline());
  call.write({ list_services: "" });
  call.end();
  for await (const answer of call) {
    seen.services = answer.list_services_response.service.map((service) => service.name).sort();
  }
  for (const name of [...names, "grpc.health.v1.Health"]) assert.ok(seen.services.includes(name), name);
  seen.health = "SERVING";
}

async function main() {
  const seen = { node: process.versions.node };
  const queries = connect(contract, "promising.v1.QueryService");
  const admin = connect(contract, "promising.v1.AdminService");
  seen.version = (await ask(admin, "GetVersion")).version;
  await healthAndReflection(seen);
  const { stores, summaries } = await createAndIngest(seen);
  await queryAndResume(seen, queries, stores);
  await aggregate(seen, queries);
  await probe(queries, stores);
  await cancel(seen, queries, admin);
  await estimate(seen, summaries, stores);
  await errors(seen, queries);
  const stats = await ask(admin, "GetStats");
  assert.deepEqual([stats.streams, stats.summaries, stats.queries], [2, 2, 0]);
  assert.equal(stats.accepted, 2 * ROWS + 1);
  for (const client of clients) client.close();
  console.log(JSON.stringify(seen));
}

main().catch((problem) => {
  console.error(problem);
  process.exit(1);
});
