"""One wrong timestamp does no harm: the watermark does not pass the clock, and an admin can set it back."""

from typing import Any

import pytest

from promising.errors import BadClause, BadOptions, BadWatermark
from promising.index.check import check_stream
from promising.index.storage.store import Store
from promising.query.session import Session
from promising.testing import ManualClock

SECOND = 1_000_000
NOW = 1_714_564_800 * SECOND  # 2024-05-01 12:00
CREATE = "CREATE STREAM s (ts TIMESTAMP, k INT) TIMESTAMP BY ts"


def seconds(*offsets: int) -> dict[str, list[int]]:
    return {"ts": [NOW + offset * SECOND for offset in offsets], "k": [1] * len(offsets)}


def opened(clause: str = "") -> tuple[Session, ManualClock]:
    clock = ManualClock(NOW)
    session = Session(clock=clock, seed=1)
    session.execute(f"{CREATE} {clause}")
    session.execute("CREATE SUMMARY s1 ON s (k) WITH GRANULARITY 5 SECONDS AND COLLAPSE (2, 2)")
    session.execute("CREATE CONTINUOUS QUERY q AS SELECT ts FROM s WINDOW 60 SECONDS")
    session.execute("CREATE CONTINUOUS QUERY n AS SELECT k, count(*) AS n FROM s GROUP BY k WINDOW 60 SECONDS")
    return session, clock


def view(session: Session, name: str = "n") -> list[dict[str, int]]:
    subscription = session.subscribe(name)
    subscription.poll()
    return list(subscription.snapshot().to_pylist())


@pytest.mark.parametrize("clause", ["", "KEEP 1 MINUTE"])
def test_one_tuple_299_seconds_ahead_empties_no_view_and_has_no_honest_tuple_refused(clause):
    session, clock = opened(clause)
    assert session.ingest("s", seconds(-30, -20, 0)).accepted == 3
    assert session.ingest("s", seconds(299)).accepted == 1
    assert session.stream("s").watermark == NOW
    assert view(session) == [{"k": 1, "n": 4}]
    for later in range(1, 20, 3):
        clock.set(NOW + later * SECOND)
        added = session.ingest("s", seconds(later - 1))
        assert (added.accepted, added.refused) == (1, {})
        assert session.stream("s").watermark == clock()
    assert view(session) == [{"k": 1, "n": 11}]
    assert session.query("SELECT count(*) AS n FROM s WINDOW 60 SECONDS").to_arrow()["n"].to_pylist() == [11]
    assert session.query("SELECT count(*) AS n FROM s").to_arrow()["n"].to_pylist() == [11]
    assert check_stream(session.stream("s")) == []


def test_the_view_follows_the_clock_with_the_next_batch():
    session, clock = opened()
    session.ingest("s", seconds(0, 200))
    clock.set(NOW + 100 * SECOND)
    session.ingest("s", seconds(99))
    assert view(session) == [{"k": 1, "n": 2}]  # that of the start has left the window
    clock.set(NOW + 400 * SECOND)
    session.ingest("s", seconds(150))
    assert session.stream("s").watermark == NOW + 200 * SECOND


def test_advance_in_nanoseconds_is_refused_and_changes_nothing():
    session, clock = opened()
    session.ingest("s", seconds(0))
    with pytest.raises(BadWatermark, match=f"ahead of the clock.*nanoseconds: in microseconds it is {NOW}$"):
        session.advance("s", NOW * 1000)
    with pytest.raises(BadWatermark, match="is 1 microsecond ahead"):
        session.advance("s", NOW + 1)
    assert session.stream("s").watermark == NOW
    assert len(view(session, "q")) == 1
    clock.tick(30 * SECOND)
    session.advance("s", NOW + 30 * SECOND)
    assert session.stream("s").watermark == NOW + 30 * SECOND


def test_max_jump():
    session, clock = opened("MAX JUMP 1 HOUR")
    clock.set(NOW + 30 * 86_400 * SECOND)  # history, so that the clock does not help
    session.ingest("s", seconds(-7_200, 0))  # the first batch may jump
    stream = session.stream("s")
    assert stream.watermark == NOW
    day = 86_400
    session.ingest("s", seconds(day))
    for _ in range(3):
        session.ingest("s", seconds(day))  # one tuple, sent again and again
    session.ingest("s", seconds(1, 2 * day))
    assert stream.watermark == NOW + SECOND
    assert view(session) == [{"k": 1, "n": 7}]
    session.ingest("s", seconds(day + 5))
    assert stream.watermark == NOW + (day + 5) * SECOND  # the third that agrees; those within the hour follow
    assert stream.progress.doubted == (NOW + 2 * day * SECOND,)
    session.execute("ALTER STREAM s MAX JUMP OFF")
    session.ingest("s", seconds(day + 6))
    assert stream.watermark == NOW + 2 * day * SECOND
    session.execute("ALTER STREAM s MAX JUMP 2 HOURS")
    assert stream.max_jump == 7_200 * SECOND
    assert check_stream(stream) == []


