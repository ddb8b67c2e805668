"""Maps fields of files to columns of a stream, in Spark SQL: each row gets its values, or the number of its fault.

Nothing runs row by row in Python. Rows are checked as in live ingest; unparsable lines and times are refused, too.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any
from zoneinfo import ZoneInfo

from promising.errors import BadSettings, DuplicateColumn, MissingColumn, UnknownColumn, WrongType
from promising.index.instants import FARTHEST
from promising.index.load_plan import LoadPlan
from promising.index.schema import LONGEST_STRING
from promising.loaders.input_files import CORRUPT, Fields, quoted

SQL_TYPES = {"int": "BIGINT", "float": "DOUBLE", "string": "STRING", "bool": "BOOLEAN", "timestamp": "BIGINT"}
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 0}
WHOLE = ("tinyint", "smallint", "int", "bigint")
HOUR = 3_600_000_000
FAULT, SOURCE, ORIGINAL = "fault", "source", "original"
ZONED, BARE = "zoned", "bare"  # whether a row has a time with, and one without, a time zone


def value(place: int) -> str:
    """The internal name of the stream's column at a place; its own may contain anything."""
    return f"c{place}"


@dataclass
class Faults:
    """Possible faults of a row, by number: the reason and the column."""

    known: list[tuple[str, str]] = field(default_factory=list)

    def number(self, reason: str, column: str = "") -> int:
        if (reason, column) not in self.known:
            self.known.append((reason, column))
        return self.known.index((reason, column))


@dataclass(frozen=True)
class Times:
    """How times are interpreted.

    unit: of integers since 1970: s, ms, us or ns. zone: of times without one; None is UTC, if no others have a zone.
    """

    unit: str | None = None
    zone: str | None = None

    def __post_init__(self) -> None:
        if self.unit is not None and self.unit not in UNITS:
            raise BadSettings(f"unknown time unit {self.unit!r}; it is one of {', '.join(UNITS)}")
        if self.zone is not None and not re.fullmatch(r"[+-]\d\d:\d\d", self.zone):
            try:
                ZoneInfo(self.zone)
            except (KeyError, ValueError, OSError):
                raise BadSettings(
                    f"unknown time zone {self.zone!r}; name one such as Europe/Paris, UTC or +02:00"
                ) from None

    @property
    def shifts(self) -> bool:
        """Whether the zone may have daylight saving time."""
        return self.zone is not None and self.zone not in ("UTC", "Z", "GMT") and self.zone[0] not in "+-"


def match(plan: LoadPlan, fields: Fields, given: Mapping[str, str]) -> dict[str, str]:
    """The field of each column: as given, else by case-insensitive name. Errors suggest what may be meant."""
    names = list(fields.kinds)
    columns = {name.lower(): name for name in plan.types}
    said: dict[str, str] = {}
    for column, meant in given.items():
        if column.lower() not in columns:
            raise UnknownColumn(
                f"{column}={meant} in the mapping: {plan.stream} has no column {column!r}{near(column, plan.types)}"
            )
        if columns[column.lower()] in said:
            raise DuplicateColumn(f"column {column!r} is in the mapping twice")
        if meant not in fields.kinds:
            raise MissingColumn(
                f"{column}={meant} in the mapping: {fields.where} has no field {meant!r}{near(meant, names)}"
            )
        said[columns[column.lower()]] = meant
    found = {column: said.get(column) or _by_name(column, names) for column in plan.types}
    missing = [column for column, name in found.items() if name is None]
    if missing:
        free = [name for name in names if name not in found.values()] or names
        hints = [f"{column}={(difflib.get_close_matches(column, free, 1, 0.5) or ['FIELD'])[0]}" for column in missing]
        raise MissingColumn(
            f"{fields.where} has no field for {_listed(missing)} of stream {plan.stream}. It has {_listed(names)}. Say "
            f"in the mapping which one it is: {' '.join(hints)}"
        )
    return {column: name for column, name in found.items() if name is not None}


def checked(plan: LoadPlan, groups: Sequence[Fields], given: Mapping[str, str], times: Times) -> tuple[Any, Faults]:
    """Rows with the stream's columns as `c0, c1, ...`, times in microseconds, and a fault, null if valid.

    In addition, the file and text of a faulty row, and whether its times have a time zone.
    """
    faults = Faults()
    mapped = [_mapped(plan, group, given, times, faults) for group in groups]
    return reduce(lambda one, other: one.union(other), mapped), faults


