"""Words of the dialect: reserved words, units, types and functions."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def keyword(text: str) -> str:
    """The word in upper case if it is ASCII: upper() would turn 'ſ' and 'ı' into S and I."""
    return text.upper() if text.isascii() else text


RESERVED = _set(
    """
    ALL AND AS ASC BETWEEN CASE CREATE CROSS DESC DISTINCT ELSE END EXCEPT FETCH FROM FULL GROUP HAVING ILIKE IN INNER
    INTERSECT IS JOIN LEFT LIKE LIMIT NATURAL NOT NULL OFFSET ON OR ORDER OUTER QUALIFY RIGHT SELECT THEN FALSE TRUE
    UNION USING WHEN WHERE WITH
    """
)
"""Names only if quoted or after a dot. Any other word may name a column, a stream or a summary."""

CALLABLE = frozenset({"LEFT", "RIGHT"})  # reserved words that are functions before a parenthesis

UNITS: dict[str, str] = {
    **dict.fromkeys(("US", "USEC", "USECS", "MICROSECOND", "MICROSECONDS"), "MICROSECOND"),
    **dict.fromkeys(("MS", "MSEC", "MSECS", "MILLISECOND", "MILLISECONDS"), "MILLISECOND"),
    **dict.fromkeys(("S", "SEC", "SECS", "SECOND", "SECONDS"), "SECOND"),
    **dict.fromkeys(("MIN", "MINS", "MINUTE", "MINUTES"), "MINUTE"),
    **dict.fromkeys(("H", "HR", "HRS", "HOUR", "HOURS"), "HOUR"),
    **dict.fromkeys(("D", "DAY", "DAYS"), "DAY"),
    **dict.fromkeys(("W", "WEEK", "WEEKS"), "WEEK"),
}

CALENDAR: dict[str, int] = {
    **dict.fromkeys(("MON", "MONS", "MONTH", "MONTHS"), 31),
    **dict.fromkeys(("Y", "YEAR", "YEARS"), 366),
}
"""Days of the units that only KEEP takes: at the most, so that nothing is removed too early."""

OTHER_UNITS = _set(
    """
    NS NANOSECOND NANOSECONDS M MON MONS MONTH MONTHS QUARTER QUARTERS Y YEAR YEARS DECADE DECADES CENTURY CENTURIES
    MILLENNIUM MILLENNIA
    """
)
"""Units that are refused by name: their length varies, or is below our resolution."""

TYPES: dict[str, exp.DType] = {
    **dict.fromkeys(("TINYINT", "INT1"), exp.DType.TINYINT),
    **dict.fromkeys(("SMALLINT", "INT2", "SHORT"), exp.DType.SMALLINT),
    **dict.fromkeys(("INT", "INTEGER", "INT4"), exp.DType.INT),
    **dict.fromkeys(("BIGINT", "INT8", "LONG"), exp.DType.BIGINT),
    **dict.fromkeys(("FLOAT", "FLOAT4", "REAL"), exp.DType.FLOAT),
    **dict.fromkeys(("DOUBLE", "FLOAT8"), exp.DType.DOUBLE),
    "VARCHAR": exp.DType.VARCHAR,
    **dict.fromkeys(("TEXT", "STRING"), exp.DType.TEXT),
    "CHAR": exp.DType.CHAR,
    **dict.fromkeys(("BOOLEAN", "BOOL"), exp.DType.BOOLEAN),
    **dict.fromkeys(("TIMESTAMP", "DATETIME"), exp.DType.TIMESTAMP),
}

LITERALS = _set("DATE TIME DATETIME TIMESTAMPTZ TIMETZ JSON UUID DECIMAL INT BIGINT DOUBLE BOOLEAN N E X B")
"""Words that other systems put before a string to declare its type or notation."""

OTHER_STATEMENTS = _set(
    """
    ABORT ANALYZE ATTACH BEGIN CALL CHECKPOINT CLOSE CLUSTER COMMENT COMMIT COPY DEALLOCATE DECLARE DETACH DO END
    EXECUTE EXPORT FETCH FROM GRANT IMPORT INSTALL KILL LISTEN LOAD LOCK MERGE NOTIFY OPTIMIZE PIVOT PRAGMA PREPARE
    REFRESH REINDEX RELEASE RENAME REPLACE RESET REVOKE ROLLBACK SAVEPOINT SET START SUMMARIZE TABLE TRUNCATE UNPIVOT
    USE VACUUM VALUES
    """
)
"""First words of statements of other systems, which are refused by name."""


@dataclass(frozen=True)
class CallForm:
    """A function: its name, node, the node's arguments in order, and how many are required."""

    name: str
    node: type[exp.Expression]
    args: tuple[str, ...] = ("this",)
    least: int = 1
    rest: str | None = None  # the argument that takes the list of all further ones

    @property
    def takes(self) -> str:
        most = max(len(self.args), self.least)
        count = f"at least {self.least}" if self.rest else f"{self.least} or {most}" if self.least < most else f"{most}"
        return f"{count} argument{'' if count.endswith('1') else 's'}"


