"""Types of values, and the Arrow types that represent them."""

from typing import Final, Literal

import pyarrow as pa
from sqlglot import exp

from promising.errors import Unsupported
from promising.query.sql import offset_of

Top = Literal["top int", "top float", "top string", "top bool", "top timestamp", "top interval"]
Kind = Literal["int", "float", "string", "bool", "timestamp", "interval", "null"] | Top

_PLAIN: Final[dict[Kind, pa.DataType]] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.large_string(),
    "bool": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "interval": pa.duration("us"),
    "null": pa.null(),
}
TOP: Final[dict[Kind, Top]] = {
    "int": "top int",
    "float": "top float",
    "string": "top string",
    "bool": "top bool",
    "timestamp": "top timestamp",
    "interval": "top interval",
    "null": "top int",
}
"""Values of a type with their counts, a list: only `approx_top_k` gives it, and no expression takes it."""


def _listed(element: pa.DataType) -> pa.DataType:
    """The Arrow type of a `Top`: the count may lie anywhere from `lower` to `upper`."""
    count = pa.int64()
    return pa.list_(pa.struct([("value", element), ("count", count), ("lower", count), ("upper", count)]))


ARROW: Final[dict[Kind, pa.DataType]] = _PLAIN | {TOP[kind]: _listed(_PLAIN[kind]) for kind in TOP if kind != "null"}

NUMBERS: Final[frozenset[Kind]] = frozenset({"int", "float"})

# As shown in messages.
NAMES: Final[dict[Kind, str]] = {
    **dict.fromkeys(TOP.values(), "a list"),
    "int": "an integer",
    "float": "a float",
    "string": "a string",
    "bool": "a boolean",
    "timestamp": "a timestamp",
    "interval": "an interval",
    "null": "NULL",
}

_T = exp.DType
_KINDS: Final[dict[exp.DType, Kind]] = {
    _T.TINYINT: "int",
    _T.SMALLINT: "int",
    _T.MEDIUMINT: "int",
    _T.INT: "int",
    _T.BIGINT: "int",
    _T.FLOAT: "float",
    _T.DOUBLE: "float",
    _T.CHAR: "string",
    _T.NCHAR: "string",
    _T.VARCHAR: "string",
    _T.NVARCHAR: "string",
    _T.TEXT: "string",
    _T.BOOLEAN: "bool",
    _T.TIMESTAMP: "timestamp",
    _T.TIMESTAMPNTZ: "timestamp",
}


def kind_of_type(node: exp.DataType, sql: str | None = None) -> Kind:
    """The type for a type of SQL. All integers have 64 bits, all floats are double, strings have any length.

    Raises Unsupported with the position in `sql` for decimals, dates, timestamps with time zone and nested types, and
    for a length or precision, which would not be enforced.
    """
    kind = _KINDS.get(node.this) if isinstance(node.this, exp.DType) else None
    if kind is None:
        raise Unsupported(f"type {node.sql(dialect='duckdb')} is not offered", sql, offset_of(node))
    if node.expressions:
        raise Unsupported(f"a length or precision in {node.sql(dialect='duckdb')} is not offered", sql, offset_of(node))
    return kind
