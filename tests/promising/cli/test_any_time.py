"""Every screen shows every instant: event times and watermarks at both ends, other columns at those of int64."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from promising.index.instants import FARTHEST
from promising.query.session import Session
from promising.testing import ManualClock
from promising.testing.service import running
from tests.promising.cli.running import Cli

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
ENDS = {"early": -FARTHEST, "late": FARTHEST}


@pytest.fixture
def far() -> Iterator[Cli]:
    """Streams at both ends of time, and one whose watermark is beyond the clock, as in stores of older versions."""
    session = Session(clock=ManualClock(FARTHEST), seed=1)
    for name, end in (*ENDS.items(), ("poisoned", 0)):
        session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k INT, other TIMESTAMP) TIMESTAMP BY ts")
        session.execute(f"CREATE SUMMARY s_{name} ON {name} (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 3)")
        others = pa.array([LEAST, GREATEST, None], pa.int64()).cast(pa.timestamp("us"))
        session.ingest(name, pa.table({"ts": np.full(3, end), "k": [1, 2, 3], "other": others}))
        session.execute(f"CREATE CONTINUOUS QUERY q_{name} AS SELECT k, ts, other FROM {name} WINDOW 1 HOUR")
        session.execute(
            f"CREATE CONTINUOUS QUERY n_{name} AS SELECT k, count(*) n FROM {name} GROUP BY k WINDOW 1 HOUR"
        )
    session.stream("poisoned").advance_again(FARTHEST, None)
    with running(session=session) as target:
        yield Cli(target)


SCREENS = [
    ("status",),
    *((("sql", f"SHOW {what}")) for what in ("STREAMS", "SUMMARIES", "QUERIES")),
    *(
        words
        for name in (*ENDS, "poisoned")
        for words in (
            ("describe", name),
            ("describe", f"s_{name}"),
            ("describe", f"q_{name}"),
            ("sql", f"DESCRIBE s_{name}"),
            ("sql", f"SELECT ts, other, k FROM {name}"),
            ("sql", f"SELECT min(ts) a, max(ts) b, min(other) c, max(other) d FROM {name}"),
            ("query", f"SELECT ts, k FROM {name} WITH PREFERENCE DESC SUMMARY.Estimate.Count(k)"),
            ("explain", f"SELECT ts, k FROM {name} WITH PREFERENCE DESC SUMMARY.Estimate.Count(k) WINDOW 1 HOUR"),
            ("estimate", f"s_{name}", "1", "2"),
            ("regions", f"s_{name}", "1"),
            ("subscribe", f"q_{name}", "--once"),
        )
    ),
]


@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_every_screen(far, output):
    failed = {}
    for words in SCREENS:
        ended = far("--output", output, *words)
        if ended.code and "--output" not in ended.err:  # some have no csv
            failed[words] = ended
    assert not failed


def test_stories(far):
    for name in (*ENDS, "poisoned"):
        for zone in json.loads(far.ok("--output", "json", "describe", f"s_{name}"))["zones"]:
            assert "tuple" in far.ok("story", f"s_{name}/G{zone['granularity']}/{zone['zone']}")


def test_tuples_ahead_of_the_clock_are_on_every_screen(tmp_path):
    """Their zone has an end of its own kind."""
    now = 1_714_564_800_000_000
    session = Session(clock=ManualClock(now), seed=1)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k INT) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY by_k ON s (k) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 3)")
    session.ingest("s", {"ts": now - np.arange(600)[::-1] * 1_000_000, "k": np.arange(600) % 7})
    session.ingest("s", {"ts": [now + 299_000_000], "k": [7]})
    with running(session=session) as target:
        cli = Cli(target)
        assert "601" in cli.ok("status") and "601" in cli.ok("top", "--once")
        assert "tuples ahead of the watermark" in cli.ok("describe", "by_k", "--png", str(tmp_path / "grid.png"))
        assert (tmp_path / "grid.png").stat().st_size
        for zone in json.loads(cli.ok("--output", "json", "describe", "by_k"))["zones"]:
            assert "tuple" in cli.ok("story", f"by_k/G{zone['granularity']}/{zone['zone']}")


def test_the_watermarks_are_shown(far):
    told = far.ok("status")
    for name in ("early", "late", "poisoned"):
        assert name in told
    assert "9999-12-31 23:59:59" in told and "0001-01-01" in told