def test_an_admin_sets_a_poisoned_watermark_back():
    session, _ = opened("KEEP 1 HOUR")
    session.ingest("s", seconds(-3_000, -20, -10, 0))
    stream, feed = session.stream("s"), session.subscribe("q")
    feed.poll()
    stream.advance_again(NOW * 1000, None)  # as a log of an older version has it
    assert view(session) == [] and stream.kept == 0
    assert session.ingest("s", seconds(0)).refused == {"too_old": 1}
    done: Any = session.execute("ALTER STREAM s WATERMARK '2024-05-01 12:00:00'")
    assert "watermark at 2024-05-01 12:00, was 56302-" in done.message
    assert stream.watermark == NOW
    assert session.ingest("s", seconds(-5)).refused == {}
    assert check_stream(stream) == []
    assert len(view(session, "q")) == len(session.query("SELECT ts FROM s WINDOW 60 SECONDS").to_arrow()) >= 1
    delta = feed.poll()
    assert delta is not None and delta.reset
    assert [row["ts"] for row in feed.snapshot().to_pylist()] == [row["ts"] for row in view(session, "q")]


def test_set_back_nothing_is_lost_without_keep():
    session, clock = opened()
    times = list(range(-3_000, 1, 10))
    session.ingest("s", seconds(*times))
    index = session.summary("s1").index
    before = len(index.describe().zones)
    session.execute("ALTER STREAM s WATERMARK '2024-05-01 11:30:00'")  # most are ahead of it now
    stream = session.stream("s")
    assert stream.watermark == NOW - 1_800 * SECOND
    assert index.count == stream.kept == len(times)
    assert index.estimate([1]).value.tolist() == [len(times)]
    assert len(index.probe([1])) == len(times)
    assert [z.reason for z in index.describe().zones if z.reason == "ahead"] == ["ahead"]
    ahead = next(z for z in index.describe().zones if z.reason == "ahead")
    assert any("ahead of the watermark" in line for line in index.story(1, ahead.zone).lines)
    assert check_stream(stream) == []
    session.ingest("s", seconds(-900))
    assert stream.watermark == NOW - 900 * SECOND
    assert check_stream(stream) == []
    clock.tick(SECOND)
    session.ingest("s", seconds(1))
    assert index.count == len(times) + 2
    assert check_stream(stream) == []
    assert len(index.describe().zones) == pytest.approx(before, abs=2)


@pytest.mark.parametrize(
    ("sql", "error", "words"),
    [
        ("ALTER STREAM s WATERMARK '2024-05-01 12:00:01'", BadWatermark, "1 second ahead of the clock"),
        ("EXPLAIN ALTER STREAM s WATERMARK '2024-05-01 12:00:01'", BadWatermark, "1 second ahead of the clock"),
        ("ALTER STREAM s WATERMARK 'noon'", BadClause, "is no instant"),
        ("ALTER STREAM s MAX JUMP 0 SECONDS", Exception, "MAX JUMP"),
        ("ALTER STREAM s MAX JUMP 5 SECONDS", BadOptions, "longer than LATENESS"),
        (
            "CREATE STREAM t (ts TIMESTAMP) TIMESTAMP BY ts LATENESS 5 SECONDS MAX JUMP 5 SECONDS",
            BadOptions,
            "LATENESS",
        ),
    ],
)
def test_bad_input_changes_nothing(sql, error, words):
    session, _ = opened("LATENESS 5 SECONDS")
    session.ingest("s", seconds(0))
    before = session.stream("s").progress
    with pytest.raises(error, match=words):
        session.execute(sql)
    assert session.stream("s").progress == before and session.stream("s").max_jump is None


def test_explain_says_what_a_watermark_removes():
    session, clock = opened("KEEP 1 HOUR")
    session.ingest("s", seconds(0, 1))
    clock.tick(86_400 * SECOND)
    told: Any = session.execute("EXPLAIN ALTER STREAM s WATERMARK '2024-05-02 12:00:00'")
    assert told.to_pylist() == [{"rows_removed": 2}]
    assert session.stream("s").kept == 2
    done: Any = session.execute("ALTER STREAM s WATERMARK '2024-05-02 12:00:00'")
    assert done.message.endswith("2 rows removed")


def test_setting_the_watermark_back_says_how_many_rows_are_there_again():
    session, _ = opened("KEEP 1 HOUR")
    session.ingest("s", seconds(-3_000, -20, 0))
    removed: Any = session.execute("ALTER STREAM s KEEP 1 MINUTE")
    assert removed.message.endswith("; 1 row removed")
    done: Any = session.execute("ALTER STREAM s WATERMARK '2024-05-01 11:10:30'")
    assert done.message.endswith("; 1 row there again")


def test_settings_survive_a_restart(tmp_path):
    clock = ManualClock(NOW)
    with Session(clock=clock, store=Store.open(tmp_path, clock=clock)) as session:
        session.execute(f"{CREATE} MAX JUMP 1 HOUR")
        session.execute("CREATE STREAM t (ts TIMESTAMP) TIMESTAMP BY ts MAX JUMP 1 HOUR")
        session.execute("ALTER STREAM t MAX JUMP OFF")
        session.ingest("s", seconds(-60, 0))
        session.execute("ALTER STREAM s WATERMARK '2024-05-01 11:30:00'")
        before = session.stream("s").progress
    clock.set(0)
    with Session(clock=clock, store=Store.open(tmp_path, clock=clock)) as session:
        assert session.stream("s").max_jump == 3_600 * SECOND and session.stream("t").max_jump is None
        assert session.stream("s").progress == before
