"""Sorts and groups that spill give, row by row, what they give in memory; their files are gone when the answer is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promising.errors import LimitReached, StorageFull, StorageUnavailable, TokenExpired
from promising.index.storage.disk import Disk
from promising.index.storage.spill import SpillFolder
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query import Session, merge_sort, query_memory, result_sinks, spill, spilled_groups
from promising.query.query_memory import QueryLimits
from promising.query.resume_tokens import KEPT
from tests.query.stores import MS, Ticking
from tests.tiers import examples

PLENTY = QueryLimits(1 << 40, 1 << 40, 1 << 40)
ROWS = 3_000
SORTS = (
    "SELECT id, i, f FROM s ORDER BY i",
    "SELECT id, i FROM s ORDER BY i DESC, f",
    "SELECT id, w FROM s ORDER BY w NULLS FIRST, i DESC NULLS LAST",
    "SELECT id, f FROM s ORDER BY f DESC NULLS FIRST, b",
    "SELECT id FROM s ORDER BY i LIMIT 7",
    "SELECT id, w FROM s ORDER BY f LIMIT 1500",
    "SELECT id, i FROM s ORDER BY f LIMIT 2 BY i",
    "SELECT id, i, w FROM s ORDER BY b, t DESC LIMIT 3 BY i, w LIMIT 40",
    "SELECT x.id, y.id, x.w FROM s x, s y WHERE x.k = y.k ORDER BY x.f, y.i DESC",
)
GROUPS = (
    "SELECT i, count(*), sum(k), avg(f), min(w), max(f) FROM s GROUP BY i",
    "SELECT w, i, count(f), median(k), count(DISTINCT w), max(w), min(t) FROM s GROUP BY w, i",
    "SELECT f, b, sum(f), count(DISTINCT i), quantile(f, 0.3) FROM s GROUP BY f, b",
    "SELECT t, sum(f) AS total FROM s GROUP BY t HAVING count(*) > 1 ORDER BY total DESC NULLS LAST LIMIT 20",
    "SELECT id, min(f) FROM s GROUP BY id ORDER BY 2",
    "SELECT id, k, avg(i) FROM s GROUP BY id, k ORDER BY 3 DESC LIMIT 2 BY k LIMIT 70",
    "SELECT id, w FROM s GROUP BY id, w LIMIT 9",
    "SELECT x.id, count(*), sum(y.f) FROM s x, s y WHERE x.k = y.k GROUP BY x.id",
)


def columns(seed: int, rows: int = ROWS) -> dict[str, pa.Array]:
    """Few values each, so that many are equal; with nulls, NaN and both zeros."""
    rng = np.random.default_rng(seed)

    def some(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(rng.integers(0, len(values), rows)))

    return {
        "ts": pa.array(np.arange(rows)),
        "id": pa.array(np.arange(rows)),
        "k": pa.array(rng.integers(0, rows // 3, rows)),
        "i": some([None, *range(-9, 40)], pa.int64()),
        "f": some([None, float("nan"), 0.0, -0.0, float("inf"), *rng.normal(size=60).tolist()], pa.float64()),
        "w": some([None, "", "a", "ä", *(f"word {n}" for n in range(50))], pa.string()),
        "b": some([None, True, False], pa.bool_()),
        "t": some([None, *rng.integers(-(10**12), 10**12, 200).tolist()], pa.timestamp("us")),
    }


def filled(made: Session, seed: int = 0, rows: int = ROWS) -> Session:
    types = "ts TIMESTAMP, id BIGINT, k BIGINT, i BIGINT, f DOUBLE, w VARCHAR, b BOOLEAN, t TIMESTAMP"
    made.execute(f"CREATE STREAM s ({types}) TIMESTAMP BY ts")
    assert made.ingest("s", columns(seed, rows)).accepted == rows
    return made


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything spills at once, in runs, batches and files of a few rows."""
    monkeypatch.setattr(query_memory, "OWN", 0.0)
    monkeypatch.setattr(result_sinks, "WORTH", 1)
    for module, name, value in (
        (result_sinks, "RUN", 64),
        (merge_sort, "RUN", 64),
        (merge_sort, "FAN", 3),
        (spill, "BATCH_ROWS", 10),
        (spilled_groups, "WAITING", 2_000),
        (spilled_groups, "FULL", 9_000),
    ):
        monkeypatch.setattr(module, name, value)


class Pair:
    """A session that spills, and one that does not."""

    def __init__(self, path: Path, rows: int = ROWS, **given: Any) -> None:
        self.path = path
        self.store = Store.open(path)
        self.spilling = filled(Session(store=self.store, query_limits=PLENTY, **given), rows=rows)
        self.plain = filled(Session(), rows=rows)

    def files(self) -> int:
        folder = self.path / "spill"
        return len(list(folder.iterdir())) if folder.exists() else 0

    def close(self) -> None:
        self.plain.close()
        self.spilling.close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    made = Pair(tmp_path_factory.mktemp("store"))
    yield made
    made.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[pa.Schema]:
    """The schema of each file that is created."""
    found: list[pa.Schema] = []
    create = SpillFolder.create

    def counted(self: SpillFolder, schema: pa.Schema) -> Any:
        found.append(schema)
        return create(self, schema)

    monkeypatch.setattr(SpillFolder, "create", counted)
    return found


def same(one: pa.Table, other: pa.Table) -> bool:
    """Bit for bit, and NaN is NaN."""
    return (
        one.schema == other.schema
        and one.num_rows == other.num_rows
        and repr(one.to_pylist()) == repr(other.to_pylist())
    )


@pytest.mark.parametrize("sql", [*SORTS, *GROUPS])
def test_spilled_as_in_memory(pair: Pair, made: list[pa.Schema], sql: str):
    answer = pair.spilling.query(sql).run()
    assert same(answer.to_arrow(), pair.plain.query(sql).to_arrow())
    assert answer.progress.complete
    assert answer.progress.rows == answer.to_arrow().num_rows
    assert made
    assert pair.files() == 0
    assert pair.spilling.query_bytes == 0
    assert pair.store.spill.used == 0
