"""Flink: SQL over files, in batches for the history, as streams for what is streamed; a cluster within one process.

The package has no reader of Parquet: the files are turned into CSV, which it can read, outside of the clock. There are
no tables in memory either: each question reads the files.
"""

import importlib
import tempfile
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.csv as pc
import pyarrow.parquet as pq

from benchmarks.peers.checks import IN_SQL
from benchmarks.peers.protocol import Answer, Job, Peer, Tally, run

SETTINGS: dict[str, Any] = {
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "100 ms",
    "table.exec.mini-batch.size": "5000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "object-reuse": "pipeline.object-reuse is true",
    "input": "one CSV file a stream, as the package reads no Parquet; each question reads the files anew",
    "join": "interval join on item with watermarks; pairs counted and summed inside, in mini-batches; the clock runs"
    " from the submission of the job",
    "selections": "the selections as values joined with the stream, counted and summed likewise",
    "history": "batch mode; rows by to_pandas, which goes through Arrow",
    "top, rare": "counts by item of both sides; as many items as the rows need; of these the tuples, joined, in order",
    "sampled": "the join, ORDER BY RAND LIMIT",
    "sum, sum-join": "exact: Flink has no sampled aggregate",
}
COLUMNS = "id BIGINT, us BIGINT, item BIGINT, price DOUBLE, amount DOUBLE"
TIMED = ", moment AS TO_TIMESTAMP_LTZ(us / 1000, 3), WATERMARK FOR moment AS moment"
BEST = """
WITH ca AS (SELECT item, COUNT(*) AS n FROM a GROUP BY item), cb AS (SELECT item, COUNT(*) AS n FROM b GROUP BY item),
best AS (SELECT ca.item, ca.n * cb.n AS pairs FROM ca JOIN cb ON ca.item = cb.item
  ORDER BY pairs {order}, item LIMIT {rows}),
needed AS (SELECT item, pairs FROM (SELECT item, pairs, SUM(pairs) OVER (ORDER BY pairs {order}, item
  ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) - pairs AS earlier FROM best) WHERE earlier < {rows})
SELECT x.id AS a, y.id AS b FROM a x JOIN needed n ON x.item = n.item JOIN b y ON y.item = n.item
ORDER BY n.pairs {order}, n.item LIMIT {rows}
"""
SAMPLED = (
    "SELECT a, b FROM (SELECT a.id AS a, b.id AS b, RAND({seed}) AS r FROM a JOIN b ON a.item = b.item)"
    " ORDER BY r LIMIT {rows}"
)
SUM = "SELECT SUM(amount) AS s FROM a"
SUM_JOIN = (
    "SELECT SUM(a.amount * o.n) AS s FROM a JOIN (SELECT item, COUNT(*) AS n FROM b GROUP BY item) o ON a.item = o.item"
)
COUNTED = "SELECT COUNT(*) AS n, SUM(CAST({check} AS BIGINT)) AS s FROM ({rows})"


@dataclass(frozen=True)
class Loaded:
    table: Any
    threads: int
    columns: dict[str, Any]


def load(table: Any, threads: int, job: Job) -> Loaded:
    columns = {}
    for name in ("a", "b"):
        read = pq.read_table(job.file(name))
        columns[name] = read.set_column(1, "us", read["ts"].cast("int64"))
    return Loaded(table, threads, columns)


def _environment(loaded: Loaded, job: Job, *, streaming: bool) -> Any:
    """The streams as tables of a new environment, over files that are written here."""
    settings = loaded.table.EnvironmentSettings
    mode = settings.in_streaming_mode() if streaming else settings.in_batch_mode()
    made = loaded.table.TableEnvironment.create(mode)
    config = made.get_config()
    config.set("parallelism.default", str(loaded.threads))
    config.set("pipeline.object-reuse", "true")
    if streaming:
        for name, value in SETTINGS.items():
            if name.startswith("table."):
                config.set(name, value)
    folder = Path(tempfile.mkdtemp(dir=job.folder))
    for name, columns in loaded.columns.items():
        path = folder / f"{name}.csv"
        pc.write_csv(columns.slice(0, job.tuples), path, pc.WriteOptions(include_header=False))
        timed = TIMED if streaming else ""
        made.execute_sql(
            f"CREATE TEMPORARY TABLE {name} ({COLUMNS}{timed})"
            f" WITH ('connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'csv')"
        )
    return made


