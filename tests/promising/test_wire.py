"""What goes over the wire: rows in messages of some size."""

import math

import pyarrow as pa

from promising import wire
from promising.index.regions import Guess
from promising.v1 import common_pb2


def test_a_message_is_small_however_uneven_its_rows_are():
    rows = pa.table({"s": [""] * 65_000 + ["x" * 100_000] * 84, "n": range(65_084)})
    cuts = list(wire.slices(rows, 1 << 18))
    assert [first for first, _ in cuts] == [0, *(first + count for first, count in cuts[:-1])]
    assert sum(count for _, count in cuts) == rows.num_rows
    assert max(rows.slice(*cut).nbytes for cut in cuts) <= 1 << 19
    assert list(wire.slices(pa.table({"s": ["x" * 100, "y" * 100]}), 10)) == [(0, 1), (1, 1)]


def test_an_unknown_number_is_a_state_of_its_own_that_old_clients_do_not_misread():
    sent = wire.bounded(Guess(math.nan, 40.0, 900.0))
    found = wire.guess(common_pb2.Bounded.FromString(sent.SerializeToString()))
    assert not found.known and math.isnan(found.value) and found[1:] == (40.0, 900.0)
    assert sent.lower <= sent.value <= sent.upper  # what a client reads that skips the new field
    known = wire.bounded(Guess(5.0, 4.0, 7.0))
    assert not known.unknown and wire.guess(known) == Guess(5.0, 4.0, 7.0)
