"""Cold tuples come back as they arrived, from as few bytes as can be; damage is found and named."""

import random
import struct
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from promising.errors import BadOptions, DataDamaged, StorageFull, StorageUnavailable, UnknownName
from promising.index.schema import Column
from promising.index.storage import cold_file
from promising.index.storage.checksums import crc32c
from promising.index.storage.cold import Cold
from promising.index.storage.cold_file import Footer
from promising.index.storage.cold_layout import LARGE, MOST_GROUPS, SMALL, group_starts, pack
from promising.index.storage.column_chunks import ChunkBytes, decoded
from promising.index.storage.disk import Disk
from tests.tiers import examples

TYPES = {"at": "timestamp", "user": "int", "name": "string", "amount": "float", "seen": "bool", "n": "int"}
ODD_NAN = struct.unpack("<d", bytes.fromhex("010000000000f4ff"))[0]


class World:
    """A run of tuples of every type, some null, and where each belongs."""

    def __init__(self, rows: int, *, zones: int = 3, buckets: int = 20, seed: int = 1) -> None:
        draw = np.random.default_rng(seed)
        user = draw.zipf(1.5, rows) % 500
        nulls = draw.random((4, rows)) < 0.1
        amount = draw.normal(size=rows)
        amount[::7] = [0.0, -0.0, np.inf, -np.inf, np.nan][seed % 5]
        amount[1::9] = ODD_NAN
        text = [None if null else f"\0ü{n}" * (n % 4) for n, null in zip(user.tolist(), nulls[0], strict=True)]
        self.rows = rows
        self.columns = {
            "at": Column(np.sort(draw.integers(0, 10**12, rows)) + 1_700_000_000_000_000, None, None),
            "user": Column(user.astype(np.int64), None, None),
            "name": Column(None, pa.array(text, pa.large_string()), nulls[0] if nulls[0].any() else None),
            "amount": Column(amount, None, nulls[1] if nulls[1].any() else None),
            "seen": Column((draw.random(rows) < 0.5).astype(np.uint8), None, nulls[2] if nulls[2].any() else None),
            "n": Column(draw.integers(-(1 << 63), 1 << 63, rows), None, nulls[3] if nulls[3].any() else None),
        }
        self.zone = np.sort(draw.integers(-zones, zones, rows)) * 60
        self.bucket = user.astype(np.int64) * 7919 % buckets

    def write(self, cold: Cold, run: int = 1, key: str = "user") -> Any:
        return cold.write(run, TYPES, self.columns, self.zone, self.bucket, key)


def bits(column: Column) -> list[Any]:
    """Values to compare, bit by bit; None for a null."""
    if column.values is None:
        return list(column.text.to_pylist())
    words = column.values.view(np.int64) if column.values.dtype == np.float64 else column.values
    nulls = np.zeros(len(words), bool) if column.nulls is None else column.nulls
    return [None if null else word for word, null in zip(words.tolist(), nulls, strict=True)]


def picked(column: Column, asked: NDArray[np.int32]) -> list[Any]:
    """As `bits`, of the rows asked for."""
    found = bits(column)
    return [found[row] for row in asked.tolist()]


def assert_form(column: Column, kind: str) -> None:
    """As the log has it."""
    if kind == "string":
        assert column.values is None
        assert column.text.type == pa.large_string()
        assert (column.nulls is None) == (column.text.null_count == 0)
    else:
        assert column.text is None
        assert column.values is not None
        assert column.values.dtype == {"float": np.float64, "bool": np.uint8}.get(kind, np.int64)
        assert column.nulls is None or not column.values[column.nulls].any()
    assert column.nulls is None or (column.nulls.dtype == np.bool_ and column.nulls.any())


@pytest.fixture(scope="module")
def world():
    return World(20_000)


@pytest.fixture
def cold(tmp_path):
    return Cold(Disk(), tmp_path / "cold")


def offsets(rows: int, many: int, seed: int = 3) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, rows, many).astype(np.int32)


