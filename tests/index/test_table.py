"""A table has what was put last, knows how it was before, and is as it was after what it refuses."""

import threading
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from promising.errors import (
    BadOptions,
    BadQuestion,
    BadSchema,
    DuplicateColumn,
    DuplicateKey,
    EmptyBatch,
    MissingColumn,
    MissingKey,
    MixedKeys,
    NaNKey,
    NullKey,
    TableError,
    TableFull,
    UnequalLengths,
    UnknownColumn,
    UnknownName,
    ValueTooLong,
    WrongType,
)
from promising.index.row_versions import TableRecord
from promising.index.table import MOST_ROWS, Changed, Table
from tests.index.tables import TYPES, Truth, batch
from tests.tiers import examples


def made(**more) -> Table:
    return Table("rates", TYPES, "k", **more)


def filled() -> Table:
    table = made()
    table.change({"k": [1, 2, 3], "v": ["a", None, "c"], "x": [0.5, 1.5, None]}, None, {"s": 10})
    return table


# --- what is put ---------------------------------------------------------------------------------------------------


def test_rows_that_are_put_are_there():
    table = filled()
    assert table.rows().to_pydict() == {"k": [1, 2, 3], "v": ["a", None, "c"], "x": [0.5, 1.5, None]}
    assert table.rows().schema.types == [pa.int64(), pa.large_string(), pa.float64()]
    assert (len(table), table.changes, table.versions) == (3, 1, 3)


def test_a_change_says_what_it_did():
    table = filled()
    found = table.change({"k": [3, 2, 9], "v": ["c", "new", "z"], "x": [None, 1.5, 1]}, [1], {"s": 20})
    assert found == Changed(2, inserted=1, updated=1, deleted=1, unchanged=1)
    assert table.find([1, 2, 3, 9]).tolist() == [-1, 3, 2, 4]


def test_a_change_that_changes_nothing_has_no_number():
    table = filled()
    again = table.rows()
    assert table.change(again, None, {"s": 99}) == Changed(1, 0, 0, 0, 3)
    assert (table.changes, table.versions) == (1, 3)
    assert table.change_at("s", np.array([98])).tolist() == [1]


def test_nan_and_null_are_themselves():
    table = made()
    rows = {"k": [1, 2, 3], "v": [None, "", "x"], "x": [float("nan"), None, -0.0]}
    table.change(rows, None, {})
    assert table.change(rows, None, {}).unchanged == 3
    assert table.change({"k": [1, 2, 3], "v": ["", None, "x"], "x": [None, None, 0.0]}, None, {}).updated == 3


def test_an_update_may_leave_out_columns():
    table = filled()
    assert table.change({"k": [2, 1], "x": [7, 8]}, None, {}, mode="update").updated == 2
    assert table.take("v", table.find([1, 2])).to_pylist() == ["a", None]
    assert table.take("x", table.find([1, 2])).to_pylist() == [8.0, 7.0]


def test_what_was_there_before_is_known():
    table = filled()
    table.change({"k": [1], "v": ["b"], "x": [None]}, None, {"s": 20, "late": 5})
    table.change(None, [1], {"s": 20, "late": 6})
    table.change({"k": [1], "v": ["d"], "x": [None]}, None, {"s": 30, "late": 6}, mode="insert")
    assert table.find([1] * 5, np.arange(5)).tolist() == [-1, 0, 3, -1, 4]
    assert table.take("v", np.array([4, 0, 3, 0])).to_pylist() == ["d", "a", "b", "a"]
    assert table.change_at("s", np.array([0, 9, 10, 19, 20, 29, 30, 1 << 40])).tolist() == [0, 0, 1, 1, 3, 3, 4, 4]
    assert table.change_at("late", np.array([0, 5, 6])).tolist() == [1, 2, 4]  # not there yet at the first change
    assert table.change_at("unknown", np.array([0])).tolist() == [4]
    came, went = table.since(1)
    assert (came.tolist(), went.tolist()) == ([4], [0])  # the version in between came and went


