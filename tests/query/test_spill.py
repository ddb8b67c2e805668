"""Sorts and groups that spill give, row by row, what they give in memory; their files are gone when the answer is."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadOptions, LimitReached, Overflow, StorageFull, StorageUnavailable, TokenExpired
from promising.index.storage.disk import Disk
from promising.index.storage.spill import SpillFolder
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.query import Session
from promising.query.resume_tokens import KEPT
from promising.testing import ManualClock
from tests.query.spilling import PLENTY, spill_early
from tests.query.stores import Ticking
from tests.tiers import examples

ROWS = 400
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
    "SELECT i, approx_top_k(w, 2), approx_top_k(t, 3) AS times, approx_count_distinct(k) FROM s GROUP BY i ORDER BY 4",
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


@pytest.fixture(autouse=True, scope="module")
def tiny() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        spill_early(patch)
        yield


class Pair:
    """A session that spills, and one that does not."""

    def __init__(self, path: Path, options: StoreOptions | None = None, disk: Disk | None = None, **how: Any) -> None:
        self.path = path
        self.store = Store.open(path, options=options, disk=disk)
        self.spilling = filled(Session(store=self.store, **{"query_limits": PLENTY, **how}))
        self.plain = filled(Session())

    @property
    def files(self) -> list[Path]:
        folder = self.path / "spill"
        return list(folder.iterdir()) if folder.exists() else []

    def check_released(self) -> None:
        assert self.files == []
        assert self.store.spill.used == 0
        assert self.spilling.query_bytes == 0

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
    """Bit for bit, but for the sign of a zero that a quantile interpolates; NaN is NaN."""
    found, wanted = (re.sub(r"-0\.0\b", "0.0", repr(table.to_pydict())) for table in (one, other))
    return bool(one.schema == other.schema and found == wanted)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, cpu=Ticking(), clock=ManualClock(0))
    yield made
    made.close()


SORT, GROUP = SORTS[1], GROUPS[5]

# --- answers ---------------------------------------------------------------------------------------------------------


QUICK = (*SORTS[2:3], *SORTS[6:8], *GROUPS[1:2], *GROUPS[5:7])
MORE = [pytest.param(s, marks=pytest.mark.deep("more of the same")) for s in (*SORTS, *GROUPS) if s not in QUICK]


@pytest.mark.parametrize("sql", [*QUICK, *MORE])
def test_spilled_as_in_memory(pair: Pair, made: list[pa.Schema], sql: str):
    answer = pair.spilling.query(sql).run()
    assert same(answer.to_arrow(), pair.plain.query(sql).to_arrow())
    assert answer.progress.complete
    assert answer.progress.rows == answer.to_arrow().num_rows
    assert made
    pair.check_released()


@given(st.data())
@settings(max_examples=examples(40))
@pytest.mark.parametrize("grouped", [False, True])
def test_random_statements_spilled_as_in_memory(pair: Pair, grouped: bool, data: st.DataObject):
    columns = ("i", "f", "w", "b", "t", "k", "i % 4", "f > 0")
    keys = data.draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    functions = ("count(*)", "sum(i)", "avg(f)", "max(w)", "median(f)", "count(DISTINCT w)", "min(b)", "sum(f)")
    shown = data.draw(st.lists(st.sampled_from(functions), min_size=1, max_size=3, unique=True)) if grouped else ["id"]
    sql = f"SELECT {', '.join([*keys, *shown])} FROM s"
    sql += f" GROUP BY {', '.join(keys)}" if grouped else ""
    order = data.draw(st.lists(st.sampled_from([*keys, *shown]), min_size=0 if grouped else 1, max_size=3, unique=True))
    how = st.sampled_from(("", " DESC", " NULLS FIRST", " DESC NULLS FIRST"))
    if order:
        sql += f" ORDER BY {', '.join(term + data.draw(how) for term in order)}"
    if keys[0].isidentifier() and data.draw(st.booleans()):
        sql += f" LIMIT {data.draw(st.integers(1, 3))} BY {keys[0]}"
    if data.draw(st.booleans()):
        sql += f" LIMIT {data.draw(st.integers(1, 300))}"
    assert same(pair.spilling.query(sql).to_arrow(), pair.plain.query(sql).to_arrow()), sql
    pair.check_released()


# --- in pieces -------------------------------------------------------------------------------------------------------


PIECES = [pytest.param(s, marks=pytest.mark.deep("more of the same")) for s in (*SORTS[7:], *GROUPS[3:5])]


@pytest.mark.parametrize("sql", [SORT, GROUP, *PIECES])
def test_a_spilled_answer_is_cut_and_resumed_anywhere(opened: Pair, sql: str):
    """Rows that were sent are not sent again; those that wait for the others come with a later piece."""
    whole = opened.plain.query(sql).to_arrow()
    rows, pieces, budgets = [], 0, (0.05, 0.11, 0.3)
    answer = opened.spilling.query(sql, budget=budgets[0])
    while True:
        rows += [frame.rows for frame in answer if frame.mode == "append"]
        last = answer.last
        assert last is not None
        if last.progress.token is None:
            break
        assert last.progress.cut == "budget"
        pieces += 1
        assert pieces < 2_000
        answer = opened.spilling.resume(last.progress.token, budget=budgets[pieces % 3])
    assert pieces > 1
    if last.mode == "append":
        assert same(pa.concat_tables(rows), whole)
    assert last.progress.complete
    opened.check_released()


def cut(opened: Pair, sql: str = SORT) -> str:
    """The token of an answer that was cut when it had spilled."""
    answer = opened.spilling.query(sql)
    for _ in answer.stream():
        if opened.files:
            answer.cancel()
    assert opened.files
    assert answer.progress.token is not None
    return answer.progress.token


@pytest.mark.parametrize("sql", [SORT, GROUP])
def test_files_are_deleted_when_a_token_expires(opened: Pair, sql: str):
    token = cut(opened, sql)
    clock = opened.spilling._shelf._clock
    assert isinstance(clock, ManualClock)
    clock.tick(KEPT + 1)
    opened.spilling.tidy()
    opened.check_released()
    with pytest.raises(TokenExpired):
        opened.spilling.resume(token)


@pytest.mark.parametrize("sql", [SORT, GROUP])
def test_files_are_deleted_when_an_answer_is_abandoned(opened: Pair, sql: str):
    answer = opened.spilling.query(sql)
    frames = answer.stream()
    while not opened.files:
        next(frames)
    answer.close()
    opened.check_released()
    resumed = opened.spilling.resume(cut(opened, sql))
    resumed.close()  # before its first frame
    opened.check_released()
    answer = opened.spilling.query(sql)
    for _ in answer.stream():
        answer.cancel()
    answer.close()  # with its token
    opened.check_released()
    cut(opened, sql)
    opened.spilling.close()  # with the session
    assert opened.files == []


def test_an_answer_closed_in_the_middle_of_a_step_is_released_after_it(opened: Pair):
    answer = opened.spilling.query(SORT)
    cpu = opened.spilling._cpu
    assert isinstance(cpu, Ticking)
    held: list[int] = []

    def ticked(self: Ticking) -> int:
        if opened.files and not held:
            answer.close()
            held.append(len(opened.files))
        return plain(self)

    plain = Ticking.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ticking, "__call__", ticked)
        list(answer.stream())
    assert held[0] > 0
    opened.check_released()


# --- bad input -------------------------------------------------------------------------------------------------------


def test_an_error_in_the_middle_deletes_the_files(pair: Pair):
    with pytest.raises(Overflow):
        pair.spilling.query("SELECT id, sum(9223372036854775807 - k + k * 2) FROM s GROUP BY id ORDER BY 2").to_arrow()
    pair.check_released()


@pytest.mark.parametrize("sql", [SORT, GROUP])
@pytest.mark.parametrize("damage", ["removed", "changed", "folder removed"])
def test_files_that_vanish_end_the_query_alone(opened: Pair, sql: str, damage: str):
    token = cut(opened, sql)
    for path in opened.files:
        if damage == "changed":
            path.write_bytes(bytes(byte ^ 255 for byte in path.read_bytes()))
        else:
            path.unlink()
    if damage == "folder removed":
        (opened.path / "spill").rmdir()
    answer = opened.spilling.resume(token)
    with pytest.raises(StorageUnavailable, match="while a query needed it"):
        answer.run()
    assert answer.progress.cut == "memory"
    assert not answer.progress.complete
    opened.check_released()
    assert opened.spilling.query(sql).run().progress.complete


class Full(Disk):
    """A disk that is full for spilled rows, after so many writes."""

    def __init__(self) -> None:
        self.left = 1 << 60

    def write(self, handle: Any, parts: Any) -> None:
        if handle.path.parent.name == "spill":
            self.left -= 1
            if self.left < 0:
                raise StorageFull(f"{handle.path}: no space left")
        super().write(handle, parts)


@pytest.mark.parametrize("left", [0, 1, 7, 30])
@pytest.mark.parametrize("sql", [SORT, GROUP])
def test_a_full_disk_ends_the_query_alone(tmp_path: Path, left: int, sql: str):
    disk = Full()
    opened = Pair(tmp_path, disk=disk)
    try:
        disk.left = left
        answer = opened.spilling.query(sql)
        with pytest.raises(StorageFull):
            answer.run()
        assert answer.progress.cut == "memory"
        opened.check_released()
        more = {name: column.slice(0, 1) for name, column in columns(0).items()}
        assert opened.spilling.ingest("s", more).accepted == 1
        disk.left = 1 << 60
        assert opened.spilling.query(sql).run().progress.complete
    finally:
        opened.close()


def test_spilled_rows_leave_the_disk_to_others(tmp_path: Path):
    opened = Pair(tmp_path, options=StoreOptions(spill_bytes=5_000))
    try:
        with pytest.raises(LimitReached, match=r"storage\.spill_bytes allows 5,000"):
            opened.spilling.query(SORT).run()
        opened.check_released()
    finally:
        opened.close()


def test_files_of_an_earlier_process_are_deleted_at_the_start(tmp_path: Path):
    Store.open(tmp_path).close()
    (tmp_path / "spill").mkdir()
    (tmp_path / "spill" / "0123.arrow").write_bytes(b"left by a kill")
    with Store.open(tmp_path) as store:
        assert list((tmp_path / "spill").iterdir()) == []
        assert store.report == []


def test_spill_options_are_checked():
    with pytest.raises(BadOptions, match="spill_bytes must be a whole number"):
        StoreOptions(spill_bytes=-1)
