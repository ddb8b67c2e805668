"""Spans of time as people write them."""

import pytest

from promising.cli.durations import UNITS, as_sql, micros, short


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("100ms", 100_000),
        ("5m", 300_000_000),
        ("30d", 30 * UNITS["d"]),
        (" 2 h 30 m ", 9_000_000_000),
        ("1.5s", 1_500_000),
        ("90", 90_000_000),
        ("0", 0),
        ("7us", 7),
        ("1W", UNITS["w"]),
    ],
)
def test_what_is_a_span(text, found):
    assert micros(text) == found


@pytest.mark.parametrize("text", ["", " ", "s", "5 parsecs", "-5s", "5m later", "1e3s", "1..5s", "١s", "9999999999w"])
def test_what_is_none_says_how_to_write_one(text):
    with pytest.raises(ValueError, match="write it like 100ms"):
        micros(text)


@pytest.mark.parametrize("span", [1, 1_000, 60_000_000, 90_000_000, 7 * UNITS["d"], 36 * UNITS["h"]])
def test_a_span_in_sql_is_as_long(span):
    from promising.query.sql import parse  # noqa: PLC0415

    made = parse(f"CREATE STREAM s (ts TIMESTAMP) TIMESTAMP BY ts LATENESS {as_sql(span)}")
    assert made.args["lateness"].micros == span


def test_short_has_two_units_at_most():
    assert [short(s) for s in (999, 1_000, 59_900_000, 3_600_000_000, 26 * UNITS["h"], 3 * UNITS["d"])] == [
        "999us",
        "1ms",
        "59.9s",
        "1h",
        "1d 2h",
        "3d",
    ]
