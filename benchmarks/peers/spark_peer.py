"""Spark: cached tables for the history, Structured Streaming over files for what is streamed; all on this machine."""

import importlib
import shutil
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.peers.checks import IN_SQL
from benchmarks.peers.protocol import Answer, Job, Peer, Tally, run

FILE = 65_536
"""Tuples of a file, one of each stream for a micro-batch: a batch of a few thousand would measure its fixed cost."""
SETTINGS: dict[str, Any] = {
    "spark.sql.adaptive.enabled": "true",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "history": "tables cached in memory, columnar; rows by toArrow",
    "join": f"stream-stream join with watermarks, files of {FILE:,} tuples, one of each stream a micro-batch;"
    " pairs counted and summed in foreachBatch; the clock runs from the start of the query",
    "selections": f"the selections as a broadcast table joined with files of {FILE:,} tuples, summed in foreachBatch",
    "top, rare": "counts by item of both sides; as many items as the rows need; of these the tuples, joined, in order",
    "sampled": "the join, ORDER BY rand LIMIT",
    "sum, sum-join": "exact: all rows; sample (one stream): TABLESAMPLE of 100,000 tuples",
}
BEST = """
WITH ca AS (SELECT item, count(*) AS n FROM a GROUP BY item), cb AS (SELECT item, count(*) AS n FROM b GROUP BY item),
best AS (SELECT ca.item, ca.n * cb.n AS pairs FROM ca JOIN cb ON ca.item = cb.item
  ORDER BY pairs {order}, item LIMIT {rows}),
needed AS (SELECT item, pairs FROM (SELECT item, pairs, sum(pairs) OVER (ORDER BY pairs {order}, item) - pairs AS before
  FROM best) WHERE before < {rows})
SELECT a, b FROM (SELECT x.id AS a, y.id AS b, n.pairs, n.item FROM a x JOIN needed n ON x.item = n.item
  JOIN b y ON y.item = n.item) ORDER BY pairs {order}, item LIMIT {rows}
"""
SAMPLED = "SELECT a.id AS a, b.id AS b FROM a JOIN b ON a.item = b.item ORDER BY rand({seed}) LIMIT {rows}"
SUM = "SELECT avg(amount) * (SELECT count(*) FROM a) AS s FROM a{}"
SUM_JOIN = (
    "SELECT sum(a.amount * o.n) AS s FROM a JOIN (SELECT item, count(*) AS n FROM b GROUP BY item) o ON a.item = o.item"
)


@dataclass(frozen=True)
class Loaded:
    spark: Any
    tables: dict[str, Any]


def load(spark: Any, job: Job) -> Loaded:
    if job.group != "history":
        return Loaded(spark, {name: pq.read_table(job.file(name)) for name in ("a", "b")})
    for name in ("a", "b"):
        frame = spark.read.parquet(job.file(name)).cache()
        frame.count()
        frame.createOrReplaceTempView(name)
    return Loaded(spark, {})


def pairs(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    if task == "sampled":
        sql = SAMPLED.format(rows=job.sizes["sample"], seed=job.seed)
    else:
        sql = BEST.format(rows=job.sizes["top"], order="DESC" if task == "top" else "ASC")
    tally.start()
    table = loaded.spark.sql(sql).toArrow()
    tally.rows(len(table))
    tally.stop()
    return {"rows": len(table), "a": table["a"].to_pylist(), "b": table["b"].to_pylist()}


def total(sql: str, drawn: int, loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    """drawn: as many tuples as a sample has; 0 for all."""
    share = min(100.0, 100.0 * drawn / job.tuples)
    sample = f" TABLESAMPLE ({share} PERCENT) REPEATABLE ({job.seed})" if 0 < share < 100 else ""
    tally.start()
    value = loaded.spark.sql(sql.format(sample)).collect()[0][0]
    tally.rows(1)
    tally.stop()
    return {"rows": 1, "value": value}


def _feed(spark: Any, table: Any, folder: Path, job: Job) -> Any:
    """The stream as files, in order, and a reader that takes one at a time."""
    folder.mkdir()
    for number, first in enumerate(range(0, job.tuples, FILE)):
        pq.write_table(table.slice(first, min(FILE, job.tuples - first)), folder / f"{number:05}.parquet")
    schema = spark.read.parquet(str(folder)).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def _stream(results: Any, check: str, folder: Path, tally: Tally) -> Answer:
    """Run it over all files; each micro-batch is counted and summed."""
    rows = total = 0

    def take(frame: Any, number: int) -> None:
        nonlocal rows, total
        count, part = frame.selectExpr("count(*)", f"coalesce(sum({check}), 0)").collect()[0]
        rows, total = rows + count, total + part
        tally.rows(rows)

    writer = results.writeStream.foreachBatch(take).option("checkpointLocation", str(folder / "checkpoint"))
    tally.start()
    query = writer.outputMode("append").trigger(availableNow=True).start()
    query.awaitTermination()
    tally.stop()
    return {"rows": rows, "checksum": int(total)}


def join(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    folder = Path(tempfile.mkdtemp(dir=job.folder))
    feeds = {name: _feed(loaded.spark, table, folder / name, job) for name, table in loaded.tables.items()}
    a = feeds["a"].selectExpr("id AS a", "CAST(ts AS TIMESTAMP) AS ta", "item AS ia").withWatermark("ta", "0 seconds")
    b = feeds["b"].selectExpr("id AS b", "CAST(ts AS TIMESTAMP) AS tb", "item AS ib").withWatermark("tb", "0 seconds")
    functions: Any = importlib.import_module("pyspark.sql.functions")
    span = f"INTERVAL '{job.sizes['window_us'] / 1e6}' SECOND"
    near = functions.expr(f"ia = ib AND ta >= tb - {span} AND ta <= tb + {span}")
    answer = _stream(a.join(b, near).select("a", "b"), IN_SQL.format("a", "b"), folder, tally)
    shutil.rmtree(folder, ignore_errors=True)
    return answer


def selections(loaded: Loaded, job: Job, task: str, tally: Tally) -> Answer:
    functions: Any = importlib.import_module("pyspark.sql.functions")
    folder = Path(tempfile.mkdtemp(dir=job.folder))
    asked = [(number, *one) for number, one in enumerate(job.selections(task))]
    ranges = loaded.spark.createDataFrame(asked, "query BIGINT, low DOUBLE, high DOUBLE, first BIGINT, last BIGINT")
    feed = _feed(loaded.spark, loaded.tables["a"].select(["id", "item", "price"]), folder / "a", job)
    kept = functions.expr("price BETWEEN low AND high AND item BETWEEN first AND last")
    results = feed.join(functions.broadcast(ranges.coalesce(1).cache()), kept).select("query", "id")
    answer = _stream(results, IN_SQL.format("query", "id"), folder, tally)
    shutil.rmtree(folder, ignore_errors=True)
    return answer


def make(threads: int) -> Peer:
    pyspark: Any = importlib.import_module("pyspark")
    builder = importlib.import_module("pyspark.sql").SparkSession.builder.master(f"local[{threads}]").appName("peer")
    set_here = {name: value for name, value in SETTINGS.items() if name.startswith("spark.")}
    set_here["spark.sql.shuffle.partitions"] = str(2 * threads)
    for name, value in set_here.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return Peer(
        "spark",
        pyspark.__version__,
        {"master": f"local[{threads}]", **SETTINGS, **set_here},
        partial(load, spark),
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
