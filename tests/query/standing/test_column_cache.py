"""What standing queries hold of a stream, against a plain list of everything that ever arrived."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.index import Stream
from promising.query.standing import column_cache as held_rows
from promising.query.standing.column_cache import StreamRows
from tests.tiers import examples


@pytest.fixture(autouse=True, scope="module")
def tight():
    """Little room, so that arrays are moved often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_rows, "LEAST", 4)
        yield


TYPES = {"ts": "timestamp", "n": "int", "x": "float", "s": "string", "b": "bool"}
FIRST = 10**15


def stream() -> Stream:
    return Stream("s", TYPES, "ts", clock=lambda: 1 << 60, max_tuples=1 << 15)


tuples = st.tuples(
    st.integers(0, 50),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.floats(allow_nan=True),
    st.none() | st.text(max_size=4),
    st.none() | st.booleans(),
)
steps = st.lists(
    st.one_of(
        st.lists(tuples, min_size=1, max_size=30).map(lambda rows: ("append", rows)),
        st.just(("pull", None)),
        st.integers(0, 200).map(lambda n: ("trim", n)),
        st.sampled_from(["n", "x", "s", "b"]).map(lambda name: ("reach", name)),
        st.sampled_from(["n", "x", "s", "b"]).map(lambda name: ("forget", name)),
    ),
    max_size=25,
)


@settings(max_examples=examples(150), deadline=None)
@given(steps)
def test_rows_are_what_arrived(doing):
    taken = stream()
    rows = StreamRows(taken)
    arrived: list[tuple[object, ...]] = []
    held: dict[str, int] = {}  # by column, the first arrival it has
    trimmed = 0
    for what, with_what in doing:
        if what == "append":
            columns = list(zip(*with_what, strict=True))
            batch = pa.table(
                {
                    "ts": pa.array([FIRST + t for t in columns[0]], pa.timestamp("us")),
                    "n": pa.array(columns[1], pa.int64()),
                    "x": pa.array(columns[2], pa.float64()),
                    "s": pa.array(columns[3], pa.string()),
                    "b": pa.array(columns[4], pa.bool_()),
                }
            )
            taken.append(batch)
            arrived += [(FIRST + row[0], *row[1:]) for row in with_what]
        elif what == "pull":
            before = rows.end
            assert rows.pull() == (before, len(arrived))
        elif what == "trim":
            trimmed = max(trimmed, min(with_what, rows.end))
            rows.trim(with_what)
        elif what == "reach":
            assert rows.reach(frozenset([with_what]), FIRST - 1) == 0  # all that there is
            trimmed = 0 if rows.first == 0 else trimmed
            held.setdefault(with_what, rows.first)
        else:
            rows.forget(frozenset([with_what]))
            held.pop(with_what, None)
        assert rows.names == frozenset(held)
        ids = np.arange(rows.first, rows.end)
        assert rows.times(rows.first, rows.end).tolist() == [arrived[i][0] for i in ids]
        mixed = np.concatenate([ids[::-1], ids[:3]])
        for name in held:
            place = list(TYPES).index(name)
            found = rows.take(name, mixed).to_pylist()
            assert [repr(v) for v in found] == [repr(arrived[i][place]) for i in mixed]


def test_memory_follows_what_is_held():
    taken = stream()
    rows = StreamRows(taken)
    rows.reach(frozenset(["n", "s"]), 0)
    sizes = []
    for first in range(0, 20_000, 500):
        batch = {"ts": np.arange(first, first + 500), "n": np.arange(500), "x": np.zeros(500)}
        taken.append(
            pa.table({**batch, "s": ["text"] * 500, "b": [True] * 500}).cast(
                pa.schema(
                    [
                        ("ts", pa.timestamp("us")),
                        ("n", pa.int64()),
                        ("x", pa.float64()),
                        ("s", pa.string()),
                        ("b", pa.bool_()),
                    ]
                )
            )
        )
        rows.pull()
        rows.trim(first - 1_000)
        sizes.append(rows.nbytes)
    assert max(sizes[20:]) <= 1.5 * max(sizes[5:15])


def test_arrivals_that_the_log_has_let_go_of_are_passed_over():
    taken = Stream("s", {"ts": "timestamp", "n": "int"}, "ts", keep=8_000, clock=lambda: 1 << 60, max_tuples=1 << 16)
    taken.create_summary("k", "n", granularity=1_000, collapse=(2, 1))
    rows = StreamRows(taken)
    rows.reach(frozenset(["n"]), 0)
    for first in (0, 10**9, 2 * 10**9):
        times = np.arange(first, first + (1 << 14))
        taken.append({"ts": times, "n": times})
    first, end = rows.pull()
    assert first > 0 and end == 3 << 14
    ids = np.arange(first, end)
    assert rows.take("n", ids).to_pylist() == rows.times(first, end).tolist()
