"""Durations: 100ms, 5m, 30d, 1h30m."""

import re

UNITS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
SQL = {"WEEKS": "w", "DAYS": "d", "HOURS": "h", "MINUTES": "m", "SECONDS": "s", "MILLISECONDS": "ms"}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d|w)", re.ASCII)
LONGEST = 10_000 * 365 * UNITS["d"]


def micros(text: str) -> int:
    """A duration in microseconds. A bare number is seconds; `m` is minutes. Raises ValueError if it is invalid.

    >>> micros("100ms"), micros("1h30m"), micros("1.5"), micros("30d") // UNITS["h"]
    (100000, 5400000000, 1500000, 720)
    """
    given = text.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", given, re.ASCII):
        given += "s"
    at, total = 0, 0.0
    while at < len(given) and (part := _PART.match(given, at)):
        total += float(part[1]) * UNITS[part[2]]
        at = part.end()
    if not given or at < len(given) or total > LONGEST:
        raise ValueError(f"{text!r} is no span of time; write it like 100ms, 30s, 5m, 2h or 30d")
    return round(total)


def seconds(text: str) -> float:
    """A duration in seconds.

    >>> seconds("250ms"), seconds("2m")
    (0.25, 120.0)
    """
    return micros(text) / 1_000_000


def as_sql(span: int) -> str:
    """A duration in microseconds, in the largest SQL unit that divides it.

    >>> as_sql(60_000_000), as_sql(1_500_000), as_sql(7)
    ('1 MINUTES', '1500 MILLISECONDS', '7 MICROSECONDS')
    """
    for name, unit in SQL.items():
        if span and span % UNITS[unit] == 0:
            return f"{span // UNITS[unit]} {name}"
    return f"{span} MICROSECONDS"


def short(span: int) -> str:
    """A duration in microseconds as text: two units at most.

    >>> short(90_000_000), short(1_500), short(12_345_000), short(0), short(28 * UNITS["d"])
    ('1m 30s', '1.5ms', '12.3s', '0s', '28d')
    """
    if span < UNITS["m"]:
        for unit in ("s", "ms"):
            if span >= UNITS[unit]:
                return f"{span / UNITS[unit]:.3g}{unit}"
        return f"{span}us" if span else "0s"
    names = ["d", "h", "m", "s"]
    first = next(i for i, unit in enumerate(names) if span >= UNITS[unit])
    many, rest = divmod(span, UNITS[names[first]])
    less = rest // UNITS[names[first + 1]]
    return f"{many}{names[first]}" + (f" {less}{names[first + 1]}" if less else "")
