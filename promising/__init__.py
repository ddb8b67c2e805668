"""The public API: `open`, `connect`, settings and errors."""

import os
from os import PathLike
from typing import TYPE_CHECKING

from promising import errors as errors
from promising.errors import PromisingError as PromisingError
from promising.lazy import lazy

if TYPE_CHECKING:
    from promising.client.session import connect as connect
    from promising.index.storage.store_options import StoreOptions as StoreOptions
    from promising.query.answers import Answer as Answer
    from promising.query.answers import Done as Done
    from promising.query.answers import Explanation as Explanation
    from promising.query.answers import Frame as Frame
    from promising.query.answers import Progress as Progress
    from promising.query.session import Session as Session

# Read by gRPC when it starts. Its fork support sometimes breaks a child that only executes another program, as Spark
# does with Java; we fork for nothing else.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "query.answers": ["Answer", "Done", "Explanation", "Frame", "Progress"],
        "query.session": ["Session"],
        "index.storage.store_options": ["StoreOptions"],
        "client.session": ["connect"],
    },
    here=["PromisingError", "errors", "open"],
)


def open(
    path: str | PathLike[str] | None = None, *, seed: int | None = None, options: "StoreOptions | None" = None
) -> "Session":
    """A session in this process.

    path: the data directory, whose data is recovered; created if missing, one process at a time. None stores everything
        in memory, until the session ends.
    seed: of the key hash, a secret of the installation; None picks one, or uses that of the directory.
    options: storage options of the directory.

    >>> session = open()
    >>> print(session.execute("CREATE STREAM store1 (ts TIMESTAMP, item_id BIGINT, price DOUBLE) TIMESTAMP BY ts"))
    stream store1 created
    >>> session.ingest("store1", {"ts": [0, 1, 2], "item_id": [7, 7, 9], "price": [1.0, 2.0, 4.0]}).accepted
    3
    >>> session.query("SELECT item_id, sum(price) AS total FROM store1 GROUP BY item_id").to_arrow().to_pylist()
    [{'item_id': 7, 'total': 3.0}, {'item_id': 9, 'total': 4.0}]
    """
    from promising.loaders.spark_sql import spark_sql  # noqa: PLC0415  # slow to load: not for clients that only connect
    from promising.query.session import Session  # noqa: PLC0415

    if path is None:
        return Session(seed=seed, written=spark_sql)
    from promising.index.storage.store import Store  # noqa: PLC0415

    return Session(store=Store.open(path, seed=seed, options=options), written=spark_sql)
