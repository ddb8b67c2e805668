# ruff: noqa: E501  # an SVG element is one line
"""Charts of the demo's page as inline SVG. Colours are the page's CSS variables, so they follow light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from promising.demo.questions import Average

WIDTH, LABEL = 440, 205
LETTER = 7  # width of a letter beside a tick, at most
TICKS = (
    (0.001, "1 ms"),
    (0.01, "10 ms"),
    (0.1, "0.1 s"),
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
)


def duration(seconds: float) -> str:
    """A duration with two or three digits.

    >>> duration(0.0123), duration(0.25), duration(3.04), duration(81), duration(206), duration(7300)
    ('12 ms', '0.25 s', '3.0 s', '1 min 21 s', '3 min 26 s', '2 h 1 min')
    """
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.00095 else f"{seconds * 1000:.1f} ms"
    if seconds < 59.5:
        return f"{seconds:.2f} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@dataclass(frozen=True)
class Race:
    """A question: how long each engine took; `done` is False if the second was stopped, `whole` what it would take."""

    label: str
    ours: float
    plain: float | None
    done: bool = True
    whole: float | None = None


def race_chart(races: Sequence[Race]) -> str:
    """Horizontal bars on a logarithmic scale of time, two per question."""
    ends = [value for r in races for value in (r.ours, r.plain, r.whole) if value is not None]
    ticks = [t for t in TICKS if t[0] <= max(ends) * 1.2]
    low = max([t for t, _ in TICKS if t <= min(ends) * 0.7], default=TICKS[0][0])
    high = max(*ends, low * 10)
    ticks = [t for t in ticks if t[0] >= low]

    def x(seconds: float) -> float:
        return 8 + (WIDTH - LABEL) * max(math.log(max(seconds, low) / low), 0.0) / math.log(high / low)

    parts, y = [], 8
    for race in races:
        parts.append(f'<text x="8" y="{y + 12}" class="name">{escape(race.label)}</text>')
        parts.append(_bar(x(race.ours), y + 19, "ours", f"Promising {duration(race.ours)}"))
        y += 38
        if race.plain is not None:
            if race.whole is not None and not race.done:
                parts.append(f'<rect x="8" y="{y}" width="{x(race.whole) - 8:.1f}" height="15" class="guess"/>')
                text, end = f"DuckDB about {duration(race.whole)}", race.whole
            else:
                text, end = f"DuckDB {'' if race.done else 'over '}{duration(race.plain)}", race.plain
            parts.append(_bar(x(race.plain), y, "plain" if race.done else "plain cut", text, x(end)))
            y += 18
        y += 8
    free = 0.0  # where the next label has room
    for seconds, label in ticks:
        parts.append(f'<line x1="{x(seconds):.1f}" x2="{x(seconds):.1f}" y1="6" y2="{y}" class="grid"/>')
        anchor, begins = ("start", x(seconds)) if seconds == low else ("middle", x(seconds) - LETTER * len(label) / 2)
        if begins >= free:
            parts.append(f'<text x="{x(seconds):.1f}" y="{y + 14}" class="tick" text-anchor="{anchor}">{label}</text>')
            free = begins + LETTER * (len(label) + 1)
    parts.append(f'<text x="8" y="{y + 31}" class="tick">seconds that the caller waited, logarithmic scale</text>')
    said = "; ".join(
        f"{r.label}: Promising {duration(r.ours)}"
        + ("" if r.plain is None else f", DuckDB {'' if r.done else 'not done after '}{duration(r.plain)}")
        for r in races
    )
    return _svg(y + 38, f"Waiting time by question. {said}", parts)


def narrowing_chart(average: Average) -> str:
    """An estimate with its bounds against time, and the exact value as a line."""
    steps = average.steps
    values = [v for s in steps for v in (s.lower, s.upper)] + ([] if average.exact is None else [average.exact])
    low, high = min(values), max(values)
    pad = (high - low or abs(high) or 1.0) * 0.12
    low, high = low - pad, high + pad
    top, bottom, left, right = 24, 206, 52, WIDTH - 12
    last = max(s.seconds for s in steps) * 1.12

    def x(seconds: float) -> float:
        return left + (right - left) * seconds / last

    def y(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    parts = []
    for n in range(5):
        value = low + (high - low) * n / 4
        parts.append(f'<line x1="{left}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" class="tick" text-anchor="end">{value:.2f}</text>')
    for n in range(5):
        at = last * n / 4
        parts.append(
            f'<text x="{x(at):.1f}" y="{bottom + 16}" class="tick" text-anchor="middle">{at * 1000:.0f}</text>'
        )
    if average.exact is not None:
        at = y(average.exact)
        parts.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" class="exact"/>')
        parts.append(
            f'<text x="{right}" y="{top - 3}" class="tick" text-anchor="end">line: exact {average.exact:.3f}</text>'
        )
    for s in steps:
        parts.append(
            f'<line x1="{x(s.seconds):.1f}" x2="{x(s.seconds):.1f}" y1="{y(s.lower):.1f}" y2="{y(s.upper):.1f}" class="bound"/>'
        )
        for end in (s.lower, s.upper):
            parts.append(
                f'<line x1="{x(s.seconds) - 6:.1f}" x2="{x(s.seconds) + 6:.1f}" y1="{y(end):.1f}" y2="{y(end):.1f}" class="bound"/>'
            )
        parts.append(f'<circle cx="{x(s.seconds):.1f}" cy="{y(s.value):.1f}" r="4.5" class="ours"/>')
    parts.append(f'<text x="{left - 6}" y="{top - 14}" class="tick" text-anchor="end">dollars</text>')
    parts.append(
        f'<text x="{right}" y="{bottom + 32}" class="tick" text-anchor="end">milliseconds that the caller waited</text>'
    )
    said = ", then ".join(
        f"{s.value:.3f} between {s.lower:.3f} and {s.upper:.3f} after {duration(s.seconds)}" for s in steps
    )
    return _svg(bottom + 40, f"The estimate: {said}", parts)


def share_chart(shares: Sequence[float], labels: Sequence[str], axis: str) -> str:
    """Columns of shares, in percent."""
    top, bottom, left = 22, 170, 14
    step = (WIDTH - 2 * left) / len(shares)
    most = max(*shares, 1e-09)
    parts = [f'<line x1="{left}" x2="{WIDTH - left}" y1="{bottom}" y2="{bottom}" class="axis"/>']
    for n, (share, label) in enumerate(zip(shares, labels, strict=True)):
        height = (bottom - top) * share / most
        middle = left + step * (n + 0.5)
        parts.append(
            f'<rect x="{middle - step * 0.38:.1f}" y="{bottom - height:.1f}" width="{step * 0.76:.1f}" height="{height:.1f}" class="ours"/>'
        )
        parts.append(
            f'<text x="{middle:.1f}" y="{bottom - height - 5:.1f}" class="value" text-anchor="middle">{share * 100:.0f} %</text>'
        )
        parts.append(
            f'<text x="{middle:.1f}" y="{bottom + 16}" class="tick" text-anchor="middle">{escape(label)}</text>'
        )
    parts.append(f'<text x="{WIDTH - left}" y="{bottom + 33}" class="tick" text-anchor="end">{escape(axis)}</text>')
    said = ", ".join(f"{label}: {share * 100:.0f} %" for label, share in zip(labels, shares, strict=True))
    return _svg(bottom + 40, f"Share of the pairs by {axis}. {said}", parts)


def amount_chart(bars: Sequence[tuple[str, float, str]], axis: str) -> str:
    """Horizontal bars from zero: label, value, its text."""
    most = max((value for _, value, _ in bars), default=1.0) or 1.0
    parts, y = [], 6
    for n, (label, value, text) in enumerate(bars):
        parts.append(f'<text x="8" y="{y + 12}" class="name">{escape(label)}</text>')
        parts.append(_bar(8 + (WIDTH - 110) * value / most, y + 18, "ours" if n == 0 else "plain", text))
        y += 44
    parts.append(f'<text x="8" y="{y + 12}" class="tick">{escape(axis)}</text>')
    return _svg(y + 20, f"{axis}: " + "; ".join(f"{label} {text}" for label, _, text in bars), parts)


def _bar(end: float, y: float, kind: str, text: str, text_at: float | None = None) -> str:
    at = end if text_at is None else text_at
    return (
        f'<rect x="8" y="{y}" width="{max(end - 8, 2):.1f}" height="15" class="{kind}"/>'
        f'<text x="{max(at, 10) + 6:.1f}" y="{y + 12}" class="value">{escape(text)}</text>'
    )


def _svg(height: float, said: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(said)}">\n{body}\n</svg>'
