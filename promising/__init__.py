"""The front door: what a user of the house touches first."""

from os import PathLike

from query import Answer, Done, Explanation, Frame, Progress, Session
from summaries.errors import PromisingError, Unsupported

__all__ = ["Answer", "Done", "Explanation", "Frame", "Progress", "PromisingError", "Session", "open"]


def open(path: str | PathLike[str] | None = None, *, seed: int | None = None) -> Session:
    """A session in this process. Everything is kept in memory, and gone when it ends.

    seed: of the key hash, a secret of the installation; None picks one.

    >>> session = open()
    >>> print(session.execute("CREATE STREAM store1 (ts TIMESTAMP, item_id BIGINT, price DOUBLE) TIMESTAMP BY ts"))
    stream store1 created
    >>> session.ingest("store1", {"ts": [0, 1, 2], "item_id": [7, 7, 9], "price": [1.0, 2.0, 4.0]}).accepted
    3
    >>> session.query("SELECT item_id, sum(price) AS total FROM store1 GROUP BY item_id").to_arrow().to_pylist()
    [{'item_id': 7, 'total': 3.0}, {'item_id': 9, 'total': 4.0}]
    """
    if path is not None:
        raise Unsupported("a session with a path would keep its data on disk, which is not offered yet; leave it out")
    return Session(seed=seed)
