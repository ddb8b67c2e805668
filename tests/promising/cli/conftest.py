"""One service for all tests of the command line, with two stores in it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import promising
from tests.promising.cli.running import ROWS, START, Cli, Serving


def stock(seed: int) -> pa.Table:
    """Sales within an hour, in order of time."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(START + np.sort(rng.integers(0, 3_600_000_000, ROWS))).cast(pa.timestamp("us")),
            "item_id": (rng.zipf(1.5, ROWS) % 500).astype(np.int64),
            "price": rng.gamma(2.0, 2.5, ROWS).round(2),
            "till": [("front", "back", None)[i % 3] for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    serving = Serving(tmp_path_factory.mktemp("serving") / "log")
    try:
        yield serving.target()
    finally:
        assert serving.stop() == 0


@pytest.fixture(scope="session")
def stores(target: str) -> str:
    """The target, with streams store1 and store2, and summaries items1 and items2 on them."""
    with promising.connect(target) as session:
        for number in (1, 2):
            columns = "ts TIMESTAMP, item_id BIGINT, price DOUBLE, till VARCHAR"
            session.execute(f"CREATE STREAM store{number} ({columns}) TIMESTAMP BY ts")
            session.ingest(f"store{number}", stock(number))
            session.execute(
                f"CREATE SUMMARY items{number} ON store{number} (item_id)"
                " WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5) OPTIONS (buckets = 16)"
            )
    return target


@pytest.fixture
def cli(stores: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Commands run in an empty folder, with the stores as their target."""
    monkeypatch.chdir(tmp_path)
    return Cli(stores)