def _mapped(plan: LoadPlan, group: Fields, given: Mapping[str, str], times: Times, faults: Faults) -> Any:
    matched = match(plan, group, given)
    fields = {name: f"f{place}" for place, name in enumerate(group.kinds)}
    rows = group.rows.selectExpr(
        f"{quoted(CORRUPT)} AS corrupt" if group.corrupt else "CAST(NULL AS STRING) AS corrupt",
        "_metadata.file_path AS file",
        *(f"{quoted(group.names[name])} AS {field}" for name, field in fields.items()),
    )
    first: list[str] = []
    kept: list[str] = []
    tests: list[tuple[str, int]] = [("corrupt IS NOT NULL", faults.number("bad_line"))] if group.corrupt else []
    zoned: list[str] = []
    bare: list[str] = []
    for place, (column, kind) in enumerate(plan.types.items()):
        name = matched[column]
        raw, v = fields[name], value(place)
        one = _Column(column, kind, name, group.kinds[name], raw, v, column in plan.keys, column == plan.time)
        first.append(f"{one.value(times)} AS {v}")
        if one.kind == "timestamp" and one.source == "string":
            first.append(f"substring({raw}, 12) RLIKE '[^0-9:. ]' AS z{place}")
            zoned.append(f"{v} IS NOT NULL AND z{place}")
            bare.append(f"{v} IS NOT NULL AND NOT z{place}")
        tests += [(test, faults.number(reason, column)) for test, reason in one.tests(times, plan)]
        kept.append(v)
    cases = " ".join(f"WHEN {test} THEN {number}" for test, number in tests)
    said = ", ".join(f"{field} AS {quoted(name)}" for name, field in fields.items())
    return (
        rows.selectExpr("*", *first)
        .selectExpr("*", f"CASE {cases} END AS {FAULT}" if cases else f"CAST(NULL AS INT) AS {FAULT}")
        .selectExpr(
            *kept,
            FAULT,
            f"CASE WHEN {FAULT} IS NOT NULL THEN file END AS {SOURCE}",
            f"CASE WHEN {FAULT} IS NOT NULL THEN coalesce(corrupt, to_json(struct({said}))) END AS {ORIGINAL}",
            f"{' OR '.join(f'({test})' for test in zoned) or 'false'} AS {ZONED}",
            f"{' OR '.join(f'({test})' for test in bare) or 'false'} AS {BARE}",
        )
    )