# --- what comes back -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["user", "name", "n", "at"])
def test_any_tuples_of_any_column_come_back_in_the_order_asked(cold, world, key):
    entry = world.write(cold, key=key)
    assert entry["groups"] > 6
    for opened in range(2):
        for name, kind in TYPES.items():
            for asked in (offsets(world.rows, 3000), np.arange(50, 40, -1, dtype=np.int32), np.zeros(0, np.int32)):
                found = cold.column(1, name, asked)
                assert bits(found) == picked(world.columns[name], asked)
                assert_form(found, kind)
        cold.open(1, entry)
        assert opened or cold.cached_bytes == 0


def test_a_whole_run_comes_back_in_order_of_arrival(cold, world):
    entry = world.write(cold)
    found = cold.read_whole(1)
    assert cold.bytes_read == entry["bytes"]
    assert list(found.columns) == list(TYPES)
    for name, kind in TYPES.items():
        assert bits(found.columns[name]) == bits(world.columns[name])
        assert_form(found.columns[name], kind)
    assert found.zone.tolist() == world.zone.tolist()
    assert found.bucket.tolist() == world.bucket.tolist()


kinds = {
    "int": st.integers(-(1 << 63), (1 << 63) - 1),
    "float": st.floats(),
    "string": st.text(max_size=5),
    "bool": st.integers(0, 1),
    "timestamp": st.integers(-(1 << 61), 1 << 61),
}


@st.composite
def runs(draw):
    rows = draw(st.integers(1, 40))
    names = draw(st.lists(st.text(max_size=3) | st.sampled_from(["#zone", "#row", "##", "a", "a.b"]), unique=True))
    types = {"#key": draw(st.sampled_from(["int", "string"]))}
    types |= {name: draw(st.sampled_from(list(kinds))) for name in names}
    columns = {}
    for name, kind in types.items():
        values = draw(st.lists(kinds[kind], min_size=rows, max_size=rows))
        drawn = np.array(draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
        nulls = drawn if drawn.any() and name != "#key" else None
        if kind == "string":
            text = [None if nulls is not None and nulls[i] else value for i, value in enumerate(values)]
            columns[name] = Column(None, pa.array(text, pa.large_string()), nulls)
        else:
            dtype = {"float": np.float64, "bool": np.uint8}.get(kind, np.int64)
            columns[name] = Column(np.array(values, dtype), None, nulls)
    small = st.lists(st.integers(-2, 2), min_size=rows, max_size=rows).map(lambda given: np.array(given, np.int64))
    asked = st.lists(st.integers(0, rows - 1)).map(lambda given: np.array(given, np.int32))
    return types, columns, draw(small), draw(small), draw(asked)


@pytest.mark.deep("many random runs of cold tuples")
@settings(max_examples=examples(60))
@given(runs())
def test_any_run_comes_back(run):
    types, columns, zone, bucket, asked = run
    system = fsspec.filesystem("memory")
    cold = Cold(Disk(), "memory://any")
    cold.write(7, types, columns, zone, bucket, "#key")
    whole = cold.read_whole(7)
    for name, kind in types.items():
        found = cold.column(7, name, asked)
        assert bits(found) == picked(columns[name], asked)
        assert_form(found, kind)
        assert bits(whole.columns[name]) == bits(columns[name])
    assert (whole.zone == zone).all()
    assert (whole.bucket == bucket).all()
    first = system.cat_file("/any/0000000000000007.parquet")
    cold.write(7, types, columns, zone, bucket, "#key")
    assert system.cat_file("/any/0000000000000007.parquet") == first


def test_values_under_nulls_do_not_show_in_the_file(world):
    nulls = world.columns["n"].nulls
    assert nulls is not None
    garbage = world.columns | {"n": Column(np.where(nulls, 99, world.columns["n"].values), None, nulls)}
    for key in ("user", "n"):
        one, _ = pack(TYPES, world.columns, world.zone, world.bucket, key)
        other, _ = pack(TYPES, garbage, world.zone, world.bucket, key)
        assert one.equals(other)


def test_floats_that_repeat_keep_their_bits(cold, tmp_path):
    words = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF4000000000001, 0, 1 << 63], np.uint64)
    values = np.tile(words, 200).view(np.float64)
    columns = {"k": Column(np.arange(1000), None, None), "x": Column(values, None, None)}
    cold.write(1, {"k": "int", "x": "float"}, columns, np.zeros(1000, np.int64), np.zeros(1000, np.int64), "k")
    assert bits(cold.read_whole(1).columns["x"]) == bits(columns["x"])
    meta = pq.read_metadata(tmp_path / "cold" / "0000000000000001.parquet")
    assert not meta.row_group(0).column(1).has_dictionary_page