CALLS: tuple[CallForm, ...] = (
    # Aggregates. count, which also takes * and DISTINCT, is parsed separately.
    CallForm("sum", exp.Sum),
    CallForm("avg", exp.Avg),
    CallForm("min", exp.Min),
    CallForm("max", exp.Max),
    CallForm("median", exp.Median),
    CallForm("quantile", exp.Quantile, ("this", "quantile"), 2),
    CallForm("approx_quantile", exp.ApproxQuantile, ("this", "quantile"), 2),
    CallForm("approx_count_distinct", exp.ApproxDistinct),
    CallForm("approx_top_k", exp.ApproxTopK, ("this", "expression"), 2),
    # Numbers.
    CallForm("abs", exp.Abs),
    CallForm("floor", exp.Floor),
    CallForm("ceil", exp.Ceil),
    CallForm("round", exp.Round, ("this", "decimals")),
    CallForm("sign", exp.Sign),
    CallForm("sqrt", exp.Sqrt),
    CallForm("ln", exp.Ln),
    CallForm("exp", exp.Exp),
    CallForm("power", exp.Pow, ("this", "expression"), 2),
    # Any type.
    CallForm("coalesce", exp.Coalesce, rest="expressions"),
    CallForm("nullif", exp.Nullif, ("this", "expression"), 2),
    CallForm("least", exp.Least, rest="expressions"),
    CallForm("greatest", exp.Greatest, rest="expressions"),
    # Strings.
    CallForm("lower", exp.Lower),
    CallForm("upper", exp.Upper),
    CallForm("length", exp.Length),
    CallForm("trim", exp.Trim),
    CallForm("substring", exp.Substring, ("this", "start", "length"), 2),
    CallForm("concat", exp.Concat, (), 1, rest="expressions"),
    CallForm("starts_with", exp.StartsWith, ("this", "expression"), 2),
    # Time.
    CallForm("date_trunc", exp.DateTrunc, ("unit", "this"), 2),
    CallForm("year", exp.Year),
    CallForm("quarter", exp.Quarter),
    CallForm("month", exp.Month),
    CallForm("week", exp.Week),
    CallForm("day", exp.Day),
    CallForm("hour", exp.Hour),
    CallForm("minute", exp.Minute),
    CallForm("second", exp.Second),
)
"""Functions with a node of their own. Any other name gives an `exp.Anonymous`, which the binder rejects."""

CALL_BY_NAME: dict[str, CallForm] = {call.name.upper(): call for call in CALLS} | {
    other: next(call for call in CALLS if call.name == name)
    for other, name in {
        "CEILING": "ceil",
        "POW": "power",
        "SUBSTR": "substring",
        "MEAN": "avg",
        "APPROX_PERCENTILE": "approx_quantile",
        "PERCENTILE_APPROX": "approx_quantile",
    }.items()
}
CALL_BY_NODE: dict[type[exp.Expression], CallForm] = {call.node: call for call in CALLS}
