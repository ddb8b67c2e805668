"""CPU budgets of queries."""

from datetime import timedelta

from promising.errors import BadClause

LONGEST_BUDGET = 3_600_000_000  # microseconds
Budget = float | timedelta | None  # CPU time: seconds, or a timedelta


def nanoseconds(budget: Budget) -> int | None:
    """A valid budget in nanoseconds; None for no budget.

    >>> nanoseconds(0.25)
    250000000
    """
    if budget is None:
        return None
    seconds = budget.total_seconds() if isinstance(budget, timedelta) else budget
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_BUDGET / 1e6:
        raise BadClause(f"a budget is CPU time in seconds, from 0 to {LONGEST_BUDGET // 1_000_000:,}, not {budget!r}")
    return round(seconds * 1e9)