def test_text_that_is_a_slice_of_more_comes_back(cold):
    text = pa.array(["before", "a", None, "c", "after"], pa.large_string()).slice(1, 3)
    columns = {"k": Column(np.arange(3), None, None), "s": Column(None, text, np.array([False, True, False]))}
    cold.write(1, {"k": "int", "s": "string"}, columns, np.zeros(3, np.int64), np.zeros(3, np.int64), "k")
    assert bits(cold.column(1, "s", np.array([2, 1, 0], np.int32))) == ["c", None, "a"]


def test_what_cannot_be_asked(cold, world):
    world.write(cold)
    for beyond in (-1, world.rows):
        with pytest.raises(IndexError, match="20000 tuples"):
            cold.column(1, "n", np.array([0, beyond], np.int32))
    with pytest.raises(KeyError):
        cold.column(1, "nobody", np.zeros(1, np.int32))
    with pytest.raises(KeyError):
        cold.column(1, "#row", np.zeros(1, np.int32))  # the file's own, not the stream's
    with pytest.raises(DataDamaged, match=r"0000000000000002\.parquet is not in the manifest"):
        cold.column(2, "n", np.zeros(1, np.int32))
    nothing = np.zeros(0, np.int64)
    with pytest.raises(ValueError, match="at least one tuple"):
        cold.write(3, {"k": "int"}, {"k": Column(nothing, None, None)}, nothing, nothing, "k")


# --- the layout ----------------------------------------------------------------------------------------------------


def test_the_file_is_sorted_and_others_can_read_it(cold, tmp_path, world):
    world.write(cold)
    path = tmp_path / "cold" / "0000000000000001.parquet"
    table = pq.read_table(path)
    assert table.schema.names == [*TYPES, "#zone", "#bucket", "#row"]
    assert [str(kind) for kind in table.schema.types[-3:]] == ["int64", "int32", "int32"]
    assert table.schema.field("at").type == pa.timestamp("us")
    rows = table["#row"].to_numpy()
    users = world.columns["user"].values
    times = Counter(zip(world.zone.tolist(), users.tolist(), strict=True))
    heat = np.array([times[pair].bit_length() for pair in zip(world.zone.tolist(), users.tolist(), strict=True)])
    assert rows.tolist() == np.lexsort((users, world.bucket, -heat, world.zone)).tolist()
    for name in TYPES:
        assert table[name].null_count == (0 if world.columns[name].nulls is None else world.columns[name].nulls.sum())
    with duckdb.connect() as db:
        asked = db.sql(f'SELECT "#row", name, seen, n, epoch_us("at") FROM \'{path}\' WHERE "user" = 3').fetchall()
    assert len(asked) == int((world.columns["user"].values == 3).sum()) > 0
    expected = {name: bits(world.columns[name]) for name in ("name", "seen", "n", "at")}
    for row, *values in asked:
        assert values == [expected[name][row] for name in expected]


def test_a_string_key_sorts_as_its_bytes(world):
    data, _ = pack(TYPES, world.columns, np.zeros(world.rows, np.int64), np.zeros(world.rows, np.int64), "name")
    names = [name.encode() for name in pq.read_table(pa.BufferReader(data))["name"].to_pylist() if name is not None]
    times = Counter(names)
    assert names == sorted(names, key=lambda name: (-times[name].bit_length(), name))


def test_every_byte_is_under_a_checksum(world):
    data, entry = pack(TYPES, world.columns, world.zone, world.bucket, "user")
    footer = Footer(data.to_pybytes()[-entry["footer"] :])
    at = 4  # PAR1
    for group in range(entry["groups"]):
        for start, length in footer.ranges(group):
            assert start == at
            at += length
    assert at + entry["footer"] == entry["bytes"] == data.size


def test_the_entry_says_what_the_file_covers(world):
    _, entry = pack(TYPES, world.columns, world.zone, world.bucket, "user")
    times = world.columns["at"].values
    assert times is not None
    assert entry["rows"] == world.rows
    assert entry["times"] == {"at": [times[0], times[-1]]}
    assert entry["zones"] == [world.zone[0], world.zone[-1]]


