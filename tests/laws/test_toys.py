"""A new kind is one file and one line of a registry; from then on SQL, stores and laws have it."""

from pathlib import Path

import numpy as np
import pytest

import promising
from promising.errors import BadMeasure
from promising.index.check import check_stream
from promising.index.measure_reading import window_estimate
from promising.summaries.cells import KINDS
from promising.summaries.counts import COUNTS
from tests.laws import test_cells as laws

LAWS = (
    laws.test_absorb_is_union_in_any_order_and_bounds_hold,
    laws.test_subtract_undoes_absorb_or_says_it_cannot,
    laws.test_images_round_trip,
    laws.test_one_tuple_more_is_seen_by_the_check,
)
N, KEYS = 3000, 97
WORDS = ["x" * (key % 23) for key in range(KEYS)]


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "toy", "tests.laws.toys:Longest")
    monkeypatch.setitem(COUNTS, "totals", "tests.laws.toys:Totals")


@pytest.mark.usefixtures("toys")
def test_toys_keep_the_laws():
    longest = laws.CellCase("longest", laws.measured("toy(w)"), laws.words, lambda v: [()], lambda v, _: longest_of(v))
    totals = laws.counts("totals", 4, 1, 2)
    for law in LAWS[:3]:
        law(longest)
    for law in LAWS:
        law(totals)


@pytest.mark.usefixtures("toys")
def test_a_toy_from_sql_to_an_estimate_across_a_restart(tmp_path: Path):
    path = str(tmp_path / "data")
    keys = np.arange(N) % KEYS
    with promising.open(path) as session:
        session.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT, w VARCHAR) TIMESTAMP BY ts")
        session.execute(
            "CREATE SUMMARY by_k ON s (k) USING TOTALS MEASURES (TOY(w))"
            " WITH GRANULARITY 1 SECONDS AND COLLAPSE (2, 4) OPTIONS (maxlength = 256)"
        )
        session.ingest("s", {"ts": np.arange(N) * 10_000, "k": keys, "w": [WORDS[key] for key in keys]})
        with pytest.raises(BadMeasure, match="TOY measures columns of type string"):
            session.execute("ALTER SUMMARY by_k ADD MEASURES (TOY(k))")
    with promising.open(path) as session:
        shown = session.execute("SHOW SUMMARIES").to_pylist()[0]  # type: ignore[union-attr]  # SHOW gives a table
        assert (shown["using"], shown["measures"]) == ("TOTALS", "TOY(w)")
        assert " USING TOTALS MEASURES (TOY(w)) " in shown["statement"]
        assert not list(check_stream(session.stream("s")))
        index = session.summary("by_k").index
        assert window_estimate(index, "toy(w)", None).value == max(map(len, WORDS))
        found, truth = session.estimate("by_k", np.arange(KEYS)), np.bincount(keys)
        assert (found.lower <= truth).all() and (truth <= found.upper).all() and (found.lower < found.upper).any()
        assert index.describe(show="bytes(w)").shown is not None
        session.execute("ALTER SUMMARY by_k DROP MEASURES (TOY(w))")


def longest_of(values: list[str | None]) -> float:
    return float(max((len(value.encode()) for value in laws.known(values)), default=0))
