"""Options with a fixed set of values."""

from enum import StrEnum


class Format(StrEnum):
    """File format."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class Unit(StrEnum):
    """Unit of integers in a time column, since 1970."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


class Engine(StrEnum):
    """Query engine."""

    SERVICE = "service"
    SPARK = "spark"


class Structure(StrEnum):
    """Structure of a summary."""

    NONE = "none"
    TIME = "time"
    GRID = "grid"
    ADAPTIVE = "adaptive"
    AUTO = "auto"


class LoadMode(StrEnum):
    """How rows are written to a table."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"


class Role(StrEnum):
    """Role of a token."""

    ADMIN = "admin"
    INGEST = "ingest"
    QUERY = "query"