@dataclass(frozen=True)
class _Column:
    name: str
    kind: str
    field: str
    source: str
    raw: str  # the field in SQL
    v: str  # the computed value in SQL
    key: bool
    time: bool

    def value(self, times: Times) -> str:
        made = getattr(self, f"_{self.kind}")(times)
        if made is None:
            raise WrongType(
                f"column {self.name!r} is of type {self.kind}, but the field {self.field!r} of the source has "
                f"{self.source}; map it to another field, or convert the files"
            )
        return str(made)

    def tests(self, times: Times, plan: LoadPlan) -> list[tuple[str, str]]:
        """Conditions for faults, and their names; the first that holds counts."""
        v, raw = self.v, self.raw
        found = []
        if self.key and self.kind == "int" and self.source in ("string", "float", "double"):
            found.append((f"{v} IS NULL AND lower(trim(CAST({raw} AS STRING))) = 'nan'", "nan_key"))
        if self.kind != "string":
            found.append(
                (f"{v} IS NULL AND {raw} IS NOT NULL", "bad_time" if self.kind == "timestamp" else "wrong_type")
            )
        else:
            found.append((f"NOT is_valid_utf8({raw})", "bad_text"))
            found.append((f"octet_length({v}) > {LONGEST_STRING}", "value_too_long"))
        if self.key or self.time:
            found.append((f"{v} IS NULL", "null_time" if self.time else "null_key"))
        if self.kind == "timestamp":
            found.append((f"{v} NOT BETWEEN {-FARTHEST} AND {FARTHEST}", "bad_time"))
            if times.shifts and not self._instant:
                found.append((self._ambiguous(times), "ambiguous_time"))
        if self.time:
            found.append((f"{v} > {plan.latest}", "too_far_ahead"))
        return found

    # --- a value by the type of its column ---------------------------------------------------------------------------

    def _string(self, times: Times) -> str | None:
        return self.raw if self.source == "string" else None

    def _bool(self, times: Times) -> str | None:
        if self.source == "string":
            return f"try_cast({self.raw} AS BOOLEAN)"
        return self.raw if self.source == "boolean" else None

    def _float(self, times: Times) -> str | None:
        raw = self.raw
        if self.source == "string":  # Java also parses 1d and 1f
            odd = " OR ".join(f"{raw} LIKE '%{letter}'" for letter in "dDfF")
            odd = f"({odd}) AND lower({raw}) NOT LIKE '%inf'"
            return f"CASE WHEN {odd} THEN NULL ELSE try_cast({raw} AS DOUBLE) END"
        return f"CAST({raw} AS DOUBLE)" if self._number else None

    def _int(self, times: Times) -> str | None:
        raw = self.raw
        if self.source == "string":  # 12.0 is an integer, too
            whole = f"CASE WHEN trim({raw}) RLIKE '^[+-]?[0-9]+[.]0*$' THEN split_part(trim({raw}), '.', 1) END"
            return f"coalesce(try_cast({raw} AS BIGINT), try_cast({whole} AS BIGINT))"
        if self.source in WHOLE:
            return f"CAST({raw} AS BIGINT)"
        if self._number:
            fits = f"{raw} = floor({raw}) AND abs({raw}) < 9.2233720368547748E18"
            return f"CASE WHEN {fits} THEN try_cast({raw} AS BIGINT) END"
        return None

    def _timestamp(self, times: Times) -> str | None:
        raw = self.raw
        if self.source == "timestamp":
            return f"unix_micros({raw})"
        if self.source in ("timestamp_ntz", "date"):
            return self._moved(f"unix_micros(CAST({raw} AS TIMESTAMP))", times)
        if self.source in WHOLE:
            if times.unit is None:
                raise WrongType(
                    f"the field {self.field!r} for the column {self.name!r} has whole numbers: say what they count "
                    f"since 1970, by the time unit {', '.join(UNITS)}"
                )
            return _counted(f"CAST({raw} AS BIGINT)", times.unit)
        if self.source != "string":
            return None
        # Spark parses a time of day as one of today.
        read = f"unix_micros(CASE WHEN substring({raw}, 5, 1) = '-' THEN try_cast({raw} AS TIMESTAMP) END)"
        if times.zone is not None:
            read = f"CASE WHEN substring({raw}, 12) RLIKE '[^0-9:. ]' THEN {read} ELSE {self._moved(read, times)} END"
        if times.unit is None:
            return read
        exact = f"try_cast(floor(try_cast({raw} AS DECIMAL(30, 9)) * {UNITS[times.unit] or 0.001}) AS BIGINT)"
        return f"coalesce({_counted(f'try_cast({raw} AS BIGINT)', times.unit)}, {exact}, {read})"

    def _moved(self, micros: str, times: Times) -> str:
        """The instant of a local time in the zone that was parsed as UTC."""
        if times.zone in (None, "UTC", "Z", "GMT"):
            return micros
        return f"unix_micros(to_utc_timestamp(timestamp_micros({micros}), '{times.zone}'))"

    def _ambiguous(self, times: Times) -> str:
        """Whether the local time was skipped or repeated in the zone."""
        shown = self._timestamp(Times(times.unit, None))
        back = [
            f"unix_micros(from_utc_timestamp(timestamp_micros({self.v} + {shift}), '{times.zone}'))"
            for shift in (0, HOUR, -HOUR)
        ]
        bare = (
            f"NOT coalesce(substring({self.raw}, 12) RLIKE '[^0-9:. ]', false) AND " if self.source == "string" else ""
        )
        return f"{bare}({back[0]} != {shown} OR {back[1]} = {shown} OR {back[2]} = {shown})"

    @property
    def _number(self) -> bool:
        return self.source in (*WHOLE, "float", "double") or self.source.startswith("decimal")

    @property
    def _instant(self) -> bool:
        return self.source == "timestamp" or self.source in WHOLE


def _counted(number: str, unit: str) -> str:
    if unit == "ns":
        return f"({number} - pmod({number}, 1000)) DIV 1000"
    return f"try_multiply({number}, {UNITS[unit]})" if unit != "us" else number


def _by_name(name: str, fields: Sequence[str]) -> str | None:
    if name in fields:
        return name
    alike = [found for found in fields if found.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def near(name: str, known: Any) -> str:
    """A message suffix: the nearest known name, or all known ones."""
    alike = difflib.get_close_matches(name.lower(), [k.lower() for k in known], 1)
    if alike:
        return f"; did you mean {next(k for k in known if k.lower() == alike[0])}?"
    return f"; there are {_listed(list(known))}"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
