"""DuckDB: tables of its own for the history; for what is streamed, a statement for each batch over Arrow in memory."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.checks import checksum
from benchmarks.peers.protocol import Answer, Job, Peer, Tally, run

SETTINGS: dict[str, Any] = {
    "history": "tables in memory, made from the files; preserve_insertion_order=false; rows as Arrow batches",
    "join": "what is new against the window of the other side, as slices of Arrow that DuckDB reads in place",
    "selections": "per query: a prepared statement each; range join: the selections as a table, one join a batch",
    "top, rare": "counts by item of both sides; as many items as the rows need; of these the tuples, joined, in order",
    "sampled": "the join, USING SAMPLE reservoir",
    "sum, sum-join": "exact: all rows, of the join by counts of the other side; sample: TABLESAMPLE of the share that"
    " 1 % needs of these amounts, 100,000 tuples (system) and, for the join, 200,000 (bernoulli)",
}
BEST = """
WITH ca AS (SELECT item, count(*) AS n FROM a GROUP BY item), cb AS (SELECT item, count(*) AS n FROM b GROUP BY item),
best AS (SELECT ca.item, ca.n * cb.n AS pairs FROM ca JOIN cb USING (item) ORDER BY pairs {order}, item LIMIT {rows}),
needed AS MATERIALIZED (
  SELECT item, pairs FROM (SELECT *, sum(pairs) OVER (ORDER BY pairs {order}, item) - pairs AS before FROM best)
  WHERE before < {rows}),
