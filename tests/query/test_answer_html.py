"""Answers in a notebook: rows, a bar of coverage, and nothing of the data as markup."""

from dataclasses import replace
from math import nan

import pyarrow as pa

import promising
from promising.index.regions import Guess
from promising.query.answer_html import SHOWN, answer_html
from promising.query.answers import Done, Progress

CUT = Progress(3, Guess(10, 8, 12), Guess(0.3, 0.25, 0.4), False, "budget", 0.05, (1,), 3, 5, 3, token="t<1>")
ROWS = pa.table({"<i>": ["<script>", None]})


def test_a_cut_answer_shows_bounds_and_its_token() -> None:
    made = answer_html(ROWS, CUT)
    assert "covers 30.0 % (25.0 to 40.0 %)" in made
    assert "#2a7 25.0%, #9db 25.0%, #9db 40.0%" in made
    assert "t&lt;1&gt;" in made
    assert "&lt;script&gt;" in made and "<script>" not in made and "<th>&lt;i&gt;</th>" in made
    assert "<i>NULL</i>" in made


def test_unknown_coverage_is_said_and_draws_no_bar() -> None:
    for coverage in (Guess(nan, 0.002, 1.0), None):
        made = answer_html(ROWS, replace(CUT, coverage=coverage))  # type: ignore[arg-type]  # None must not fail
        assert "coverage unknown" in made
        assert "#2a7 0.0%" in made


def test_an_answer_of_a_session_shows_its_first_rows() -> None:
    with promising.open() as session:
        session.execute("CREATE STREAM s (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts")
        session.ingest("s", {"ts": list(range(50)), "item": list(range(50))})
        made = session.query("SELECT item FROM s")._repr_html_()
    assert made.count("<td>") == SHOWN
    assert "complete; 50 rows" in made
    assert "... 30 more rows" in made


def test_a_done_statement_is_escaped() -> None:
    assert Done("stream <b> created", True)._repr_html_() == "<p>stream &lt;b&gt; created</p>"