def sizes(zone: list[int], bucket: list[int], heat: list[int] | None = None) -> list[int]:
    starts = group_starts(np.array(zone, np.int64), np.array(bucket, np.int64), np.array(heat or bucket, np.int8))
    return [int(size) for size in np.diff([*starts, len(zone)])]


def test_small_cells_of_a_zone_share_a_group():
    assert sizes([0] * 10, list(range(10))) == [10]
    assert sizes([0] * 5 + [1] * 5, [0] * 5 + [0] * 5) == [5, 5]  # never over zones
    half, more = SMALL // 2, SMALL // 2 + 1
    assert sizes([0] * SMALL, [0] * half + [1] * half) == [SMALL]
    assert sizes([0] * (half + more), [0] * half + [1] * more) == [half, more]
    assert sizes([0] * (SMALL * 2 + 2), [0] + [1] * (SMALL * 2) + [2]) == [1, SMALL * 2, 1]


def test_keys_of_another_heat_are_another_cell():
    half, more = SMALL // 2, SMALL // 2 + 1
    assert sizes([0] * (half + more), [0] * (half + more), [3] * half + [2] * more) == [half, more]


def test_a_large_cell_is_several_groups():
    assert sizes([0] * (LARGE + 1), [0] * (LARGE + 1)) == [LARGE, 1]
    assert sizes([0] * (2 * LARGE), [0] * (2 * LARGE)) == [LARGE, LARGE]
    assert sizes([0] * (2 * LARGE + 6), [0] * (2 * LARGE + 3) + [1] * 3) == [LARGE, LARGE, 6]


def test_with_too_many_zones_groups_reach_over_them(cold):
    rows = MOST_GROUPS * 4
    assert len(sizes(list(range(MOST_GROUPS)), [0] * MOST_GROUPS)) == MOST_GROUPS
    zone = np.arange(rows, dtype=np.int64)
    columns = {"k": Column(zone * 3, None, None)}
    entry = cold.write(1, {"k": "int"}, columns, zone, zone % 5, "k")
    assert entry["groups"] == 2
    assert bits(cold.column(1, "k", offsets(rows, 100))) == (offsets(rows, 100).astype(np.int64) * 3).tolist()


def test_more_than_256_groups_are_told_apart(cold):
    rows = 600
    zone = np.arange(rows, dtype=np.int64)[::-1].copy()
    assert cold.write(1, {"k": "int"}, {"k": Column(zone, None, None)}, zone, zone * 0, "k")["groups"] == rows
    assert bits(cold.column(1, "k", np.arange(rows, dtype=np.int32))) == zone.tolist()


def test_a_dictionary_only_where_it_pays(world):
    data, _ = pack(TYPES, world.columns, world.zone, world.bucket, "user")
    group = pq.read_metadata(pa.BufferReader(data)).row_group(0)
    has = {group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).has_dictionary_page}
    assert {"user", "name", "#zone", "#bucket"} <= has
    assert not has & {"at", "amount", "seen", "n", "#row"}
    assert all(group.column(i).compression == "ZSTD" for i in range(group.num_columns))
    assert all(group.column(i).is_stats_set for i in range(group.num_columns))


# --- what is read --------------------------------------------------------------------------------------------------


class Watched(Disk):
    def __init__(self) -> None:
        self.reads: list[tuple[int, int]] = []

    def read(self, path: Path, offset: int = 0, length: int = -1) -> bytes:
        self.reads.append((offset, length))
        return super().read(path, offset, length)


def test_only_the_chunks_that_are_needed_are_read(tmp_path, world):
    disk = Watched()
    cold = Cold(disk, tmp_path)
    entry = world.write(cold)
    footer = Footer((tmp_path / "0000000000000001.parquet").read_bytes()[-entry["footer"] :])
    row, amount = footer.columns["#row"], footer.columns["amount"]
    cold.column(1, "amount", np.zeros(1, np.int32))
    (group,) = [at for at in range(entry["groups"]) if disk.reads[-1] == footer.range(at, row)]
    first = (entry["bytes"] - entry["footer"], entry["footer"])
    assert disk.reads == [first, footer.range(group, amount), footer.range(group, row)]
    assert cold.bytes_read == sum(length for _, length in disk.reads)
    assert (cold.hits, cold.misses) == (0, 2)
    disk.reads.clear()
    cold.column(1, "amount", np.zeros(1, np.int32))  # all from the cache
    assert (disk.reads, cold.hits, cold.misses) == ([], 2, 2)
    cold.column(1, "name", np.zeros(1, np.int32))
    assert disk.reads == [footer.range(group, footer.columns["name"])]


