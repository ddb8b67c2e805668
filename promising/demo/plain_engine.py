"""DuckDB as the plain engine beside the service: the same rows, one thread, in this process, with a time limit."""

import threading
import time
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

BATCH = 1 << 17  # rows fetched at a time


@dataclass(frozen=True)
class Timing:
    """Seconds that a caller waited; `done` is False if the time limit ended it. `rows` is the number received."""

    seconds: float
    done: bool
    rows: int

    def whole(self, rows: int) -> float:
        """Seconds for all `rows`: as measured, or extrapolated at the rate so far."""
        return self.seconds if self.done or not self.rows else self.seconds * rows / self.rows


class PlainEngine:
    """An in-memory database that holds the log in tables with the names of the streams."""

    def __init__(self) -> None:
        import duckdb  # noqa: PLC0415  # optional: see `installed`

        self.version = str(duckdb.__version__)
        self._stopped = duckdb.InterruptException
        self._database = duckdb.connect(config={"threads": 1})

    @staticmethod
    def installed() -> bool:
        return find_spec("duckdb") is not None

    def put(self, name: str, rows: pa.Table) -> None:
        """Append rows to a table, which is created if necessary."""
        self._database.register("given", rows)
        self._database.execute(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT * FROM given LIMIT 0")
        self._database.execute(f"INSERT INTO {name} SELECT * FROM given")
        self._database.unregister("given")

    def replace(self, name: str, rows: pa.Table) -> None:
        """Put rows into a table instead of what it holds."""
        self._database.execute(f"DROP TABLE IF EXISTS {name}")
        self.put(name, rows)

    def read(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of an answer, without a time limit."""
        return self._database.execute(sql).fetchall()

    def ask(self, sql: str, limit: float) -> tuple[Timing, list[tuple[Any, ...]]]:
        """The rows of an answer; none if it takes longer than `limit` seconds."""
        timer = threading.Timer(limit, self._database.interrupt)
        began = time.perf_counter()
        timer.start()
        try:
            rows = self.read(sql)
        except self._stopped:
            return Timing(time.perf_counter() - began, False, 0), []
        finally:
            timer.cancel()
            timer.join()
        return Timing(time.perf_counter() - began, True, len(rows)), rows

    def fetch(self, sql: str, limit: float) -> Timing:
        """Receive an answer batch by batch, as Arrow and without storing it, for at most about `limit` seconds."""
        began = time.perf_counter()
        rows = 0
        with self._database.sql(sql).to_arrow_reader(BATCH) as reader:
            for batch in reader:
                rows += batch.num_rows
                if time.perf_counter() - began > limit:
                    return Timing(time.perf_counter() - began, False, rows)
        return Timing(time.perf_counter() - began, True, rows)

    def close(self) -> None:
        self._database.close()
