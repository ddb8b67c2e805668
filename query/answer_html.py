"""Answers in a notebook: the first rows as a table, below a bar of coverage."""

from html import escape
from typing import Any

import pyarrow as pa

from promising.query.answers import Progress

SHOWN = 20  # rows


def answer_html(rows: pa.Table, progress: Progress) -> str:
    """Rows and how much of the answer they cover; all text is escaped."""
    return f'<div class="promising-answer">{_bar(progress)}{table_html(rows)}</div>'


def table_html(rows: pa.Table) -> str:
    """The first rows of a table."""
    head = "".join(f"<th>{escape(name)}</th>" for name in rows.column_names)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
        for row in zip(*(column.to_pylist() for column in rows.slice(0, SHOWN).columns), strict=True)
    )
    more = f"<p>... {rows.num_rows - SHOWN:,} more rows</p>" if rows.num_rows > SHOWN else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: Any) -> str:
    return "<i>NULL</i>" if value is None else escape(str(value))


def _bar(progress: Progress) -> str:
    """Full up to the lower bound of coverage, shaded up to the upper one; empty and "unknown" without a value."""
    coverage = progress.coverage
    low, high = (0.0, 0.0)
    said = "coverage unknown"
    if coverage is not None and coverage.known:
        low, high = (100 * min(max(bound, 0.0), 1.0) for bound in (coverage.lower, coverage.upper))
        said = f"covers {100 * coverage.value:.1f} %"
        if f"{low:.1f}" != f"{high:.1f}":
            said += f" ({low:.1f} to {high:.1f} %)"
    if progress.complete:
        low = high = 100.0
        said = "complete"
    said += f"; {progress.rows:,} row{'' if progress.rows == 1 else 's'}, {1000 * progress.cpu_seconds:,.1f} ms of CPU"
    if progress.cut is not None and not progress.complete:
        said += f"; cut: {progress.cut}"
    if progress.token is not None:
        said += f"; resume with token <code>{escape(progress.token)}</code>"
    fill = f"linear-gradient(to right, #2a7 {low:.1f}%, #9db {low:.1f}%, #9db {high:.1f}%, #ddd {high:.1f}%)"
    return f'<div style="width:16em;height:0.8em;background:{fill}"></div><p>{said}</p>'
