"""A query that Spark works out over cold files and memory has the service's answer, and reads no more than it must."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import promising.index.log
from promising.errors import NoSuchName, NoSummary, Unsupported
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.loaders.scale_out import scale_out
from promising.loaders.spark_sql import spark_sql
from promising.query import Session
from tests.loaders.desk import desk

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COLUMNS = 'id BIGINT, k BIGINT, "#w" VARCHAR, ts TIMESTAMP, "a price" DOUBLE, ok BOOLEAN'
WORDS = ["tea", "Tea", "", "jam_1", "日本", "it's", 'a "b"', "back\\slash", "50%", None]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Streams a and b: most of their tuples cold, some in memory, the first aged out; c is in memory, and empty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising.index.log, "CHUNK", 256)
        patch.setattr("promising.index.storage.cold_layout.SMALL", 64)
        options = StoreOptions(hot_tuples=0, run_tuples=1024, sync="relaxed")
        store = Store.open(tmp_path_factory.mktemp("kept") / "store", seed=-5, clock=lambda: 1 << 60, options=options)
        with Session(clock=lambda: 1 << 60, store=store, written=spark_sql) as made:
            rng = np.random.default_rng(4)
            for name in ("a", "b", "c"):
                made.execute(f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts KEEP 160 SECONDS")
                made.execute(
                    f"CREATE SUMMARY by_{name} ON {name} (k) WITH GRANULARITY 10 SECONDS AND COLLAPSE (2, 4)"
                    " OPTIONS (buckets = 4, depth = 3, width = 16, maxlength = 256)"
                )
            for part in range(20):
                for name in ("a", "b"):
                    made.ingest(name, tuples(rng, part * 250, 250, part * 20))
                if part in (6, 12, 18):
                    store.checkpoint()
            (scan,) = made.plan_scan("SELECT * FROM a").scans
            kept = made.query("SELECT count(*) AS n FROM a").to_arrow()["n"][0].as_py()
            assert scan.pieces and scan.warm and 1000 < kept < 5000
            yield made


def tuples(rng: np.random.Generator, first: int, n: int, start: int) -> dict[str, Any]:
    prices: list[float | None] = rng.gamma(2.0, 2.5, n).round(2).tolist()
    prices[::17] = [None] * len(prices[::17])
    prices[1::31] = [math.nan] * len(prices[1::31])
    prices[2::37] = [-0.0] * len(prices[2::37])
    return {
        "id": np.arange(first, first + n),
        "k": np.minimum(rng.zipf(1.4, n), 400),
        "#w": [WORDS[i] for i in rng.integers(0, len(WORDS), n)],
        "ts": start * SECOND + np.sort(rng.integers(0, 20 * SECOND, n)),
        "a price": prices,
        "ok": [None if i % 5 == 0 else bool(i % 2) for i in rng.integers(0, 10, n)],
    }


@pytest.fixture(scope="module")
def connect(session: Session) -> Iterator[Any]:
    with desk(session) as found:
        yield found


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Floats to twelve digits: sums depend on the order in which they are added."""
    return list(zip(*(map(_value, column.to_pylist()) for column in table.columns), strict=True))


def _value(value: Any) -> Any:
    if not isinstance(value, float):
        return value
    return "nan" if math.isnan(value) else float(f"{value:.11e}") + 0.0


STATEMENTS = [
    # Selections: every kind of column, strings, nulls, NaN, times.
    "SELECT * FROM a WHERE k > 3",
    """SELECT id, "#w" || '!' AS said, "a price" / 3 AS third, id % 7 AS rest, ts - TIMESTAMP '1970-01-01' AS since
       FROM a WHERE "#w" LIKE '%\\%' OR "#w" IN ('', 'it''s', '50%') OR "a price" > 1e3 AND ok""",
    "SELECT a.id, date_trunc('minute', ts), extract(dow FROM ts), round(\"a price\", 1) FROM a WINDOW 75 SECONDS",
    # Joins: with a window, with further conditions, on strings, with oneself.
    'SELECT a.id, b.id, a."a price" AS p, b."#w" FROM a JOIN b ON a.k = b.k WHERE b.ok AND a.k > 1 WINDOW 90 SECONDS',
    'SELECT a.id, z.id AS other FROM a JOIN a z ON a."#w" = z."#w" AND a.id < z.id WHERE a.k = 7',
    # Aggregates: all of them, by nulls and NaN, over nothing.
    """SELECT "#w" AS word, count(*) AS n, count(ok), count(DISTINCT k) AS d, sum(k), avg("a price"), min("#w"),
              max("a price"), median(k), quantile(k, 0.9), approx_count_distinct(ok), approx_quantile(k, 1)
       FROM a GROUP BY word HAVING count(*) > 1 ORDER BY word NULLS FIRST""",
    'SELECT "a price" AS p, count(*) FROM a GROUP BY 1 ORDER BY p DESC',
    "SELECT a.k % 5 AS slot, count(*) AS n, sum(b.k) FROM a JOIN b ON a.k = b.k WHERE a.k > 2 GROUP BY 1 ORDER BY 2, 1",
    "SELECT count(*), sum(k), min(ts), avg(k) FROM c",
    # The other clauses: what comes first, and how well, changes nothing of a whole answer.
    "SELECT k FROM a WHERE k > 2 WITH PREFERENCE DESC SUMMARY.Estimate.Count(k) FADE FACTOR 0.5 WINDOW 100 SECONDS",
    "SELECT id, k FROM a ORDER BY k DESC, id LIMIT 5",
]


