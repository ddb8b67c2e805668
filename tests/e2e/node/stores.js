// Two stores' sales to send: the same in every run, some items far more often than others.
"use strict";

const arrow = require("apache-arrow");

const START = 1_700_000_040; // seconds
const SPAN = 600;
const ITEMS = 60;

/** Numbers in [0, 1), the same for the same seed (Lehmer's generator). */
function random(seed) {
  let state = seed * 7919 + 1;
  return () => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
}

/** Sales in order of time; `ts` is in microseconds after START. The cube of a number in [0, 1) is small most of the time. */
function makeStore(seed, rows) {
  const next = random(seed);
  const times = Array.from({ length: rows }, () => Math.floor(next() * SPAN * 1e6)).sort((a, b) => a - b);
  return times.map((ts) => ({ ts, item: 1 + Math.floor(next() ** 3 * ITEMS), price: Math.round(next() * 1000) / 100 }));
}

function int64(values) {
  return arrow.makeVector({ type: new arrow.Int64(), data: BigInt64Array.from(values, BigInt) });
}

/** Sales as an Arrow table with the columns of the stream. */
function tableOf(rows) {
  const times = BigInt64Array.from(rows, ({ ts }) => BigInt(START) * 1_000_000n + BigInt(ts));
  return new arrow.Table({
    ts: arrow.makeVector({ type: new arrow.TimestampMicrosecond(), data: times }),
    item_id: int64(rows.map(({ item }) => item)),
    price: arrow.makeVector(Float64Array.from(rows, ({ price }) => price)),
  });
}

/** The first and the last second of sales. */
function timesOf(rows) {
  return [rows[0], rows[rows.length - 1]].map(({ ts }) => START + Math.floor(ts / 1e6));
}

module.exports = { int64, makeStore, tableOf, timesOf };
