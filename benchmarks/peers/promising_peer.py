"""Ours, as a user has it: `promising.open()` in process, statements, frames and subscriptions."""

from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import promising
from benchmarks.peers.checks import checksum
from benchmarks.peers.protocol import Answer, Job, Peer, Tally, run
from promising.query import Session

SETTINGS: dict[str, Any] = {
    "threads": 1,
    "history": "a stream and a summary on item for each side, GRANULARITY 10 MINUTES AND COLLAPSE (4, 5)",
    "join": "CREATE CONTINUOUS QUERY with the times in WHERE and a WINDOW two batches longer; rows by a subscription",
    "selections": "a CREATE CONTINUOUS QUERY each, without WINDOW; after each batch one poll of all subscriptions",
    "top, rare, sampled": "WITH PREFERENCE DESC, ASC or WEIGHTED over the counts of both sides, and LIMIT",
    "sum, sum-join": "WITH ERROR 0.01 CONFIDENCE 0.95",
}
LOADED = 1 << 16  # tuples a batch of the history
STREAM = "CREATE STREAM {} (id BIGINT, ts TIMESTAMP, item BIGINT, price DOUBLE, amount DOUBLE) TIMESTAMP BY ts"
PAIRS = "SELECT a.id AS a, b.id AS b FROM a, b WHERE a.item = b.item"
COUNTS = "SUMMARY.Estimate.Count(a.item), SUMMARY.Estimate.Count(b.item)"
DIRECTIONS = {"top": "DESC", "rare": "ASC", "sampled": "WEIGHTED"}


@dataclass(frozen=True)
class Loaded:
    """The history in a session, or what is to be streamed."""

    session: Session
    tables: dict[str, pa.Table]


def load(job: Job) -> Loaded:
    tables = {name: pq.read_table(job.file(name)) for name in ("a", "b")}
    session = promising.open(seed=7)
    if job.group == "history":
        for name, table in tables.items():
            _stream(session, name, len(table))
            session.execute(
                f"CREATE SUMMARY {name}_item ON {name} (item) WITH GRANULARITY 10 MINUTES AND COLLAPSE (4, 5)"
            )
            for first in range(0, len(table), LOADED):
                session.ingest(name, table.slice(first, LOADED).combine_chunks())
    return Loaded(session, tables)


def _stream(session: Session, name: str, tuples: int) -> None:
    session.execute(f"{STREAM.format(name)} OPTIONS (max_tuples = {max(tuples, 1 << 18)})")


def pairs(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """Frames as they come; an answer is read to its LIMIT."""
    limit = job.sizes["sample" if task == "sampled" else "top"]
    sql = f"{PAIRS} WITH PREFERENCE {DIRECTIONS[task]} {COUNTS} LIMIT {limit}"
    tally.start()
    parts = []
    for frame in loaded.session.query(sql, seed=job.seed).stream():
        if frame.rows.num_rows:
            parts.append(frame.rows)
            tally.rows(frame.progress.rows)
    tally.stop()
    rows = pa.concat_tables(parts)
    return {"rows": len(rows), "a": rows["a"].to_pylist(), "b": rows["b"].to_pylist()}


def total(sql: str, loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    tally.start()
    value = loaded.session.query(f"{sql} WITH ERROR 0.01 CONFIDENCE 0.95", seed=job.seed).to_arrow()["s"][0].as_py()
    tally.rows(1)
    tally.stop()
    return {"rows": 1, "value": value}


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """Both streams in turn, batch by batch. The window is longer than asked: time goes on by a whole batch at once."""
    window = job.sizes["window_us"]
    session = promising.open(seed=7)
    for name in ("a", "b"):
        _stream(session, name, job.tuples)
    span = f"INTERVAL '{window}' MICROSECOND"
    held = window + 2 * job.batch * 100
    session.execute(
        f"CREATE CONTINUOUS QUERY pairs AS {PAIRS} AND a.ts - b.ts <= {span} AND b.ts - a.ts <= {span}"
        f" WINDOW {held} MICROSECONDS"
    )
    found: list[pa.Table] = []
    rows = 0
    with session.subscribe("pairs") as watched:
        watched.poll()
        batches = _batches(loaded.tables, job)
        tally.start()
        for batch in batches:
            for name, columns in batch.items():
                session.ingest(name, columns)
            delta = watched.poll()
            if delta is not None and delta.inserts.num_rows:
                found.append(delta.inserts)
                rows += delta.inserts.num_rows
                tally.rows(rows)
        tally.stop()
    return {"rows": rows, "checksum": sum(checksum(part["a"], part["b"]) for part in found)}


def selections(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    session = promising.open(seed=7)
    _stream(session, "a", job.tuples)
    asked = job.selections(task)
    for number, (low, high, first, last) in enumerate(asked):
        items = f" AND item BETWEEN {first} AND {last}" if first else ""
        session.execute(
            f"CREATE CONTINUOUS QUERY s{number} AS SELECT id FROM a WHERE price BETWEEN {low!r} AND {high!r}{items}"
        )
    watched = {session.subscribe(f"s{number}"): number for number in range(len(asked))}
    found: list[tuple[int, pa.Table]] = []
    rows = 0
    batches = _batches({"a": loaded.tables["a"]}, job)
    tally.start()
    for batch in batches:
        session.ingest("a", batch["a"])
        for subscription, delta in session.poll(watched).items():
            if delta.inserts.num_rows:
                found.append((watched[subscription], delta.inserts))
                rows += delta.inserts.num_rows
        tally.rows(rows)
    tally.stop()
    return {"rows": rows, "checksum": sum(checksum(number, part["id"]) for number, part in found)}


def _batches(tables: dict[str, pa.Table], job: Job) -> list[dict[str, pa.Table]]:
    return [
        {
            name: table.slice(first, min(job.batch, job.tuples - first)).combine_chunks()
            for name, table in tables.items()
        }
        for first in range(0, job.tuples, job.batch)
    ]


def make(threads: int) -> Peer:
    return Peer(
        "promising",
        version("promising-tuples"),
        SETTINGS,
        load,
        {
            "join": {"": join},
            "selections": {"": selections},
            "top": {"": pairs},
            "rare": {"": pairs},
            "sampled": {"": pairs},
            "sum": {"": partial(total, "SELECT sum(amount) AS s FROM a")},
            "sum-join": {"": partial(total, "SELECT sum(a.amount) AS s FROM a JOIN b ON a.item = b.item")},
        },
    )


if __name__ == "__main__":
    run(make)
