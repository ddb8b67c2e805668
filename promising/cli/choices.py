"""What options may be, where the choice is one of few words."""

from enum import StrEnum


class Format(StrEnum):
    """What a file holds."""

    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


class Unit(StrEnum):
    """What whole numbers in a time column count, since 1970."""

    S = "s"
    MS = "ms"
    US = "us"
    NS = "ns"


class Engine(StrEnum):
    """What answers a query."""

    SERVICE = "service"
    SPARK = "spark"


class Structure(StrEnum):
    """How a summary is built."""

    NONE = "none"
    TIME = "time"
    GRID = "grid"
    ADAPTIVE = "adaptive"
    AUTO = "auto"


class LoadMode(StrEnum):
    """What becomes of rows of a table."""

    INSERT = "insert"
    UPSERT = "upsert"
    UPDATE = "update"


class Role(StrEnum):
    """What a token allows."""

    ADMIN = "admin"
    INGEST = "ingest"
    QUERY = "query"