@pytest.mark.parametrize("positions", [{"s": 7}, lambda: {"s": 7}])
def test_positions_are_given_or_asked_for(positions):
    table = made()
    table.change({"k": [1], "v": [None], "x": [None]}, None, positions)
    assert table.change_at("s", np.array([6, 7])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("int", pa.array([1, -5, 1 << 62])),
        ("string", pa.array(["", "Ünï", "a\0b"])),
        ("timestamp", pa.array([0, 1, 1 << 50], pa.timestamp("us"))),
        ("timestamp", [datetime(2026, 1, day) for day in (1, 2, 3)]),
    ],
)
def test_keys_of_every_kind(kind, keys):
    table = Table("t", {"v": "int", "k": kind}, "k")
    table.change({"k": keys, "v": [1, 2, 3]}, None, {})
    assert table.find(keys).tolist() == [0, 1, 2]
    assert table.find(pa.chunked_array([pa.array(keys), pa.array([None], pa.array(keys).type)])).tolist()[3] == -1
    table.change(None, keys[:2], {})
    assert table.find(keys).tolist() == [-1, -1, 2]


def test_values_of_every_kind():
    table = Table("t", {"k": "int", "b": "bool", "t": "timestamp"}, "k")
    table.change({"k": [1, 2, 3], "b": [True, None, False], "t": [5, None, 6]}, None, {})
    table.change({"k": [4], "b": np.array([True]), "t": np.array([7])}, None, {})
    rows = table.rows()
    assert rows["b"].to_pylist() == [True, None, False, True]
    assert rows["t"].cast(pa.int64()).to_pylist() == [5, None, 6, 7]
    assert table.take("b", np.array([3, 3, 1])).to_pylist() == [True, True, None]


# --- what is refused -------------------------------------------------------------------------------------------------

ROW = {"k": [7], "v": ["x"], "x": [1.0]}


@pytest.mark.parametrize(
    ("upserts", "deletes", "mode", "error", "said"),
    [
        ({**ROW, "k": [2]}, None, "insert", DuplicateKey, r"'rates': key 2 \(row 0\) is in the table already; UPSERT"),
        (ROW, None, "update", MissingKey, r"key 7 \(row 0\) is not in the table; INSERT or UPSERT"),
        (None, [1, 7], "upsert", MissingKey, r"key 7 \(row 1\) is not in the table, so it cannot be deleted"),
        (None, [1, 1], "upsert", DuplicateKey, r"key 1 \(row 1\) is in the change twice"),
        ({"k": [5, 6, 5], "v": "abc", "x": [1] * 3}, None, "upsert", WrongType, "'v' is a str, not an array"),
        ({"k": [5, 6, 5], "v": list("abc"), "x": [1] * 3}, None, "upsert", DuplicateKey, r"key 5 \(row 2\)"),
        ({**ROW, "k": [1]}, [1], "upsert", DuplicateKey, r"key 1 \(row 0\) is to be put and deleted"),
        ({**ROW, "k": [None]}, None, "upsert", NullKey, "'k', row 0: null"),
        ({**ROW, "k": [float("nan")]}, None, "upsert", NaNKey, "NaN is no key"),
        ({**ROW, "k": np.array([np.nan])}, None, "upsert", NaNKey, "NaN is no key"),
        ({**ROW, "k": ["one"]}, None, "upsert", MixedKeys, "'one' among int keys"),
        ({**ROW, "x": ["much"]}, None, "upsert", WrongType, "'much' is no float"),
        ({**ROW, "v": ["y" * 40_000]}, None, "upsert", ValueTooLong, "40,000 bytes"),
        ({**ROW, "v": ["x", "y"]}, None, "upsert", UnequalLengths, "differ in length"),
        ({"k": [7], "v": ["x"]}, None, "upsert", MissingColumn, r"'x' \(float\) is missing"),
        ({"v": ["x"]}, None, "update", MissingColumn, "'k'"),
        ({**ROW, "odd": [1]}, None, "update", UnknownColumn, "'odd'"),
        ({"k": [], "v": [], "x": []}, None, "upsert", EmptyBatch, "no tuples"),
        (None, [], "upsert", EmptyBatch, "no keys"),
        (None, [None], "upsert", NullKey, "row 0"),
        (None, ["one"], "upsert", MixedKeys, "among int keys"),
        (pa.table([[1], [1]], ["k", "k"]), None, "update", DuplicateColumn, "2 times"),
        (42, None, "update", WrongType, "not int"),
        (ROW, None, "replace", BadQuestion, "no mode 'replace'"),
    ],
)
def test_what_is_refused_changes_nothing(upserts, deletes, mode, error, said):
    table = filled()
    before = table.image()
    with pytest.raises(error, match=said):
        table.change(upserts, deletes, {"s": 50}, mode=mode)
    after = table.image()
    assert (table.changes, len(table)) == (1, 3)
    assert table.rows().to_pydict() == filled().rows().to_pydict()
    assert after.positions == before.positions
    assert after.following == before.following


