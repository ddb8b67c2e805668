"""Human-readable spans and instants. All times are integers, microseconds since the epoch, shown in UTC."""

import numpy as np

SECOND = 1_000_000
UNITS = {"day": 86_400 * SECOND, "hour": 3_600 * SECOND, "minute": 60 * SECOND, "second": SECOND}
EXACT = {**UNITS, "millisecond": SECOND // 1000, "microsecond": 1}
SCALE = {"year": 31_557_600 * SECOND, **EXACT}


def readable(span: int) -> str:
    """A span of time in the largest unit that divides it; SQL reads it as the same span.

    >>> readable(2800 * 86_400 * SECOND), readable(SECOND), readable(90 * SECOND), readable(250), readable(0)
    ('2800 days', '1 second', '90 seconds', '250 microseconds', '0 seconds')
    """
    name, length = next((n, unit) for n, unit in EXACT.items() if span % unit == 0 and (span or unit == SECOND))
    return f"{span // length} {name}" + ("s" if span != length else "")


def rounded(span: int) -> str:
    """A span in the largest unit that it fills, with three digits, rounded up: above a bound it looks so.

    >>> rounded(26_400 * UNITS["day"]), rounded(300 * SECOND), rounded(300 * SECOND + 1), rounded(51)
    ('72.3 years', '5 minutes', '5.01 minutes', '51 microseconds')
    """
    name, length = next(((n, unit) for n, unit in SCALE.items() if span >= unit), ("microsecond", 1))
    parts = 100 if span < 10 * length else 10 if span < 100 * length else 1
    number = -(-span * parts // length) / parts
    return f"{number:,g} {name}" + ("s" if number != 1 else "")


LEAST = -(1 << 63)
LEAST_TEXT = "-290308-12-21T19:59:05.224192"
"""The least of int64 as an instant: NumPy takes it for none."""


def iso(time: int) -> str:
    """An instant in ISO 8601, with microseconds; any int64."""
    return LEAST_TEXT if time == LEAST else str(np.datetime64(time, "us"))


def instant(time: int) -> str:
    """An instant, without trailing zeros; any int64.

    >>> instant(0), instant(1_512_302_400 * SECOND), instant(1_512_302_400 * SECOND + 60 * SECOND), instant(-1)
    ('1970-01-01', '2017-12-03 12:00', '2017-12-03 12:01', '1969-12-31 23:59:59.999999')
    """
    text = iso(time).replace("T", " ")
    for nothing in (".000000", ":00", " 00:00"):
        if not text.endswith(nothing):
            break
        text = text.removesuffix(nothing)
    return text
