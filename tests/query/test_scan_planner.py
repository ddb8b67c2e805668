"""What a scan names is enough: no tuple of an answer lies anywhere else, and none is named twice."""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import promising.index.log
from promising.errors import BadQuestion, NoSummary, TokenExpired, Unsupported
from promising.index.scan_plan import Scan, ScanPlan
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.loaders.spark_sql import spark_sql
from promising.query import Session
from promising.summaries.hashing import hash_keys

SECOND = 1_000_000
SPAN = 200  # seconds
COLUMNS = "id BIGINT, k BIGINT, w VARCHAR, ts TIMESTAMP, price DOUBLE"
ROW = ["id", "k", "w", "ts", "price"]


@contextmanager
def kept(
    path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, *, chunk: int = 64, run: int = 256
) -> Iterator[Session]:
    """A session over a store in which all that can go cold does, in small files of small row groups."""
    monkeypatch.setattr(promising.index.log, "CHUNK", chunk)
    monkeypatch.setattr("promising.index.storage.cold_layout.SMALL", 16)
    options = StoreOptions(hot_tuples=0, run_tuples=run, sync="relaxed")
    store = Store.open(path, seed=seed, clock=lambda: 1 << 60, options=options)
    with Session(clock=lambda: 1 << 60, store=store) as session:
        yield session


def stream(
    session: Session, name: str, *, keys: tuple[str, ...] = ("k",), granularity: int = 10, depth: int = 4
) -> None:
    keep = granularity * max(8, 2**depth - 1)
    session.execute(f"CREATE STREAM {name} ({COLUMNS}) TIMESTAMP BY ts LATENESS 5 SECONDS KEEP {keep} SECONDS")
    for key in keys:
        session.execute(
            f"CREATE SUMMARY {name}_{key} ON {name} ({key}) WITH GRANULARITY {granularity} SECONDS AND"
            f" COLLAPSE (2, {depth}) OPTIONS (buckets = 4, depth = 3, width = 8, maxlength = 256)"
        )