def test_a_table_has_room_for_so_many_rows():
    table = made(max_rows=3)
    table.change(filled().rows(), None, {})
    with pytest.raises(TableFull, match=r"'rates' would have 4 rows; it takes 3"):
        table.change(ROW, None, {})
    assert issubclass(TableFull, TableError)
    table.change(ROW, [1], {})  # one for another
    table.change({**ROW, "x": [2.0]}, None, {})
    assert made().max_rows == MOST_ROWS


@pytest.mark.parametrize("kind", ["float", "bool"])
def test_what_cannot_be_a_key(kind):
    with pytest.raises(BadSchema, match=f"'k' is of type {kind}; it must be one of int, string, timestamp"):
        Table("t", {"k": kind}, "k")


def test_a_table_that_cannot_be():
    with pytest.raises(BadSchema, match="'z' is no column; columns are k, v"):
        Table("t", {"k": "int", "v": "int"}, "z")
    with pytest.raises(BadSchema, match="unknown type 'text'"):
        Table("t", {"k": "text"}, "k")
    with pytest.raises(BadOptions, match="at least one row"):
        Table("t", {"k": "int"}, "k", max_rows=0)


def test_what_is_not_there_cannot_be_read():
    table = filled()
    with pytest.raises(UnknownName, match="no column 'z'"):
        table.take("z", np.array([0]))
    for version in (-1, 3):
        with pytest.raises(UnknownName, match=f"no version {version}"):
            table.take("v", np.array([0, version]))


def test_a_journal_that_raises_has_the_last_word():
    class Full:
        def changed(self, record: TableRecord) -> None:
            raise OSError("full")

        def done(self) -> None:
            raise AssertionError

    table = filled()
    table.journal = Full()
    with pytest.raises(OSError, match="full"):
        table.change(ROW, [1], {})
    assert (table.changes, len(table), table.find([1, 7]).tolist()) == (1, 3, [0, -1])


# --- what is forgotten -----------------------------------------------------------------------------------------------


def test_what_nobody_can_see_is_forgotten():
    table = filled()
    for number in range(2, 6):
        table.change({"k": [1], "v": [str(number)], "x": [0]}, None, {"s": 10 * number})
    table.trim({"s": 35})
    assert table.base == 3
    assert table.versions == 5
    assert table.find([1] * 6, np.arange(6)).tolist() == [4, 4, 4, 4, 5, 6]  # before it as far back as is known
    with pytest.raises(UnknownName, match="no version 0"):
        table.take("v", np.array([0]))
    assert table.take("v", np.array([6, 4])).to_pylist() == ["5", "3"]
    assert table.change_at("s", np.array([0, 39, 40, 50])).tolist() == [3, 3, 4, 5]
    table.trim({})
    assert (table.versions, table.rows()["v"].to_pylist()) == (3, [None, "c", "5"])
    assert table.find([1, 2]).tolist() == [6, 1]