@pytest.mark.parametrize("cache_bytes", [0, 60_000])
def test_a_footer_is_read_once_however_small_the_cache(tmp_path, world, cache_bytes):
    disk = Watched()
    cold = Cold(disk, tmp_path, cache_bytes=cache_bytes)
    entry = world.write(cold)
    footer = entry["bytes"] - entry["footer"], entry["footer"]
    everything = np.arange(world.rows, dtype=np.int32)
    for _ in range(3):
        for name in TYPES:
            cold.column(1, name, everything)
            cold.group_of(1)
    assert disk.reads.count(footer) == 1
    chunks = cold.bytes_read - entry["footer"]
    assert 0 < chunks <= 3 * 2 * (entry["bytes"] - entry["footer"]) * len(TYPES)


def test_footers_in_memory_are_small_counted_and_released_with_their_file(tmp_path, world):
    cold = Cold(Disk(), tmp_path, cache_bytes=0)
    entries = {run: world.write(cold, run) for run in (1, 2)}
    assert cold.footer_bytes == 0  # read on first use
    for run, entry in entries.items():
        before = cold.footer_bytes
        cold.column(run, "n", np.zeros(1, np.int32))
        assert 0 < cold.footer_bytes - before <= 48 * entry["groups"] * (len(TYPES) + 3) + 2 * world.rows
    cold.forget(1)
    assert cold.footer_bytes == cold.file(2)[1].nbytes
    cold.open(2, entries[2])
    assert cold.footer_bytes == 0


def test_chunks_are_decoded_without_the_footer_of_their_file(world):
    data, entry = pack(TYPES, world.columns, world.zone, world.bucket, "user")
    footer = Footer(data.to_pybytes()[-entry["footer"] :])
    table = pq.read_table(pa.BufferReader(data))
    for name, column in footer.columns.items():
        kind, optional = footer.kinds[column], footer.optional[column]
        chunks = [
            ChunkBytes(int(footer.rows[g]), int(footer.heads[g, column]), data[start : start + size].to_pybytes())
            for g in range(entry["groups"])
            for start, size in [footer.range(g, column)]
        ]
        found = decoded(kind, optional, chunks)
        expected = table[name].cast(pa.int64()) if kind == "timestamp" else table[name]
        assert found.type == expected.type
        if kind == "float":
            found, expected = (a.combine_chunks().view(pa.int64()) for a in (found, expected))
        assert found.to_pylist() == expected.to_pylist()
        for spoiled in (chunks[0]._replace(data=chunks[0].data[:-1]), chunks[0]._replace(rows=chunks[0].rows + 1)):
            with pytest.raises((pa.ArrowException, OSError)):
                decoded(kind, optional, [spoiled])


def test_a_cached_chunk_does_not_retain_others_decoded_with_it(tmp_path, world):
    cold = Cold(Disk(), tmp_path)
    world.write(cold)
    for name in TYPES:
        cold.column(1, name, np.arange(world.rows, dtype=np.int32))
    for value, _ in cold._cache._kept.values():
        if isinstance(value, Column) and value.values is not None:
            assert value.values.base is None
        elif isinstance(value, Column):
            assert sum(part.size for part in value.text.buffers() if part) <= value.text.nbytes + 256


def test_the_cache_keeps_to_its_size_and_drops_what_was_not_used(tmp_path, world):
    small = Cold(Disk(), tmp_path, cache_bytes=60_000)
    none = Cold(Disk(), tmp_path, cache_bytes=0)
    none.open(1, world.write(small))
    asked = offsets(world.rows, 500)
    for name in TYPES:
        for cold in (small, none):
            assert bits(cold.column(1, name, asked)) == picked(world.columns[name], asked)
            assert cold.cached_bytes <= cold._cache.limit
    assert none.cached_bytes == none.hits == 0
    assert small.cached_bytes > 30_000
    kept = sum(size for _, size in small._cache._kept.values())
    assert small.cached_bytes == kept