def grow(session: Session, name: str, rng: random.Random, first: int, n: int, start: int, keys: int) -> None:
    """Tuples over the 20 seconds from `start` on, a few of them late; `id` numbers them."""
    times = sorted(start * SECOND + rng.randrange(20 * SECOND) for _ in range(n))
    for _ in range(n // 20):
        times[rng.randrange(n)] -= rng.randrange(4 * SECOND)
    drawn = [int(keys * rng.random() ** 2) * (2 if name == "b" else 1) for _ in range(n)]
    session.ingest(
        name,
        {
            "id": list(range(first, first + n)),
            "k": drawn,
            "w": [None if rng.random() < 0.1 else f"item {k}" for k in drawn],
            "ts": times,
            "price": [rng.random() for _ in range(n)],
        },
    )


def world(session: Session, seed: int, *, cold: bool = True, depth: int | None = None, each: int = 0) -> None:
    """Streams a and b; some of their first tuples have been removed, unless the summaries are deep."""
    rng = random.Random(seed)
    keys, each = rng.choice((30, 200, 2000)), each or rng.choice((40, 120))
    for name in ("a", "b"):
        stream(session, name, depth=depth or rng.choice((3, 5)))
    for part in range(SPAN // 20):
        for name in ("a", "b"):
            grow(session, name, rng, part * each, each, part * 20, keys)
        if cold and part in (4, 8):
            assert session.store is not None
            session.store.checkpoint()


def named(session: Session, scan: Scan, columns: list[str]) -> pa.Table:
    """All that a scan names, read from the files themselves, those that do not belong left out."""
    parts = [pq.ParquetFile(piece.path).read_row_groups(piece.groups, columns) for piece in scan.pieces]
    for first, last in scan.warm:
        parts += list(session.fetch(scan.stream, first, last, columns))
    table = pa.concat_tables(
        [p.select(columns) for p in parts] or [session.stream(scan.stream).take(np.array([], np.int32), columns)]
    )
    if scan.time in scan.columns and scan.start is not None and scan.end is not None:
        times = table["ts"].cast(pa.int64()).to_numpy()
        table = table.filter(pa.array((times >= scan.start) & (times < scan.end)))
    return table


def needed(session: Session, sql: str, side: str) -> Counter[int]:
    """Ids of the tuples of one side that the answer has something of."""
    *_, rest = sql.partition(" FROM ")
    found = session.query(f"SELECT {side}.id AS id FROM {rest}").to_arrow()["id"].to_pylist()
    return Counter(found)


STATEMENTS = [
    "SELECT a.price FROM a",
    "SELECT a.price FROM a WINDOW 45 SECONDS",
    "SELECT a.price FROM a WHERE a.k = 3",
    "SELECT a.price FROM a WHERE a.k IN (2, 4, 1999) AND a.price < 0.5",
    "SELECT a.price FROM a WHERE a.ts >= '1970-01-01 00:01:30' AND a.ts < '1970-01-01 00:02:10.5'",
    "SELECT a.price FROM a WHERE TIMESTAMP '1970-01-01 00:02:00' = a.ts OR a.k = 2",
    "SELECT a.price FROM a WHERE a.id BETWEEN 250 AND 1000 AND 900 > a.id AND 300 < a.id",
    "SELECT a.price, b.price FROM a JOIN b ON a.k = b.k",
    "SELECT a.price, b.price FROM a JOIN b ON a.k = b.k WHERE a.price < b.price WINDOW 70 SECONDS",
    "SELECT a.price, b.price FROM a JOIN b ON a.k = b.k WHERE b.k = 4",
    "SELECT a.price, b.price FROM a JOIN b ON a.w = b.w WHERE a.ts < '1970-01-01 00:02:40'",
    "SELECT a.price, b.price FROM a JOIN a b ON a.k = b.k + 1 WINDOW 20 SECONDS",
]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_of_an_answer_is_elsewhere(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with kept(tmp_path / "store", monkeypatch, seed) as session:
        world(session, seed)
        plans = [session.plan_scan(sql) for sql in STATEMENTS]
        assert any(scan.pieces for plan in plans for scan in plan.scans)
        for sql, plan in zip(STATEMENTS, plans, strict=True):
            assert ScanPlan.from_json(plan.to_json()) == plan
            assert [scan.alias for scan in plan.scans] == (["a", "b"] if "JOIN" in sql else ["a"])
            for scan in plan.scans:
                table = named(session, scan, ROW)
                ids = Counter(table["id"].to_pylist())
                assert max(ids.values(), default=1) == 1, f"{sql}: a tuple is named twice"
                missing = needed(session, sql, scan.alias).keys() - ids.keys()
                assert not missing, f"{sql}: {len(missing)} tuples of {scan.alias} are not named"
                kept_ids = session.query(f"SELECT id FROM {scan.stream}{_window(sql)}").to_arrow()["id"].to_pylist()
                assert ids.keys() <= set(kept_ids), f"{sql}: tuples are named that are not in the stream any more"


def _window(sql: str) -> str:
    _, word, rest = sql.partition(" WINDOW")
    return word + rest


@pytest.mark.parametrize("seed", range(2))
def test_a_share_has_its_keys_and_no_more_than_it_needs(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sql = "SELECT a.price FROM a JOIN b ON a.k = b.k"
    with kept(tmp_path / "store", monkeypatch, seed) as session:
        world(session, seed, depth=8)
        rows = session.query("SELECT a.k AS k, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY a.k").to_arrow()
        pairs = dict(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))
        by_hash = {int(hash_keys([k], seed).view(np.int64)[0]): n for k, n in pairs.items()}
        for share in (0.3, 0.8):
            for direction in ("", " WITH PREFERENCE ASC SUMMARY.Estimate.Count(a.k), SUMMARY.Estimate.Count(b.k)"):
                plan = session.plan_scan(sql + direction, share=share)
                assert plan.hashes is not None and plan.keys == ("k", "k") and plan.seed == seed
                made = [by_hash[h] for h in plan.hashes]
                assert made == sorted(made, reverse=not direction)
                total = sum(pairs.values())
                assert plan.expected_rows == sum(made)
                assert sum(made) >= share * total > sum(made[:-1])
                assert plan.share == pytest.approx(sum(made) / total)
                for scan in plan.scans:
                    assert "k" in scan.columns
                    table = named(session, scan, ["k", "ts", "id"])
                    found = hash_keys(table["k"].to_numpy(), seed).view(np.int64)
                    ids = set(table.filter(pa.array(np.isin(found, plan.hashes)))["id"].to_pylist())
                    asked = session.query(f"SELECT id, k FROM {scan.stream}").to_arrow()
                    wanted = np.isin(hash_keys(asked["k"].to_numpy(), seed).view(np.int64), plan.hashes)
                    assert ids == set(asked.filter(pa.array(wanted))["id"].to_pylist())


def test_pieces_come_best_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = "SELECT a.price FROM a WITH PREFERENCE {} SUMMARY.Estimate.Count(a.k)"
    with kept(tmp_path / "store", monkeypatch, 1, run=512) as session:
        world(session, 3, depth=8, each=150)
        for direction in ("DESC", "ASC"):
            (scan,) = session.plan_scan(asked.format(direction)).scans
            density = [piece.promise / piece.bytes for piece in scan.pieces]
            assert len(density) > 2 and density == sorted(density, reverse=direction == "DESC")
            warm = named(session, Scan(**{**vars(scan), "pieces": []}), ["id", "ts"]).num_rows
            everything = session.query("SELECT count(*) AS n FROM a").to_arrow()["n"][0].as_py()
            assert sum(p.promise for p in scan.pieces) == pytest.approx(1 - warm / everything)
            (all_of,) = session.plan_scan("SELECT a.price FROM a").scans
            assert scan.bytes == all_of.bytes == all_of.total_bytes and all_of.groups == all_of.total_groups


def test_groups_that_cannot_matter_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with kept(tmp_path / "store", monkeypatch, 1, run=512) as session:
        world(session, 2, depth=8, each=150)
        (whole,) = session.plan_scan("SELECT price FROM a").scans
        for sql in (
            "SELECT price FROM a WHERE k = 1777",
            "SELECT price FROM a WHERE k IN (1777, 1778)",
            "SELECT price FROM a WHERE ts < '1970-01-01 00:01:00'",
            "SELECT price FROM a WHERE id < 5",
            "SELECT a.price FROM a, b WHERE a.k = b.k AND b.k = 1776",
            "SELECT price FROM a WINDOW 30 SECONDS",
        ):
            scan = session.plan_scan(sql).scans[0]
            assert scan.groups < whole.groups, sql
        (nothing,) = session.plan_scan("SELECT price FROM a WHERE k = -5").scans
        assert not nothing.pieces and not nothing.warm and nothing.total_bytes > 0


def test_only_columns_that_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with kept(tmp_path / "store", monkeypatch, 1) as session:
        world(session, 1)
        used = {
            "SELECT a.price FROM a": [["price"]],
            "SELECT count(*) FROM a": [["ts"]],
            "SELECT a.price FROM a JOIN b ON a.k = b.k": [["k", "price"], ["k"]],
            "SELECT max(id) FROM a WHERE price < 1 GROUP BY w": [["id", "w", "price"]],
        }
        for sql, columns in used.items():
            plan = session.plan_scan(sql)
            for scan, wanted in zip(plan.scans, columns, strict=True):
                extra = [scan.time] if scan.start is not None and "ts" not in wanted else []
                assert scan.columns == wanted + extra, sql


def test_streams_in_memory_are_warm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(promising.index.log, "CHUNK", 64)
    session = Session(clock=lambda: 1 << 60, seed=1)
    world(session, 4, cold=False)
    for sql in STATEMENTS:
        for scan in session.plan_scan(sql).scans:
            assert not scan.pieces and not scan.total_bytes
            ids = set(named(session, scan, ROW)["id"].to_pylist())
            assert needed(session, sql, scan.alias).keys() <= ids


def test_what_went_cold_since_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with kept(tmp_path / "store", monkeypatch, 1) as session:
        stream(session, "a")
        rng = random.Random(5)
        for part in range(4):
            grow(session, "a", rng, 100 * part, 100, 5 * part, 9)
        (scan,) = session.plan_scan("SELECT id, w FROM a").scans
        before = named(session, scan, ["id", "w"])
        assert not scan.pieces and before.num_rows == 400
        grow(session, "a", rng, 400, 100, 40, 9)
        assert session.store is not None
        session.store.checkpoint()
        (later,) = session.plan_scan("SELECT id, w FROM a").scans
        assert later.pieces
        assert named(session, scan, ["id", "w"]).equals(before)
        grow(session, "a", rng, 500, 100, 4000, 9)
        with pytest.raises(TokenExpired, match="plan the scan again"):
            list(session.fetch("a", 0, 400, ["id"]))


def test_fetch_gives_slices(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(promising.index.log, "CHUNK", 64)
    monkeypatch.setattr("promising.index.arrivals.FETCHED", 40)
    session = Session(clock=lambda: 1 << 60, seed=1)
    stream(session, "a")
    grow(session, "a", random.Random(1), 0, 300, 0, 9)
    parts = list(session.fetch("a", 10, 211, ["k", "id"]))
    assert [part.num_rows for part in parts] == [40, 14, 40, 24, 40, 24, 19]
    assert pa.concat_tables(parts)["id"].to_pylist() == list(range(10, 211))
    assert list(session.fetch("a", 5, 5, ["k"])) == []


@pytest.mark.parametrize(
    ("first", "last", "columns", "said"),
    [
        (5, 3, ["k"], "not from 5 to 3"),
        (0, 301, ["k"], "300 arrivals"),
        (0, 3, [], "no columns"),
        (0, 3, ["x"], "no column"),
    ],
)
def test_bad_fetches(first: int, last: int, columns: list[str], said: str):
    session = Session(clock=lambda: 1 << 60, seed=1)
    stream(session, "a")
    grow(session, "a", random.Random(1), 0, 300, 0, 9)
    with pytest.raises(Exception, match=said):
        list(session.fetch("a", first, last, columns))


def test_what_is_refused():
    session = Session(clock=lambda: 1 << 60, seed=1, written=spark_sql)
    stream(session, "a")
    stream(session, "c", keys=())
    grow(session, "a", random.Random(1), 0, 300, 0, 9)

    def told(kind: type[Exception], said: str, sql: str, share: Any = 1.0) -> None:
        with pytest.raises(kind, match=said):
            session.plan_scan(sql, share=share)

    told(Unsupported, "for a SELECT", "SHOW STREAMS")
    told(BadQuestion, "above 0", "SELECT k FROM a", 0.0)
    told(BadQuestion, "above 0", "SELECT k FROM a", 1.5)
    told(NoSummary, "counted by keys", "SELECT k FROM a", 0.5)
    told(NoSummary, "counted by keys", "SELECT a.k FROM a JOIN c ON a.k = c.k", 0.5)
    told(Unsupported, "WEIGHTED", "SELECT k FROM a WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(k)", 0.5)
    ranked = "SELECT k FROM a WITH PREFERENCE DESC SUMMARY.Estimate.Count(k)"
    told(Unsupported, "a preference that reads columns ranks parts of them", f"{ranked} * price", 0.5)
    told(Unsupported, "a preference that fades ranks parts of them", f"{ranked} FADE FACTOR 0.5", 0.5)
    told(Unsupported, "order of the preference", "SELECT k FROM a WITH PREFERENCE SUMMARY.Estimate.Count(k) LIMIT 3")
    told(Unsupported, "LIMIT n BY is not offered on Spark", "SELECT k FROM a LIMIT 3 BY k")
    told(Unsupported, "approx_top_k is not offered on Spark", "SELECT approx_top_k(k, 2) FROM a")
    told(Unsupported, "cast of a float to a string", "SELECT price::TEXT FROM a")