def test_what_was_not_followed_yet_is_kept():
    table = filled()
    table.change({"k": [1], "v": ["b"], "x": [0]}, None, {"s": 20})
    table.trim({}, seen=1)
    assert [part.tolist() for part in table.since(1)] == [[3], [0]]
    table.trim({}, seen=2)
    assert table.versions == 3


def test_a_stream_made_anew_comes_after_all_changes():
    table = filled()
    table.change(ROW, None, {"s": 20})
    assert table.reach("s") == 20
    assert table.cap("s", 0)
    assert not table.cap("s", 0)
    assert table.reach("s") == 0
    assert table.change_at("s", np.array([0])).tolist() == [2]


def test_lost_arrivals_come_again_after_the_change():
    table = filled()
    table.change(ROW, None, {"s": 20})
    assert table.cap("s", 15)
    assert table.change_at("s", np.array([9, 10, 14, 15])).tolist() == [0, 1, 1, 2]


def test_threads_see_whole_changes():
    table = made()
    size, wrong = 50, []

    def puts() -> None:
        for number in range(60):
            rows = {"k": list(range(size)), "v": [str(number)] * size, "x": [0.0] * size}
            table.change(rows, None, {})

    writer = threading.Thread(target=puts)
    writer.start()
    while writer.is_alive():
        seen = set(table.rows()["v"].to_pylist())
        if len(seen) > 1:
            wrong.append(seen)
    writer.join()
    assert wrong == []


# --- anything --------------------------------------------------------------------------------------------------------

KEYS = list(range(6))
values = st.tuples(st.sampled_from(["", "a", "b", None]), st.sampled_from([0.0, 1.5, None]))
puts = st.dictionaries(st.sampled_from(KEYS), values, min_size=1, max_size=4)


class Histories(RuleBasedStateMachine):
    """A table against the contents after every change; it is made again from records, or from an image, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.truth, self.records = made(), Truth(), list[TableRecord]()
        self.table.journal = self
        self.arrived = {"s": 0, "t": 0}

    def changed(self, record: TableRecord) -> None:
        self.records.append(record)

    def done(self) -> None:
        pass

    @rule(stream=st.sampled_from(["s", "t"]), tuples=st.integers(1, 3))
    def arrive(self, stream, tuples):
        self.arrived[stream] += tuples

    @rule(puts=puts, mode=st.sampled_from(["insert", "upsert", "update"]), deletes=st.sets(st.sampled_from(KEYS)))
    def change(self, puts, mode, deletes):
        rows = {key: (key, *row) for key, row in puts.items()}
        now, deleted = self.truth.now, sorted(deletes)
        refused = (
            any(key not in now for key in deletes)
            or (mode == "insert" and any(key in now for key in rows))
            or (mode == "update" and any(key not in now for key in rows))
            or any(key in rows for key in deletes)
        )
        try:
            self.table.change(batch(rows), deleted or None, self.arrived, mode=mode)
        except TableError:
            assert refused
        else:
            assert not refused
            self.truth.change(rows, deleted, self.arrived)

    @rule(data=st.data())
    def trim(self, data):
        oldest = {stream: data.draw(st.integers(0, now)) for stream, now in self.arrived.items()}
        self.truth.trim(oldest)
        self.table.trim(oldest)

    @rule()
    def again(self):
        """From an image, which is then all there is."""
        table = made()
        table.replay(self.table.image())
        self.records = [self.table.image()]
        self.table, table.journal = table, self

    @rule()
    def from_records(self):
        """What was trimmed since is there again."""
        table = made()
        for record in self.records:
            table.replay(record)
        table.trim({}, seen=self.truth.floor)
        self.table, table.journal = table, self

    @invariant()
    def same(self):
        self.truth.same(self.table, [*KEYS, None], ["s", "t", "never"])


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)