def test_what_was_used_last_stays(tmp_path):
    rows = 100
    zeros = np.zeros(rows, np.int64)
    cold = Cold(Disk(), tmp_path, cache_bytes=1 << 20)
    for run in (1, 2, 3):
        cold.write(run, {"k": "int"}, {"k": Column(np.arange(rows), None, None)}, zeros, zeros, "k")
    one = np.zeros(1, np.int32)
    cold.column(1, "k", one)
    cold._cache.limit = 2 * cold.cached_bytes
    for run in (2, 1, 3):
        cold.column(run, "k", one)
    before = cold.misses
    cold.column(1, "k", one)
    assert cold.misses == before
    cold.column(2, "k", one)
    assert cold.misses > before


def test_a_run_that_is_forgotten_leaves_nothing_in_memory(cold, tmp_path, world):
    entry = world.write(cold)
    world.write(cold, 2)
    cold.column(1, "n", offsets(world.rows, 10))
    with_one = cold.cached_bytes
    cold.column(2, "n", offsets(world.rows, 10))
    cold.forget(2)
    assert cold.cached_bytes == with_one
    cold.delete(1)
    cold.delete(1)
    assert cold.cached_bytes == 0
    assert [found.name for found in (tmp_path / "cold").iterdir()] == ["0000000000000002.parquet"]
    cold.open(2, entry)  # equal tuples, equal files
    assert bits(cold.column(2, "n", np.zeros(1, np.int32))) == bits(world.columns["n"])[:1]


def test_many_readers_count_every_byte(tmp_path, world):
    disk = Watched()
    cold = Cold(disk, tmp_path, cache_bytes=200_000)
    entry = world.write(cold)
    world.write(cold, 2)
    looked = []
    wrong = []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        for turn in range(12):
            name, run = draw.choice(list(TYPES)), draw.randrange(1, 3)
            asked = offsets(world.rows, 300, seed * 100 + turn)
            found = cold.column(run, name, asked)
            expected = world.columns[name]
            if expected.values is None:
                good = found.text.equals(expected.text.take(pa.array(asked)))
            else:
                good = bits(found) == bits(Column(expected.values[asked], None, _at(expected.nulls, asked)))
            if not good:
                wrong.append((name, seed))
            looked.append(1)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
    assert len(looked) == 72
    assert cold.bytes_read == sum(length for _, length in disk.reads)
    assert cold.misses + 2 == len(disk.reads)  # the footers
    assert cold.cached_bytes == sum(size for _, size in cold._cache._kept.values()) <= 200_000
    assert entry["rows"] == world.rows


def _at(nulls: NDArray[np.bool_] | None, asked: NDArray[np.int32]) -> NDArray[np.bool_] | None:
    return None if nulls is None else nulls[asked]


