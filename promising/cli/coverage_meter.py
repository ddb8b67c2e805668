"""Progress of an answer as text and as a bar."""

import math
from typing import TYPE_CHECKING

from rich.text import Text

from promising.cli.durations import short
from promising.cli.text_output import count

if TYPE_CHECKING:
    from promising.query.answers import Progress

BAR = 24  # characters
SENDING = 0.01  # seconds of CPU time that sending an answer takes before it is worth a word
CUTS = {
    "budget": "cut by its budget",
    "limit": "as many as its LIMIT",
    "cancelled": "cancelled",
    "error": "as exact as WITH ERROR asks",
    "deadline": "cut by the deadline of the call",
    "memory": "cut by the limit of memory",
}


def bar(share: float, lower: float, upper: float, width: int = BAR) -> Text:
    """A bar, full up to `lower` and shaded up to `upper`."""
    sure = int(min(max(lower, 0.0), 1.0) * width)
    maybe = max(min(-int(-min(max(upper, 0.0), 1.0) * width // 1), width) - sure, 0)
    style = "green" if share >= 1 else "cyan"
    return Text.assemble(("█" * sure, style), ("▒" * maybe, style), ("░" * (width - sure - maybe), "dim"))


def percent(share: float) -> str:
    """A share; only 1 is 100 %, and only 0 is 0 %.

    >>> percent(0.99999), percent(1), percent(0.00001), percent(0), percent(0.423), percent(math.nan)
    ('over 99.9 %', '100 %', 'under 0.1 %', '0 %', '42.3 %', 'unknown')
    """
    if math.isnan(share):
        return "unknown"
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", " %")
    if not 0.001 <= share <= 0.999:
        return "under 0.1 %" if share < 0.5 else "over 99.9 %"
    return f"{share * 100:.1f} %"


def covered(progress: "Progress") -> str:
    """Coverage, with its bounds where they differ."""
    value, lower, upper = progress.coverage
    if not progress.coverage.known:
        return "unknown"
    if percent(lower) == percent(upper):
        return percent(value)
    return f"{percent(value)} ({percent(lower)} to {percent(upper)})"


def meter(progress: "Progress") -> Text:
    """One line: a bar of coverage, rows, CPU time and the granularities read."""
    parts = [
        Text.assemble(bar(*progress.coverage), " ", (covered(progress), "bold")),
        Text(count(progress.rows, "row")),
        Text(f"{short(round(progress.cpu_seconds * 1e6))} CPU"),
    ]
    if progress.granularities:
        parts.append(Text(" ".join(f"G{g}" for g in progress.granularities)))
    return Text("  ").join(parts)


def verdict(progress: "Progress", aggregated: bool) -> str:
    """The final verdict on an answer. Coverage of aggregates refers to their input."""
    spent = f"{short(round(progress.cpu_seconds * 1e6))} of CPU"
    if progress.send_seconds >= SENDING:
        spent += f", and {short(round(progress.send_seconds * 1e6))} to send"
    rows = count(progress.rows, "row")
    if progress.complete:
        how = f", {CUTS['limit']}" if progress.cut == "limit" else ""
        return f"{rows}{how}, complete; {spent}"
    value, lower, upper = progress.total
    what = "tuples or pairs that go in" if aggregated else "rows in all"
    why = CUTS.get(progress.cut or "", "not complete")
    if not progress.total.known:
        return f"{rows}, {why} after {spent}: coverage unknown, at least {lower:,.0f} {what}"
    about = f"{value:,.0f}" if round(lower) == round(upper) else f"about {value:,.0f} ({lower:,.0f} to {upper:,.0f})"
    return f"{rows}, {why} after {spent}: covers {covered(progress)} of {about} {what}"
