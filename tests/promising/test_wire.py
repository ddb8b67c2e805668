"""What goes over the wire: rows in messages of some size."""

import pyarrow as pa

from promising import wire


def test_a_message_is_small_however_uneven_its_rows_are():
    rows = pa.table({"s": [""] * 65_000 + ["x" * 100_000] * 84, "n": range(65_084)})
    cuts = list(wire.slices(rows, 1 << 18))
    assert [first for first, _ in cuts] == [0, *(first + count for first, count in cuts[:-1])]
    assert sum(count for _, count in cuts) == rows.num_rows
    assert max(rows.slice(*cut).nbytes for cut in cuts) <= 1 << 19
    assert list(wire.slices(pa.table({"s": ["x" * 100, "y" * 100]}), 10)) == [(0, 1), (1, 1)]