# --- damage --------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_is_found_by_whoever_needs_it(tmp_path):
    """Any flip is found when all is read. When a column is read, it is found or the values are right."""
    world = World(150, zones=1, buckets=4)
    disk = Disk()
    entry = world.write(Cold(disk, tmp_path))
    path = tmp_path / "0000000000000001.parquet"
    data = bytearray(path.read_bytes())
    draw = random.Random(2)
    asked = offsets(world.rows, 50)
    expected = {name: picked(world.columns[name], asked) for name in TYPES}
    harmless = 0
    for turn in range(2000):
        bit = turn if turn < 40 else draw.randrange(len(data) * 8)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        data[bit // 8] ^= 1 << bit % 8
        cold = Cold(disk, tmp_path)
        cold.open(1, entry)
        if turn % 2:
            with pytest.raises(DataDamaged, match=r"0000000000000001\.parquet is damaged: .* It covers 150 tuples"):
                cold.read_whole(1)
            continue
        name = draw.choice(list(TYPES))
        try:
            found = cold.column(1, name, asked)
        except DataDamaged:
            continue
        harmless += 1
        assert bits(found) == expected[name]
    assert 0 < harmless < 1000


def test_a_cut_file_is_found(tmp_path):
    world = World(100)
    cold = Cold(Disk(), tmp_path)
    entry = world.write(cold)
    path = tmp_path / "0000000000000001.parquet"
    data = path.read_bytes()
    for length in range(0, len(data), 37):
        path.write_bytes(data[:length])
        cold.open(1, entry)
        with pytest.raises(DataDamaged, match=r"its last .* bytes, is cut off"):
            cold.column(1, "n", np.zeros(1, np.int32))
        with pytest.raises(DataDamaged, match=f"it has {length} bytes instead of {len(data)}"):
            cold.read_whole(1)


def test_damage_says_what_it_covers(cold, tmp_path, world):
    entry = world.write(cold)
    path = tmp_path / "cold" / "0000000000000001.parquet"
    data = bytearray(path.read_bytes())
    start, _ = Footer(bytes(data[-entry["footer"] :])).range(0, 3)
    data[start] ^= 1
    path.write_bytes(data)
    covers = r"It covers 20,000 tuples of zones -180 to 120, 'at' from 2023-11-1\S+ to 2023-11-\S+"
    with pytest.raises(
        DataDamaged, match=rf"column 'amount' of [\d,]+ tuples \(\d+ bytes from byte {start}\).*{covers}"
    ):
        cold.column(1, "amount", np.arange(world.rows, dtype=np.int32))
    path.unlink()
    with pytest.raises(DataDamaged, match=rf"0000000000000001\.parquet is damaged: it is missing.*{covers}"):
        cold.read_whole(1)
    assert bits(cold.column(1, "n", np.zeros(0, np.int32))) == []  # nothing asked, nothing needed
    cold.open(1, entry)
    with pytest.raises(DataDamaged, match=f"it is missing.*{covers}"):
        cold.column(1, "n", np.zeros(1, np.int32))


def test_times_that_are_all_null_cover_nothing(cold, tmp_path):
    columns = {"k": Column(np.arange(3), None, None), "at": Column(np.zeros(3, np.int64), None, np.ones(3, bool))}
    cold.write(1, {"k": "int", "at": "timestamp"}, columns, np.zeros(3, np.int64), np.zeros(3, np.int64), "k")
    (tmp_path / "cold" / "0000000000000001.parquet").unlink()
    with pytest.raises(DataDamaged, match="3 tuples of zones 0 to 0, 'at' from null to null"):
        cold.read_whole(1)


def test_another_runs_file_is_not_taken_for_this_one(cold, tmp_path, world):
    world.write(cold)
    World(20_000, seed=2).write(cold, 2)
    one, two = (tmp_path / "cold" / f"{run:016x}.parquet" for run in (1, 2))
    one.write_bytes(two.read_bytes())
    with pytest.raises(DataDamaged):
        cold.column(1, "n", np.zeros(1, np.int32))


def test_what_pyarrow_cannot_decode_is_damage(cold, world, monkeypatch):
    """Checksums hold, and yet: a fault in what was written."""
    entry = world.write(cold)
    with monkeypatch.context() as patched:
        garbled = lambda kind, optional, chunks: decoded(  # noqa: E731
            kind, optional, [chunk._replace(data=b"\xff" * len(chunk.data)) for chunk in chunks]
        )
        patched.setattr(cold_file, "decoded", garbled)
        with pytest.raises(DataDamaged, match="it cannot be decoded"):
            cold.column(1, "n", np.zeros(1, np.int32))
    data = b"no footer at all"
    cold.open(1, entry | {"footer": len(data), "footer_crc": crc32c(data)})
    with pytest.raises(DataDamaged, match="the footer cannot be read"):
        cold._runs[1].parse_footer(data)


def test_a_write_that_fails_leaves_nothing(tmp_path, world):
    class Full(Disk):
        def sync(self, handle: Any) -> None:
            raise StorageFull("no space")

    cold = Cold(Full(), tmp_path / "cold")
    with pytest.raises(StorageFull):
        world.write(cold)
    assert list((tmp_path / "cold").iterdir()) == []
    with pytest.raises(DataDamaged, match="is not in the manifest"):
        cold.column(1, "n", np.zeros(1, np.int32))


# --- places --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["path", "file://", "memory://"])
def folder(request, tmp_path):
    if request.param == "path":
        return tmp_path / "a" / "b"
    if request.param == "file://":
        return f"file://{tmp_path}/a/b"
    return f"memory://{tmp_path.name}/a/b"


def test_all_places_are_alike(folder, world):
    cold = Cold(Disk(), folder)
    cold.tidy(set())  # nothing there yet
    entry = world.write(cold, 5)
    world.write(cold, 6)
    again = Cold(Disk(), folder)
    again.open(5, entry)
    asked = offsets(world.rows, 100)
    for name in TYPES:
        assert bits(again.column(5, name, asked)) == picked(world.columns[name], asked)
    assert bits(again.read_whole(5).columns["n"]) == bits(world.columns["n"])
    again.tidy({5})
    with pytest.raises(DataDamaged, match=r"0000000000000006\.parquet is damaged: it is missing"):
        cold.column(6, "n", asked)
    assert bits(cold.column(5, "n", asked)) == bits(again.column(5, "n", asked))
    again.remove()
    with pytest.raises(UnknownName, match="has been dropped"):
        again.column(5, "n", asked)
    with pytest.raises(DataDamaged):
        cold.read_whole(5)
    cold.delete(5)


def test_all_places_hold_the_same_bytes(tmp_path, world):
    for folder in (tmp_path / "a", f"file://{tmp_path}/b", f"memory://{tmp_path.name}"):
        world.write(Cold(Disk(), folder))
    name = "0000000000000001.parquet"
    held = fsspec.filesystem("memory").cat_file(f"/{tmp_path.name}/{name}")
    assert held == (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_tidy_leaves_what_is_not_its_own(cold, tmp_path, world):
    world.write(cold)
    folder = tmp_path / "cold"
    for name in ("notes.txt", "0000000000000009.parquet.tmp", "1.parquet"):
        (folder / name).write_bytes(b"x")
    cold.tidy({1})
    assert sorted(found.name for found in folder.iterdir()) == ["0000000000000001.parquet", "1.parquet", "notes.txt"]


class Unreachable:
    """A store that answers with an error of its own."""

    def __init__(self, problem: Exception, good: int = 0) -> None:
        self.problem, self.good = problem, good

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            self.good -= 1
            if self.good < 0:
                raise self.problem
            return None

        return call


class OddError(Exception):
    pass


@pytest.mark.parametrize("problem", [OddError("reset by peer"), TimeoutError(), PermissionError(13, "forbidden")])
def test_a_store_that_cannot_be_reached_is_unavailable(world, problem):
    cold: Any = Cold(Disk(), "memory://bucket")
    world.write(cold)
    cold._place._system = Unreachable(problem)
    with pytest.raises(
        StorageUnavailable, match=rf"memory://bucket/0000000000000001\.parquet.*{type(problem).__name__}"
    ):
        cold.column(1, "n", np.zeros(1, np.int32))
    for act in (lambda: cold.read_whole(1), lambda: world.write(cold, 2), lambda: cold.delete(1)):
        with pytest.raises(StorageUnavailable):
            act()
    cold.tidy(set())
    cold.remove()


def test_a_bucket_that_is_not_there_takes_nothing(world):
    cold: Any = Cold(Disk(), "memory://bucket")
    cold._place._system = Unreachable(FileNotFoundError("no bucket"))
    with pytest.raises(StorageUnavailable, match="no bucket"):
        world.write(cold)


def test_a_store_with_real_folders_gets_them(tmp_path, world):
    cold: Any = Cold(Disk(), f"memory://{tmp_path.name}")
    system = fsspec.filesystem("file")
    cold._place._system, cold._place._root = system, str(tmp_path / "new" / "folder")
    world.write(cold)
    assert bits(cold.column(1, "n", np.zeros(1, np.int32))) == bits(world.columns["n"])[:1]


@pytest.mark.parametrize("url", ["nonsense://x", "gs-not-here://x"])
def test_a_url_nobody_knows_is_refused(url):
    with pytest.raises(BadOptions, match=url):
        Cold(Disk(), url)


def test_file_names_sort_as_runs(cold, tmp_path):
    zero = np.zeros(1, np.int64)
    for run in (1, 10, 255, 1 << 40):
        cold.write(run, {"k": "int"}, {"k": Column(zero, None, None)}, zero, zero, "k")
    names = sorted(found.name for found in (tmp_path / "cold").iterdir())
    assert [int(name.removesuffix(".parquet"), 16) for name in names] == [1, 10, 255, 1 << 40]
