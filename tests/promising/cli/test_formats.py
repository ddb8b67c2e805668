"""Data on stdout."""

import csv
import io
import json
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from rich.console import Console

from promising.cli import console, formats, text_output
from promising.cli.context import Output
from promising.cli.formats import Writer, cells, print_table, rich_table, write_table
from promising.cli.text_output import write_facts
from promising.query.scalar.types import ARROW

TABLE = pa.table(
    {
        "id": pa.array([1, None], pa.int64()),
        "x": pa.array([0.1 + 0.2, float("nan")], pa.float64()),
        "at": pa.array([datetime(2024, 5, 1, 12), datetime(2024, 5, 1, 12, 0, 0, 5)], pa.timestamp("us")),
        "for": pa.array([timedelta(seconds=90), timedelta(0)], pa.duration("us")),
        "ok": pa.array([True, False]),
        "text": pa.array(["a[bold]b", "c\x1b[31m\nd"], pa.large_string()),
    }
)


def test_a_table_is_plain_and_complete_where_there_is_no_terminal(capsys):
    print_table(TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ") for line in lines[1:2]] == [["----", "---", "-" * 26, "-" * 6, "-----", "-" * 12]]
    assert " ".join(lines[2].split()) == "1 0.3 2024-05-01 12:00:00 1m 30s true a[bold]b"
    assert " ".join(lines[3].split()) == "NULL nan 2024-05-01 12:00:00.000005 0s false c\\x1b[31m\\nd"


def test_a_table_without_rows_has_its_heading(capsys):
    write_table(Output.TABLE, TABLE.slice(0, 0))
    assert capsys.readouterr().out.split() == [*TABLE.column_names, *("-" * len(name) for name in TABLE.column_names)]


def test_json_is_an_object_a_line(capsys):
    write_table(Output.JSON, TABLE)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "id": 1,
        "x": 0.1 + 0.2,
        "at": "2024-05-01T12:00:00.000000",
        "for": 90.0,
        "ok": True,
        "text": "a[bold]b",
    }
    assert (second["id"], second["x"], second["text"]) == (None, "NaN", "c\x1b[31m\nd")


def test_csv_and_arrow_hold_the_values(capfdbinary):
    write_table(Output.CSV, TABLE)
    rows = list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode())))
    assert (rows[0]["id"], rows[0]["for"], rows[1]["id"]) == ("1", "90", "")
    write_table(Output.ARROW, TABLE)
    found = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all()
    assert found.schema == TABLE.schema
    assert found["text"].to_pylist() == TABLE["text"].to_pylist()


@pytest.mark.parametrize("kind", [Output.CSV, Output.ARROW])
def test_an_answer_without_rows_still_has_its_columns(kind, capfdbinary):
    Writer(kind, TABLE.schema).finish()
    out = capfdbinary.readouterr().out
    if kind is Output.CSV:
        assert out == b'"id","x","at","for","ok","text"\n'
    else:
        assert pa.ipc.open_stream(out).read_all().schema == TABLE.schema


def test_times_beyond_any_calendar_are_shown(capsys):
    far = pa.table({"at": pa.array([1 << 61], pa.timestamp("us"))})
    write_table(Output.TABLE, far)
    assert "75039-" in capsys.readouterr().out
    write_table(Output.JSON, far)
    assert json.loads(capsys.readouterr().out)["at"].startswith("75039-")


def test_on_a_terminal_a_table_shows_so_many_rows_and_says_how_many_more(monkeypatch, capsys):
    screen = Console(force_terminal=True, width=60, color_system=None, highlight=False)
    for module in (formats, text_output):
        monkeypatch.setattr(module, "out", lambda: screen)
    writer = Writer(Output.TABLE, pa.schema({"n": pa.int64()}), 3)
    for start in (0, 2, 4, 100):
        writer.write(pa.table({"n": pa.array(range(start, start + 2))}))
    writer.finish()
    assert capsys.readouterr().out.split() == ["n", "─", "0", "1", "2", "...", "5", "more", "rows"]


def test_nothing_is_cut_away_on_a_narrow_terminal():
    screen = Console(width=30, color_system=None, record=True, file=io.StringIO())
    screen.print(rich_table(pa.table({"long": ["items1/G2/28333388-and-more"], "other": ["x" * 20]})))
    shown = screen.export_text()
    assert "…" not in shown
    assert shown.count("x") == 20


def test_bounds_stand_behind_what_is_not_exact():
    table = pa.table({"n": [10.123456, 7.0], "m": [1, 2]})
    lower = pa.table({"n": [9.0, 7.0], "m": pa.array([None, None], pa.int64())})
    upper = pa.table({"n": [11.0, 7.0], "m": pa.array([None, None], pa.int64())})
    assert cells(table, 0, (lower, upper)) == ["10.123 (9 to 11)", "7"]
    assert cells(table, 1, (lower, upper)) == ["1", "2"]


def test_one_thing_with_many_sides_is_one_row_of_csv(capfdbinary):
    write_facts(Output.CSV, {"a": 1, "b": {"c": 2}}, lambda: None)
    assert capfdbinary.readouterr().out == b'"a","b"\n1,"{""c"": 2}"\n'


def test_no_colour_without_a_terminal(monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert console.out().color_system is None
    assert console.err().color_system is None


def test_lists_of_values_and_counts(capfd):
    """What approx_top_k gives: as text in a table, as JSON in CSV, and with instants that Python has no year for."""
    of = [
        [{"value": 5, "count": 3, "lower": 3, "upper": 3}, {"value": -(1 << 60), "count": 1, "lower": 0, "upper": 2}],
        None,
    ]
    table = pa.table({"top": pa.array(of, ARROW["top timestamp"]), "n": [1, 2]})
    assert cells(table, 0)[1] == "NULL"
    assert cells(table, 0)[0].startswith("1970-01-01T00:00:00.000005: 3, -")
    assert cells(table, 0)[0].endswith(": 1 (0 to 2)")
    write_table(Output.JSON, table)
    first, second = map(json.loads, capfd.readouterr().out.splitlines())
    assert first["top"][0] == {"value": "1970-01-01T00:00:00.000005", "count": 3, "lower": 3, "upper": 3}
    assert second == {"top": None, "n": 2}
    write_table(Output.CSV, table.slice(0, 1))
    (row,) = csv.DictReader(io.StringIO(capfd.readouterr().out))
    assert json.loads(row["top"]) == first["top"]
    strings = pa.table({"top": pa.array([[{"value": "a\n", "count": 1, "lower": 1, "upper": 1}]], ARROW["top string"])})
    assert cells(strings, 0) == ["a\\n: 1"]