def pairs(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    if task == "sampled":
        sql = SAMPLED.format(rows=job.sizes["sample"], seed=job.seed)
    else:
        sql = BEST.format(rows=job.sizes["top"], order="DESC" if task == "top" else "ASC")
    made = _environment(loaded, job, streaming=False)
    tally.start()
    found = made.sql_query(sql).to_pandas()
    tally.rows(len(found))
    tally.stop()
    return {"rows": len(found), "a": found["a"].tolist(), "b": found["b"].tolist()}


def total(sql: str, loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    made = _environment(loaded, job, streaming=False)
    tally.start()
    with made.execute_sql(sql).collect() as rows:
        (found,) = list(rows)
    tally.rows(1)
    tally.stop()
    return {"rows": 1, "value": found[0]}


def _counted(made: Any, sql: str, tally: Tally) -> Answer:
    """A count and a checksum that change as rows come: the last that was said holds."""
    number = check = 0
    tally.start()
    with made.execute_sql(sql).collect() as changes:
        for row in changes:
            if row.get_row_kind().name in ("INSERT", "UPDATE_AFTER") and row[0]:
                number, check = row[0], row[1]
                tally.rows(number)
    tally.stop()
    return {"rows": number, "checksum": check}


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """Times of an interval join are in milliseconds, which is a little too wide; the condition on `us` is exact."""
    window = job.sizes["window_us"]
    span = f"INTERVAL '{(window + 1_999) / 1e6:.3f}' SECOND"
    rows = (
        f"SELECT a.id AS a, b.id AS b FROM a, b WHERE a.item = b.item AND a.moment"
        f" BETWEEN b.moment - {span} AND b.moment + {span}"
        f" AND ABS(a.us - b.us) <= {window}"
    )
    made = _environment(loaded, job, streaming=True)
    return _counted(made, COUNTED.format(check=IN_SQL.format("a", "b"), rows=rows), tally)


def selections(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    made = _environment(loaded, job, streaming=True)
    path = Path(tempfile.mkdtemp(dir=job.folder)) / "ranges.csv"
    lines = (",".join(map(repr, (number, *one))) for number, one in enumerate(job.selections(task)))
    path.write_text("\n".join(lines) + "\n", encoding="ascii")
    made.execute_sql(
        "CREATE TEMPORARY TABLE ranges (query BIGINT, low DOUBLE, high DOUBLE, lowest BIGINT, highest BIGINT)"
        f" WITH ('connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'csv')"
    )
    rows = (
        "SELECT r.query AS a, a.id AS b FROM a JOIN ranges r ON a.price BETWEEN r.low AND r.high"
        " AND a.item BETWEEN r.lowest AND r.highest"
    )
    return _counted(made, COUNTED.format(check=IN_SQL.format("a", "b"), rows=rows), tally)


def make(threads: int) -> Peer:
    table: Any = importlib.import_module("pyflink.table")
    return Peer(
        "flink",
        version("apache-flink"),
        {"parallelism": threads, **SETTINGS},
        partial(load, table, threads),
        {
            "join": {"": join},
            "selections": {"": selections},
            "top": {"": pairs},
            "rare": {"": pairs},
            "sampled": {"": pairs},
            "sum": {"exact": partial(total, SUM)},
            "sum-join": {"exact": partial(total, SUM_JOIN)},
        },
    )


if __name__ == "__main__":
    run(make)
