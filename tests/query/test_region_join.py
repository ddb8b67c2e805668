"""A join by promising regions of cold tuples: the same rows as by brute force, whatever regions know of their keys."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import promising.index.log
from promising.errors import DataDamaged
from promising.index.cold_regions import ColdRegions, Regions
from promising.index.storage import cooling
from promising.index.storage.key_counts import KeyCounts
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query import Session, planner
from promising.query.operators.region_join import RegionJoin
from tests.query.stores import MS, Columns, Row, Stores, Ticking, pieces, rows_of, tuples

DESC = " WITH PREFERENCE DESC SUMMARY.Estimate.Count(a.k), SUMMARY.Estimate.Count(b.k)"
JOIN = "SELECT a.id, b.id FROM a, b WHERE a.k = b.k"
PRICED = f"{JOIN} AND a.price > b.price"
HOUR = 3600.0


class World(Stores):
    """Streams a and b whose first tuples are in small cold files of small row groups."""

    path: Path

    def cool(self) -> None:
        assert self.session.store is not None
        self.session.store.checkpoint()

    def grow(self, part: int, n: int = 96, keys: int = 60, strings: bool = False) -> None:
        for number, name in enumerate("ab"):
            columns = tuples(n, keys, seed=10 * part + number + 1, start=20.0 * part, seconds=20.0, strings=strings)
            if not strings:
                columns["k"] = columns["k"] * (2 if name == "b" else 1)
            self.ingest(name, columns)


@contextmanager
def opened(
    path: Path, *, chunk: int, strings: bool = False, made: bool = True, cache: int = 1 << 26
) -> Iterator[World]:
    options = StoreOptions(hot_tuples=0, run_tuples=2 * chunk, sync="relaxed", cache_bytes=cache)
    store = Store.open(path, seed=7, clock=lambda: 1 << 60, options=options)
    cpu = Ticking()
    with Session(clock=lambda: 1 << 60, store=store, cpu=cpu, seed=5) as session:
        world = World(session, cpu)
        world.path = path
        for name in "ab" if made else "":
            kind = "VARCHAR" if strings else "BIGINT"
            session.execute(
                f"CREATE STREAM {name} (id BIGINT, k {kind}, ts TIMESTAMP, price DOUBLE, n BIGINT) TIMESTAMP BY ts"
            )
            session.execute(f"CREATE SUMMARY by_{name} ON {name} (k) WITH GRANULARITY 4 SECONDS AND COLLAPSE (2, 4)")
        yield world


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(promising.index.log, "CHUNK", 64)
    monkeypatch.setattr("promising.index.storage.cold_layout.SMALL", 16)
    return 64


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[RegionJoin]:
    """The joins by region that are planned."""
    made: list[RegionJoin] = []

    def plan(*how: Any) -> RegionJoin:
        made.append(RegionJoin(*how))
        return made[-1]

    monkeypatch.setattr(planner, "RegionJoin", plan)
    return made


def truth(world: World, window: int | None, priced: bool) -> set[Row]:
    return set(world.pairs(window, (lambda x, y: x[3] > y[3]) if priced else None))


def asked(world: World, window: int | None, priced: bool) -> str:
    return (PRICED if priced else JOIN) + DESC + (f" WINDOW {window} SECONDS" if window else "")


def check(world: World, rng: random.Random) -> None:
    """At once, and in pieces under random budgets."""
    window, priced = rng.choice([None, None, 90]), rng.random() < 0.5
    sql, expected = asked(world, window, priced), truth(world, window, priced)
    world.cpu.step = rng.choice([2, 5, 10]) * MS
    whole = rows_of(world.session.query(sql, budget=HOUR))
    parts, progress = pieces(world, sql, lambda n: rng.choice((0.05, 0.1, 0.4)) if n < 8 else HOUR)
    flat = [row for part in parts for row in part]
    assert len(flat) == len(whole) == len(expected)
    assert set(flat) == set(whole) == expected
    for each in progress:
        assert each.total.lower <= len(expected) <= each.total.upper
        assert each.coverage.lower <= 1 <= each.coverage.upper or not each.complete
    assert progress[-1].complete and progress[-1].rank == progress[-1].entries > 0


@pytest.mark.parametrize("strings", [False, pytest.param(True, marks=pytest.mark.deep("many small reads"))])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.deep("many small reads")) for n in range(1, 6))]
)
def test_it_finds_every_pair_once(seed: int, strings: bool, tmp_path: Path, small: int, joined: list[RegionJoin]):
    rng = random.Random(f"{seed} {strings}")
    keys = rng.choice((20, 60, 400))
    with opened(tmp_path, chunk=small, strings=strings, cache=rng.choice((0, 1 << 14, 1 << 26))) as world:
        for part in range(6):
            world.grow(part, keys=keys, strings=strings)
            if part in (3, 5):
                world.cool()
        check(world, rng)
        assert any(len(join.sides[0].regions) and len(join.sides[1].regions) for join in joined)
        world.grow(6, 30, keys, strings)
        check(world, rng)
    with opened(tmp_path, chunk=small, made=False) as again:
        again.held = world.held
        check(again, rng)


def noise(rng: np.random.Generator) -> Callable[[Any, int, Any], Regions]:
    plain = ColdRegions._regions

    def regions(self: ColdRegions, number: int, file: Any) -> Regions:
        found = plain(self, number, file)
        counts = found.counts
        noisy = rng.integers(1, 1 << 20, len(counts.tuples)).astype(np.float32)
        found.counts = KeyCounts(counts.starts, counts.lg, counts.parts, noisy)
        return found

    return regions


def test_noise_over_the_counts_changes_the_order_and_no_row(
    tmp_path: Path, small: int, joined: list[RegionJoin], monkeypatch: pytest.MonkeyPatch
):
    with opened(tmp_path, chunk=small) as world:
        for part in range(5):
            world.grow(part, 150)
        world.cool()
        sql = asked(world, None, False)
        whole = rows_of(world.session.query(sql, budget=HOUR))
        monkeypatch.setattr(ColdRegions, "_regions", noise(np.random.default_rng(1)))
        orders = [rows_of(world.session.query(sql, budget=HOUR)) for _ in range(3)]
        expected = truth(world, None, False)
        for other in orders:
            assert Counter(other) == Counter(expected)
        assert any(other != whole for other in orders)


def test_the_first_regions_bring_the_most(tmp_path: Path, small: int):
    """A few frequent keys make most of the output; after a quarter of the tuples it is there."""
    with opened(tmp_path, chunk=small) as world:
        for part in range(6):
            world.grow(part, 320, 200)
        world.cool()
        sql = asked(world, None, False)
        pairs, total = 0, len(truth(world, None, False))
        for frame in world.session.query(sql, budget=HOUR):
            if frame.progress.read > sum(len(c["k"]) for side in world.held.values() for c in side) / 4:
                break
            pairs = frame.progress.rows
        assert pairs > total / 2


def disjoint(columns: Columns, first: int) -> Columns:
    return {**columns, "k": columns["k"] % 4 + first}


def test_regions_without_a_common_key_are_not_read(tmp_path: Path, small: int, joined: list[RegionJoin]):
    with opened(tmp_path, chunk=small) as world:
        for part in range(4):
            for number, name in enumerate("ab"):
                columns = tuples(128, 40, seed=part * 2 + number + 1, start=20.0 * part, seconds=20.0)
                columns["k"] += 100
                world.ingest(name, disjoint(columns, 0 if name == "a" else 1000) if part < 3 else columns)
        world.cool()
        sql = asked(world, None, False)
        answer = world.session.query(sql, budget=HOUR)
        assert Counter(rows_of(answer)) == Counter(truth(world, None, False))
        pruned = [side.regions.pruned.get("filter", (0, 0)) for side in joined[-1].sides]
        assert all(regions > 0 for regions, _ in pruned)
        everything = sum(len(c["k"]) for side in world.held.values() for c in side)
        assert answer.progress.read == everything - sum(tuples_ for _, tuples_ in pruned)


def test_a_damaged_region_is_reported_and_what_was_found_before_is_true(
    tmp_path: Path, small: int, joined: list[RegionJoin]
):
    with opened(tmp_path, chunk=small) as world:
        for part in range(4):
            world.grow(part)
        world.cool()
    file = sorted(tmp_path.glob("streams/*/cold/*.parquet"))[1]
    data = bytearray(file.read_bytes())
    data[40] ^= 4
    file.write_bytes(bytes(data))
    with opened(tmp_path, chunk=small, made=False) as again:
        again.held = world.held
        found: list[Row] = []
        with pytest.raises(DataDamaged, match=r"is damaged: column .* fails its checksum"):
            for frame in again.session.query(asked(again, None, False), budget=HOUR):
                found += list(zip(*(c.to_pylist() for c in frame.rows.columns), strict=True))
        assert len(found) == len(set(found))
        assert set(found) < truth(again, None, False)
        assert joined


def test_files_without_counts_are_joined_too(
    tmp_path: Path, small: int, joined: list[RegionJoin], monkeypatch: pytest.MonkeyPatch
):
    """As those of earlier releases; here of the first half."""
    plain = cooling.cells_of

    def uncounted(*how: Any) -> Any:
        return *plain(*how)[:3], None

    with opened(tmp_path, chunk=small) as world:
        with monkeypatch.context() as earlier:
            earlier.setattr(cooling, "cells_of", uncounted)
            for part in range(3):
                world.grow(part)
            world.cool()
        for part in range(3, 6):
            world.grow(part)
        world.cool()
        check(world, random.Random(3))
        known = np.concatenate([side.regions.known for side in joined[-1].sides])
        assert known.any() and not known.all()


def test_it_is_taken_for_a_budget_and_most_tuples_cold_alone(tmp_path: Path, small: int, joined: list[RegionJoin]):
    with opened(tmp_path, chunk=small) as world:
        for part in range(6):
            world.grow(part)
        sql = asked(world, None, False)
        rows_of(world.session.query(sql, budget=HOUR))
        assert not joined, "everything is in memory"
        world.cool()
        by_key = rows_of(world.session.query(sql))
        for tail in (" LIMIT 5", " LIMIT 1 BY a.k", " FADE FACTOR 0.5"):
            rows_of(world.session.query(sql + tail, budget=HOUR))
        one = sql.replace(", SUMMARY.Estimate.Count(b.k)", "")
        rows_of(world.session.query(one, budget=HOUR))
        assert not joined
        assert Counter(rows_of(world.session.query(sql, budget=HOUR))) == Counter(by_key)
        assert joined
        itself = sql.replace("a, b", "a, a b")
        assert Counter(rows_of(world.session.query(itself, budget=HOUR))) == Counter(
            rows_of(world.session.query(itself))
        )
        assert len(joined) == 2
        told = str(world.session.execute(f"EXPLAIN ANALYZE {sql} BUDGET 1 HOUR"))
        assert "join on a.k = b.k: regions of cold tuples, most output a byte first" in told
        assert re.search(r"cold tuples of b: \d+ regions of \d+ tuples to read", told)
