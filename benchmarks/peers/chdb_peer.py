"""chDB, ClickHouse in process: MergeTree tables for the history; for what is streamed, a statement for each batch."""

import importlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from benchmarks.peers.checks import checksum
from benchmarks.peers.protocol import Answer, Job, Peer, Tally, run

SETTINGS: dict[str, Any] = {
    "history": "MergeTree, ORDER BY and SAMPLE BY intHash32(id), made from the files; rows as an Arrow table",
    "join": "what is new against the window of the other side, as Arrow slices through Python(); hash join",
    "selections": "the selections as a table, one join of ranges with each batch",
    "top, rare": "counts by item of both sides; as many items as the rows need; of these the tuples, joined, in order",
    "sampled": "the join, through the aggregate groupArraySample",
    "sum, sum-join": "exact: all rows; sample (one stream): SAMPLE of 100,000 tuples",
}
TABLE = (
    "CREATE TABLE {0} ENGINE = MergeTree ORDER BY intHash32(id) SAMPLE BY intHash32(id)"
    " AS SELECT assumeNotNull(id) AS id, assumeNotNull(item) AS item,"
    " assumeNotNull(price) AS price, assumeNotNull(amount) AS amount FROM file('{1}', Parquet)"
)
BEST = """
WITH ca AS (SELECT item, count() AS n FROM a GROUP BY item), cb AS (SELECT item, count() AS n FROM b GROUP BY item),
best AS (SELECT ca.item AS item, ca.n * cb.n AS pairs FROM ca JOIN cb ON ca.item = cb.item
  ORDER BY pairs {order}, item LIMIT {rows}),
needed AS (SELECT item, pairs FROM (SELECT item, pairs, sum(pairs) OVER (ORDER BY pairs {order}, item
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - pairs AS before FROM best) WHERE before < {rows})
SELECT x.id AS a, y.id AS b FROM (SELECT item, id FROM a WHERE item IN (SELECT item FROM needed)) x
JOIN (SELECT item, id FROM b WHERE item IN (SELECT item FROM needed)) y ON x.item = y.item
JOIN needed ON needed.item = x.item ORDER BY needed.pairs {order}, x.item LIMIT {rows}
"""
SAMPLED = (
    "SELECT tupleElement(p, 1) AS a, tupleElement(p, 2) AS b FROM (SELECT arrayJoin(groupArraySample({rows}, {seed})"
    "((a.id, b.id))) AS p FROM a JOIN b ON a.item = b.item)"
)
JOIN = "SELECT x.id AS a, y.id AS b FROM Python({}) x JOIN Python({}) y ON x.item = y.item WHERE abs(x.us - y.us) <= {}"
RANGES = (
    "SELECT query, id FROM Python(batch) AS batch CROSS JOIN ranges"
    " WHERE price >= low AND price <= high AND item >= first AND item <= last"
)
SUM = "SELECT avg(amount) * (SELECT count() FROM a) AS s FROM a{}"
SUM_JOIN = (
    "SELECT sum(a.amount * o.n) AS s FROM a JOIN (SELECT item, count() AS n FROM b GROUP BY item) o ON a.item = o.item"
)


@dataclass(frozen=True)
class Loaded:
    session: Any
    tables: dict[str, Any]


def load(session: Any, threads: int, job: Job) -> Loaded:
    session.query(f"SET max_threads = {threads}")
    if job.group == "history":
        for name in ("a", "b"):
            session.query(TABLE.format(name, job.file(name)))
            session.query(f"OPTIMIZE TABLE {name} FINAL")
        return Loaded(session, {})
    tables = {}
    for name in ("a", "b"):
        table = pq.read_table(job.file(name)).combine_chunks()
        tables[name] = table.append_column("us", table["ts"].cast("int64")).select(["id", "us", "item", "price"])
    return Loaded(session, tables)


def pairs(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    if task == "sampled":
        sql = SAMPLED.format(rows=job.sizes["sample"], seed=job.seed)
    else:
        sql = BEST.format(rows=job.sizes["top"], order="DESC" if task == "top" else "ASC")
    tally.start()
    table = loaded.session.query(sql, "ArrowTable")
    tally.rows(len(table))
    tally.stop()
    return {"rows": len(table), "a": table["a"].to_pylist(), "b": table["b"].to_pylist()}


def total(sql: str, drawn: int, loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """drawn: as many tuples as a sample has; 0 for all."""
    share = min(1.0, drawn / job.tuples)
    statement = sql.format(f" SAMPLE {share} OFFSET {(1 - share) * (job.seed % 7) / 7}" if 0 < share < 1 else "")
    tally.start()
    table = loaded.session.query(statement, "ArrowTable")
    tally.rows(1)
    tally.stop()
    return {"rows": 1, "value": table["s"][0].as_py()}


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """A pair is found when the later of both comes: new of a with all of b that is held, old of a with new of b."""
    window = job.sizes["window_us"]
    reach = -(-window // 100)
    a, b = loaded.tables["a"], loaded.tables["b"]
    found: list[Any] = []
    rows = 0
    tally.start()
    for start in range(0, job.tuples, job.batch):
        size, low = min(job.batch, job.tuples - start), max(start - reach, 0)
        a_new, b_held = a.slice(start, size), b.slice(low, start - low + size)
        parts = [_ask(loaded.session, JOIN.format("a_new", "b_held", window), a_new=a_new, b_held=b_held)]
        if start > low:
            a_old, b_new = a.slice(low, start - low), b.slice(start, size)
            parts.append(_ask(loaded.session, JOIN.format("a_old", "b_new", window), a_old=a_old, b_new=b_new))
        found += parts
        rows += sum(map(len, parts))
        tally.rows(rows)
    tally.stop()
    return {"rows": rows, "checksum": sum(checksum(part["a"], part["b"]) for part in found)}


def selections(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    session = loaded.session
    values = ", ".join(
        f"({number}, {low!r}, {high!r}, {first}, {last})"
        for number, (low, high, first, last) in enumerate(job.selections(task))
    )
    session.query("DROP TABLE IF EXISTS ranges")
    session.query(
        "CREATE TABLE ranges (query Int64, low Float64, high Float64, first Int64, last Int64) ENGINE = Memory"
    )
    session.query(f"INSERT INTO ranges VALUES {values}")
    found: list[Any] = []
    rows = 0
    tally.start()
    for start in range(0, job.tuples, job.batch):
        batch = loaded.tables["a"].slice(start, min(job.batch, job.tuples - start))
        part = _ask(session, RANGES, batch=batch)
        found.append(part)
        rows += len(part)
        tally.rows(rows)
    tally.stop()
    return {"rows": rows, "checksum": sum(checksum(part["query"], part["id"]) for part in found)}


def _ask(session: Any, sql: str, **tables: Any) -> Any:
    """`Python(name)` in a statement is looked up among the names of the program: they are given to it here."""
    globals().update(tables)
    return session.query(sql, "ArrowTable")


def make(threads: int) -> Peer:
    chdb: Any = importlib.import_module("chdb")
    session = importlib.import_module("chdb.session").Session()
    return Peer(
        "chdb",
        chdb.__version__,
        {"max_threads": threads, "ClickHouse": str(chdb.engine_version), **SETTINGS},
        partial(load, session, threads),
        {
            "join": {"": join},
            "selections": {"": selections},
            "top": {"": pairs},
            "rare": {"": pairs},
            "sampled": {"": pairs},
            "sum": {"exact": partial(total, SUM, 0), "sample": partial(total, SUM, 100_000)},
            "sum-join": {"exact": partial(total, SUM_JOIN, 0)},
        },
    )


if __name__ == "__main__":
    run(make)