@pytest.mark.parametrize("sql", STATEMENTS, ids=range(len(STATEMENTS)))
def test_as_the_service_answers(sql: str, spark: Any, connect: Any, session: Session):
    frame, figures = scale_out(spark, connect, sql)
    found = frame.toArrow()
    expected = session.query(sql).to_arrow()
    assert found.column_names == expected.column_names
    kinds = {pa.string(): pa.large_string()}
    assert [kinds.get(kind, kind) for kind in found.schema.types] == expected.schema.types
    assert Counter(rows(found)) == Counter(rows(expected))
    if "ORDER BY" in sql:
        assert rows(found) == rows(expected)
    assert expected.num_rows and figures.expected_share == 1
    if " c" not in sql:
        assert figures.bytes_read >= figures.bytes_planned > 0
    assert not spark.catalog.tableExists("a") and spark.conf.get("spark.sql.session.timeZone") == "Asia/Kolkata"


def test_a_share_is_the_whole_answer_of_its_keys(spark: Any, connect: Any, session: Session):
    sessions = spark._get_j_spark_session_class(spark._jvm)
    before = sessions.getActiveSession()
    sql = "SELECT a.id, b.id, a.k FROM a JOIN b ON a.k = b.k WHERE a.id < b.id"
    frame, figures = scale_out(spark, connect, sql, share=0.8)
    found = frame.toArrow()
    keys = set(found["k"].to_pylist())
    expected = session.query(sql).to_arrow()
    wanted = expected.filter(pa.array([key in keys for key in expected["k"].to_pylist()]))
    assert Counter(rows(found)) == Counter(rows(wanted))
    assert 0.7 * expected.num_rows < found.num_rows < expected.num_rows
    assert 0.8 <= figures.expected_share < 1
    whole, all_of = scale_out(spark, connect, sql)
    assert whole.count() == expected.num_rows
    assert figures.groups_read < all_of.groups_read <= all_of.groups_total == figures.groups_total
    assert figures.bytes_planned < all_of.bytes_planned <= all_of.bytes_total == figures.bytes_total
    assert figures.bytes_read < all_of.bytes_read
    assert sessions.getActiveSession().equals(before)  # where Spark looks up data sources


def test_what_is_refused_is_refused_before_a_job_runs(spark: Any, connect: Any):
    for kind, said, sql, share in (
        (Unsupported, "cast of a float to a string", 'SELECT "a price"::TEXT FROM a', 1.0),
        (
            Unsupported,
            "order of the preference",
            "SELECT k FROM a WITH PREFERENCE SUMMARY.Estimate.Count(k) LIMIT 1",
            1.0,
        ),
        (NoSuchName, "nothing", "SELECT nothing FROM a", 1.0),
        (NoSummary, "counted by keys", "SELECT k FROM a", 0.5),
    ):
        with pytest.raises(kind, match=said):
            scale_out(spark, connect, sql, share=share)


def test_damage_is_told(spark: Any, connect: Any, session: Session):
    (scan,) = session.plan_scan("SELECT id FROM a").scans
    path = Path(scan.pieces[0].path)
    whole = path.read_bytes()
    chunk = pq.read_metadata(path).row_group(scan.pieces[0].groups[-1]).column(0)
    broken = bytearray(whole)
    broken[chunk.data_page_offset + 10] ^= 1
    frame, _ = scale_out(spark, connect, "SELECT * FROM a")
    try:
        path.write_bytes(broken)
        with pytest.raises(Exception, match="fails its checksum"):
            frame.toArrow()
        path.unlink()
        frame, _ = scale_out(spark, connect, "SELECT * FROM a")
        with pytest.raises(Exception, match="is not there: its tuples have aged out"):
            frame.toArrow()
    finally:
        path.write_bytes(whole)
