"""Row groups of cold files that cannot meet a condition are not read, and no row of an answer is lost."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from promising.index.storage import cold_layout
from promising.index.storage.cold import Cold
from promising.query import Session
from tests.query.stores import rows_of
from tests.query.test_region_join import DESC, HOUR, World, opened, small

__all__ = ["small"]

Place = tuple[str, int]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> set[Place]:
    """The row groups of which a column was asked for."""
    found: set[Place] = set()
    plain = Cold._chunks

    def chunks(self: Cold, known: Any, footer: Any, wanted: Any) -> Any:
        found.update((known.path, group) for group, _ in wanted)
        return plain(self, known, footer, wanted)

    monkeypatch.setattr(Cold, "_chunks", chunks)
    return found


def filled(world: World, parts: int = 8, n: int = 256) -> int:
    """Streams whose `n` rises with arrival, as the time does; returns the row groups of a."""
    for part in range(parts):
        for name in "ab":
            rng = np.random.default_rng([part, ord(name)])
            columns = {
                "id": np.arange(part * n, (part + 1) * n),
                "k": rng.integers(0, 50, n),
                "ts": np.sort(rng.integers(part * 20_000_000, (part + 1) * 20_000_000, n)),
                "price": rng.random(n),
                "n": part * n + rng.permutation(n),
            }
            world.ingest(name, columns)
    world.cool()
    return groups(world.session)


def bounds_of(world: World) -> dict[Place, tuple[int, int]]:
    """The least and the greatest `n` of each row group, as read from the files."""
    found = {}
    for path in map(str, world.path.glob("streams/*/cold/*.parquet")):
        with pq.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                values = file.read_row_group(group, ["n"])["n"].to_numpy()
                found[path, group] = int(values.min()), int(values.max())
    return found


def groups(session: Session, name: str = "a") -> int:
    with session.stream(name).reading() as log:
        assert isinstance(log.reader, Cold)
        return sum(len(log.reader.file(run)[1].rows) for run in log.runs)


def test_a_selective_range_over_a_clustered_column_reads_less_than_a_tenth(
    tmp_path: Path, small: int, read: set[Place]
):
    with opened(tmp_path, chunk=small) as world:
        everything = filled(world, 14, 192)
        bounds = bounds_of(world)
        wanted = {
            "a.n BETWEEN 700 AND 720": range(700, 721),
            "a.n >= 700 AND a.n < 721": range(700, 721),
            "a.n = 702": (702,),
            "a.n IN (700, 702)": (700, 702),
        }
        columns = [world.columns("a")[name].tolist() for name in ("id", "price", "n")]
        for condition, numbers in wanted.items():
            read.clear()
            expected = sorted((i, price) for i, price, n in zip(*columns, strict=True) if n in numbers)
            assert sorted(rows_of(world.session.query(f"SELECT a.id, a.price FROM a WHERE {condition}"))) == expected
            possible = {place for place, (low, high) in bounds.items() if any(low <= n <= high for n in numbers)}
            assert read and read <= possible, condition
            assert len(read) < everything / 10, condition


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.deep("many queries")) for n in (1, 2, 3))])
def test_nothing_of_an_answer_is_pruned(seed: int, tmp_path: Path, small: int):
    rng = random.Random(seed)
    with opened(tmp_path, chunk=small) as world:
        filled(world, 6, 128)
        a, b = (
            list(zip(*(world.columns(s)[c].tolist() for c in ("id", "k", "n", "price")), strict=True)) for s in "ab"
        )
        for _ in range(3):
            low, high = sorted(rng.randrange(-10, 800) for _ in range(2))
            where = f"a.n > {low} AND {high} >= a.n"
            expected = {(i,) for i, _, n, p in a if low < n <= high and p > 0.5}
            sql = f"SELECT a.id FROM a WHERE {where} AND a.price > 0.5"
            assert set(rows_of(world.session.query(sql))) == expected
            count = f"SELECT count(*), sum(a.n) FROM a WHERE {where} AND a.k < 20"
            inside = [n for _, k, n, _ in a if low < n <= high and k < 20]
            assert rows_of(world.session.query(count)) == [(len(inside), sum(inside) if inside else None)]
            pairs = {(x[0], y[0]) for x in a if low < x[2] <= high for y in b if y[1] == x[1] and y[2] < 500}
            join = f"SELECT a.id, b.id FROM a, b WHERE a.k = b.k AND {where} AND b.n < 500"
            for tail, budget in (("", None), (DESC, None), (DESC, HOUR)):
                found = rows_of(world.session.query(join + tail, budget=budget))
                assert len(found) == len(set(found)) and set(found) == pairs


@pytest.mark.parametrize("known", [True, False])
def test_nan_is_above_every_number_and_nulls_are_nowhere(
    known: bool, tmp_path: Path, small: int, read: set[Place], monkeypatch: pytest.MonkeyPatch
):
    """The column rises with arrival, with NaN here and there; files of earlier releases do not say where."""
    if not known:
        monkeypatch.setattr(cold_layout, "_nans", lambda arrays, starts: {})
    n, parts = 64, 12
    with opened(tmp_path, chunk=small) as world:
        for part in range(parts):
            price = np.arange(part * n, (part + 1) * n) / 10
            price[5] = np.nan if part % 3 == 0 else price[5]
            columns: dict[str, Any] = {
                "id": np.arange(part * n, (part + 1) * n),
                "k": np.arange(n) % 7,
                "ts": part * 20_000_000 + np.arange(n) * 100_000,
                "price": price,
                "n": np.zeros(n, np.int64),
            }
            world.ingest("a", columns)
            world.session.ingest("b", {**columns, "price": [None] * n})
        world.cool()
        everything = groups(world.session)
        a = list(zip(*(world.columns("a")[c].tolist() for c in ("id", "price")), strict=True))
        top = 10.0
        for condition, true in {
            f"a.price < {top}": lambda p: p < top,
            f"a.price BETWEEN 3.5 AND {top}": lambda p: 3.5 <= p <= top,
            "a.price > 60.0": lambda p: not p <= 60.0,
            "a.price > 60.0 AND a.price <= 62.5": lambda p: 60.0 < p <= 62.5,
        }.items():
            read.clear()
            found = {
                i for (i,) in rows_of(world.session.query(f"SELECT a.id FROM a, b WHERE a.id = b.id AND {condition}"))
            }
            assert found == {i for i, p in a if true(p)}, condition
        read.clear()
        sql = "SELECT a.id, a.n FROM a WHERE a.price < 5.0 AND a.k < 9"
        assert {i for i, _ in rows_of(world.session.query(sql))} == {i for i, p in a if p < 5}
        assert len(read) < everything / 3
        assert not rows_of(world.session.query("SELECT b.id FROM b WHERE b.price < 5.0"))


def test_explain_analyze_counts_what_was_pruned_by_reason(tmp_path: Path, small: int):
    with opened(tmp_path, chunk=small) as world:
        filled(world, 6, 128)
        told = str(world.session.execute("EXPLAIN ANALYZE SELECT a.id FROM a, b WHERE a.k = b.k AND a.n < 100"))
        assert re.search(r"cold tuples of a: pruned by bounds of n \d+ of \d+", told), told
        desc = DESC + " WINDOW 90 SECONDS BUDGET 1 HOUR"
        told = str(world.session.execute(f"EXPLAIN ANALYZE SELECT a.id FROM a, b WHERE a.k = b.k AND a.n < 300{desc}"))
        assert re.search(r"cold tuples of a: \d+ regions of \d+ tuples to read, .*pruned by window \d+ of \d+", told), (
            told
        )
        assert re.search(r"pruned by bounds of n \d+ of \d+", told), told
