"""The page from given figures: escapes, unknown coverage, no plain engine."""

import re
from dataclasses import replace
from typing import Any

import pytest

import promising
from promising.demo import questions
from promising.demo.charts import WIDTH, Race, race_chart
from promising.demo.findings import Findings
from promising.demo.page import Page, coverage_text, races
from promising.demo.plain_engine import PlainEngine, Timing
from promising.demo.questions import BEST, RAREST, SAMPLE, Average, Pair, Pairs, Step
from promising.demo.watches import Watched, conditions, matching, statements


@pytest.fixture
def found() -> Findings:
    session = promising.open(seed=7)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY even_kinds ON s (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 4)")
    pairs = Pairs("SELECT <1>", [Pair(0, 1.0, 2, 3.0, 5)], 10, 0.01, 1, 2.0, [0.0] * 5 + [1.0], 0.1, 0.1, None)
    average = Average("SELECT <2>", [Step(0.1, 2.0, 1.5, 2.5)], 1000, 0.1, None, 2.2)
    watched = Watched(1, "SELECT <3>", 1, 10, 2, 2, 1.0, 0.1, None, 0, None)
    told = session.describe("even_kinds", cells=True)
    return Findings(
        10, 1000, {d: pairs for d in (BEST, SAMPLE, RAREST)}, average, average, watched, None, 0.01, None, told
    )


def test_names_and_statements_are_escaped(found):
    page = Page(found, ["<script>&"], b"").html()
    assert "<script>" not in page
    assert "&lt;script&gt;&amp;" in page
    assert all(f"SELECT &lt;{n}&gt;" in page for n in (1, 2, 3))


def test_coverage_that_is_unknown_is_called_so(found):
    unknown = {d: replace(p, coverage=None) for d, p in found.pairs.items()}
    assert "coverage unknown" in Page(replace(found, pairs=unknown), ["milk"], b"").html()
    assert coverage_text(None) == "unknown"


def test_a_plain_engine_that_was_stopped_is_extrapolated_and_marked(found):
    stopped = replace(found, whole=Timing(2.0, False, 10))
    assert races(stopped)[0].whole == 200.0
    page = Page(stopped, ["milk"], b"").html()
    assert "instead of all pairs in about 3 min 20 s" in page
    assert "1 % of the pairs; 3 min 20 s is at that rate" in page


def test_a_plain_engine_that_is_faster_is_said_to_be(found):
    assert (
        "On so few rows the plain engine is faster"
        in Page(replace(found, whole=Timing(0.01, True, 1000)), ["milk"], b"").html()
    )


def test_bounds_hold_or_not_or_nobody_knows(found):
    assert found.month.held is True
    assert replace(found.month, exact=9.0).held is False
    assert replace(found.month, exact=None).held is None


def test_the_plain_engine_stops_at_its_limit_and_can_be_asked_again():
    plain = PlainEngine()
    timing, rows = plain.ask(
        "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE (a.range * b.range) % 7 = 1", 0.05
    )
    assert (timing.done, rows) == (False, [])
    assert plain.ask("SELECT 42", 5.0)[1] == [(42,)]
    assert not plain.fetch("SELECT a.range FROM range(100000000) a, range(1000) b", 0.0).done
    assert plain.fetch("SELECT * FROM range(5)", 5.0).rows == 5
    plain.close()


def test_a_selection_matches_what_its_condition_says():
    import pyarrow as pa  # noqa: PLC0415

    past = pa.table({"ItemID": [1, 1, 2], "Price": [1.0, 3.0, 5.0]})
    watches = conditions(past)
    assert watches.to_pylist() == [{"ItemID": 1, "Price": 4.0}, {"ItemID": 2, "Price": 10.0}]
    assert statements(watches)[0].endswith("WHERE ItemID = 1 AND Price >= 4.00")
    assert matching(pa.table({"ItemID": [1, 1, 2, 3], "Price": [4.0, 3.99, 11.0, 99.0]}), watches) == 2


def test_the_labels_of_the_race_end_within_the_picture():
    chart = race_chart([Race("a fair sample / all pairs", 0.1, 2.0, False, whole=3_599.0)])
    texts = re.findall(r'<text x="([\d.]+)" [^>]*>([^<]*DuckDB[^<]*)</text>', chart)
    assert [text for _, text in texts] == ["DuckDB about 59 min 59 s"]
    assert all(float(x) + 7.6 * len(text) <= WIDTH for x, text in texts)  # 7.6: an average letter


class Stopwatch:
    """A plain engine that notes how long it may take."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def ask(self, _sql: str, limit: float) -> tuple[Timing, list[tuple[Any, ...]]]:
        self.limits.append(limit)
        return Timing(limit, False, 0), []


def test_the_plain_engine_has_at_least_the_time_of_the_service(monkeypatch):
    """Stopped earlier, it would look faster."""
    session: Any = promising.open(seed=7)
    for name in ("even", "odd"):
        session.execute(
            f"CREATE STREAM {name} (TimeStamp TIMESTAMP, StoreID INT, KindID INT, Price DOUBLE) TIMESTAMP BY TimeStamp"
        )
        session.execute(
            f"CREATE SUMMARY {name}_kinds ON {name} (KindID) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 4)"
        )
        session.ingest(name, {"TimeStamp": [1, 2], "StoreID": [1, 1], "KindID": [1, 1], "Price": [1.0, 2.0]})
    plain: Any = Stopwatch()
    monkeypatch.setattr(questions, "LIMIT", 0.0)
    asked: list[Any] = [questions.ask_pairs(session, BEST, plain), questions.ask_average(session, None, 2, plain)]
    assert plain.limits == [one.seconds for one in asked]