x AS (SELECT item, id, pairs FROM a JOIN needed USING (item)),
y AS (SELECT item, id FROM b JOIN needed USING (item))
SELECT x.id AS a, y.id AS b FROM x JOIN y USING (item) ORDER BY x.pairs {order}, x.item LIMIT {rows}
"""
SAMPLED = (
    "SELECT * FROM (SELECT a.id AS a, b.id AS b FROM a JOIN b USING (item))"
    " USING SAMPLE reservoir({rows} ROWS) REPEATABLE ({seed})"
)
ONE = "SELECT avg(amount) * (SELECT count(*) FROM a) FROM a{sample}"
TWO = (
    "SELECT sum(a.amount * o.n){scale} FROM a{sample} JOIN (SELECT item, count(*) AS n FROM b GROUP BY item) o"
    " USING (item)"
)


@dataclass(frozen=True)
class Loaded:
    duck: duckdb.DuckDBPyConnection
    tables: dict[str, pa.Table]


def load(job: Job) -> Loaded:
    duck = _connect(job)
    if job.group == "history":
        for name in ("a", "b"):
            duck.execute(f"CREATE TABLE {name} AS SELECT * FROM read_parquet('{job.file(name)}')")
        return Loaded(duck, {})
    return Loaded(duck, {name: pq.read_table(job.file(name)).combine_chunks() for name in ("a", "b")})


def _connect(job: Job) -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": job.threads, "preserve_insertion_order": False})


def pairs(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    if task == "sampled":
        sql = SAMPLED.format(rows=job.sizes["sample"], seed=job.seed)
    else:
        sql = BEST.format(rows=job.sizes["top"], order="DESC" if task == "top" else "ASC")
    tally.start()
    parts, rows = [], 0
    for batch in loaded.duck.sql(sql).to_arrow_reader(2048):
        if batch.num_rows:
            parts.append(batch)
            rows += batch.num_rows
            tally.rows(rows)
    tally.stop()
    table = pa.Table.from_batches(parts)
    return {"rows": rows, "a": table["a"].to_pylist(), "b": table["b"].to_pylist()}


def total(sql: str, method: str, drawn: int, loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """drawn: as many tuples as a sample has; 0 for all."""
    share = min(100.0, 100.0 * drawn / job.tuples) if drawn else 100.0
    sample = f" TABLESAMPLE {share} PERCENT ({method}, {job.seed})" if drawn else ""
    statement = sql.format(sample=sample, scale=f" * {100 / share}")
    tally.start()
    (found,) = loaded.duck.sql(statement).fetchall()
    tally.rows(1)
    tally.stop()
    return {"rows": 1, "value": float(found[0])}


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """A pair is found when the later of both comes: new of a with all of b that is held, old of a with new of b."""
    window = job.sizes["window_us"]
    reach = -(-window // 100)
    near = f"abs(epoch_us(a.ts) - epoch_us(b.ts)) <= {window}"
    both = "SELECT a.id AS a, b.id AS b FROM {} a JOIN {} b ON a.item = b.item AND " + near
    sql = f"{both.format('a_new', 'b_held')} UNION ALL {both.format('a_old', 'b_new')}"
    columns = {name: table.select(["id", "ts", "item"]) for name, table in loaded.tables.items()}
    found: list[pa.Table] = []
    rows = 0
    with loaded.duck.cursor() as duck:
        tally.start()
        for first in range(0, job.tuples, job.batch):
            size, low = min(job.batch, job.tuples - first), max(first - reach, 0)
            duck.register("a_new", columns["a"].slice(first, size))
            duck.register("a_old", columns["a"].slice(low, first - low))
            duck.register("b_new", columns["b"].slice(first, size))
            duck.register("b_held", columns["b"].slice(low, first - low + size))
            part: Any = duck.execute(sql).to_arrow_table()
            found.append(part)
            rows += len(part)
            tally.rows(rows)
        tally.stop()
    return {"rows": rows, "checksum": sum(checksum(part["a"], part["b"]) for part in found)}


def selections(way: str, loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    asked = job.selections(task)
    found: list[tuple[Any, Any]] = []
    rows = 0
    with loaded.duck.cursor() as duck:
        duck.execute("CREATE OR REPLACE TEMP TABLE batch (id BIGINT, item BIGINT, price DOUBLE)")
        lists = list(zip(*asked, strict=True))
        names = ("low", "high", "first", "last")
        ranges = pa.table({"query": list(range(len(asked))), **dict(zip(names, map(list, lists), strict=True))})
        duck.register("asked", ranges)
        duck.execute("CREATE OR REPLACE TEMP TABLE ranges AS SELECT * FROM asked")
        duck.execute("PREPARE one AS SELECT id FROM batch WHERE price BETWEEN $1 AND $2")
        duck.execute("PREPARE two AS SELECT id FROM batch WHERE price BETWEEN $1 AND $2 AND item BETWEEN $3 AND $4")
        table = loaded.tables["a"].select(["id", "item", "price"])
        tally.start()
        for start in range(0, job.tuples, job.batch):
            duck.register("arrow", table.slice(start, min(job.batch, job.tuples - start)))
            duck.execute("DELETE FROM batch")
            duck.execute("INSERT INTO batch SELECT * FROM arrow")
            if way == "range join":
                part = duck.execute(
                    "SELECT query, id FROM batch JOIN ranges ON price BETWEEN low AND high"
                    " AND item BETWEEN first AND last"
                ).fetchnumpy()
                found.append((part["query"], part["id"]))
                rows += len(part["id"])
            else:
                for number, (low, high, first, last) in enumerate(asked):
                    call = f"two({low!r}, {high!r}, {first}, {last})" if first else f"one({low!r}, {high!r})"
                    ids = duck.execute(f"EXECUTE {call}").fetchnumpy()["id"]
                    found.append((number, ids))
                    rows += len(ids)
            tally.rows(rows)
        tally.stop()
    return {"rows": rows, "checksum": sum(checksum(*part) for part in found)}


def make(threads: int) -> Peer:
    return Peer(
        "duckdb",
        duckdb.__version__,
        {"threads": threads, **SETTINGS},
        load,
        {
            "join": {"": join},
            "selections": {
                "per query": partial(selections, "per query"),
                "range join": partial(selections, "range join"),
            },
            "top": {"": pairs},
            "rare": {"": pairs},
            "sampled": {"": pairs},
            "sum": {"exact": partial(total, ONE, "", 0), "sample": partial(total, ONE, "system", 100_000)},
            "sum-join": {"exact": partial(total, TWO, "", 0), "sample": partial(total, TWO, "bernoulli", 200_000)},
        },
    )


if __name__ == "__main__":
    run(make)
