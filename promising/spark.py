"""Spark with a service: the data source `promising`, bulk load, tables and scale-out queries, based on `connect`.

from promising.spark import register
register(spark)
df.write.format("promising").option("address", "till:50151").option("stream", "store1").mode("append").save()
"""

import tempfile
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from promising.errors import BadSettings
from promising.loaders.data_source import Source
from promising.loaders.shipping import classic, ship

if TYPE_CHECKING:
    from promising.client.session import RemoteSession
    from promising.index.table import Changed, Mode
    from promising.loaders.bulk import Report
    from promising.loaders.scale_out import Figures

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
FilePath = str | PathLike[str]


@dataclass(frozen=True)
class Connection:
    """How to reach a service, serialisable for other machines: calling it opens a session.

    ca, certificate, key: the content of the PEM files, not their paths.

    >>> Connection("till:50151", token="secret")
    Connection(address='till:50151')
    """

    address: str
    token: str | None = field(default=None, repr=False)
    ca: bytes | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)

    def __call__(self) -> "RemoteSession":
        from promising.client.session import connect  # noqa: PLC0415  # tasks that only read files need no network

        with tempfile.TemporaryDirectory(prefix="promising-") as folder:  # readable by its owner only
            return connect(
                self.address,
                token=self.token,
                ca=_written(folder, "ca", self.ca),
                certificate=_written(folder, "certificate", self.certificate),
                key=_written(folder, "key", self.key),
            )


def connection(
    address: str,
    *,
    token: str | None = None,
    ca: FilePath | None = None,
    certificate: FilePath | None = None,
    key: FilePath | None = None,
) -> Connection:
    """A connection to the service at `address`, host:port, with the arguments of `promising.connect`.

    The files are read here, and need not exist on other machines.
    """
    return Connection(address, token, _read("ca", ca), _read("certificate", certificate), _read("key", key))


class PromisingSource(Source):
    """The data source `promising`; its options are documented in `loaders.data_source`."""

    def connection(self) -> Connection:
        return connection(
            self._needed("address", "127.0.0.1:50151"),
            token=self._option("token"),
            ca=self._option("ca"),
            certificate=self._option("certificate"),
            key=self._option("key"),
        )


def register(spark: Any) -> None:
    """Register the format `promising` in a Spark session, and ship our code to its executors.

    Sets `spark.sql.python.filterPushdown.enabled` for the session: without it Spark refuses readers with filter
    pushdown.

        register(spark)
        source = spark.read.format("promising").option("address", "till:50151").option("stream", "store1")
        source.option("start", "2024-01-01").option("keys", '{"item_id": [7, 9]}').load().show()
    """
    classic(spark).conf.set(PUSHDOWN, "true")
    ship(spark)
    spark.dataSource.register(PromisingSource)


def bulk_load(spark: Any, service: str | Connection, stream: str, source: Any, *, staging: str, **how: Any) -> "Report":
    """Load files or a DataFrame into a stream of a service: every valid row exactly once, whatever is retried.

    service: host:port, or a `connection`. Other arguments and the result are as for `promising.loaders.bulk.bulk_load`.

        report = bulk_load(spark, "till:50151", "store1", "logs/*.csv", staging="/shared/staging", time_zone="UTC")
        print(report.accepted, report.refused)
    """
    from promising.loaders.bulk import bulk_load as load  # noqa: PLC0415

    with _connection(service)() as session:
        return load(spark, session, stream, source, staging=staging, **how)


def load_table(frame: Any, service: str | Connection, name: str, *, mode: "Mode" = "upsert") -> "Changed":
    """Write the rows of a DataFrame to a reference table of a service atomically.

    service: host:port, or a `connection`. mode: `upsert` replaces rows of the same primary key, `insert` refuses them,
    `update` refuses others. The rows pass through the driver, 1,048,576 at most.

        changed = load_table(spark.read.csv("rates.csv", header=True, inferSchema=True), "till:50151", "rates")
        print(changed.inserted, changed.updated)
    """
    from promising.loaders.table_writer import load_table as load  # noqa: PLC0415

    with _connection(service)() as session:
        return load(frame, session, name, mode=mode)


def query(spark: Any, service: str | Connection, sql: str, *, share: float = 1.0) -> "tuple[Any, Figures]":
    """The answer to a SELECT, computed by Spark over the service's stored data, and figures of what must be read.

    service: host:port, or a `connection`. share: below 1, only the most promising keys that give that share of the
    expected output.

        rows, figures = query(spark, "till:50151", "SELECT item_id, count(*) AS n FROM store1 GROUP BY item_id")
        rows.show()
    """
    from promising.loaders.scale_out import scale_out  # noqa: PLC0415

    return scale_out(spark, _connection(service), sql, share=share)


def _connection(service: str | Connection) -> Connection:
    return connection(service) if isinstance(service, str) else service


def _read(what: str, path: FilePath | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as problem:
        raise BadSettings(f"{what}: cannot read {str(path)!r}: {problem.strerror}") from None


def _written(folder: str, name: str, content: bytes | None) -> Path | None:
    if content is None:
        return None
    path = Path(folder, name)
    path.write_bytes(content)
    return path
