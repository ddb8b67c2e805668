"""The keyed hash is Spark's: a cell built in SQL and a cell built here are the same cell."""

from typing import Any

import numpy as np
import pytest

from promising.summaries import hash_keys

pytestmark = pytest.mark.spark

SEEDS = [0, 42, -1, -(1 << 63), (1 << 63) - 1]
LONGS = [0, 1, -1, 42, 255, 1 << 31, -(1 << 31), 1 << 32, 1 << 53, -(1 << 63), (1 << 63) - 1]
STRINGS = [
    "",
    "a",
    "milk",
    "eight by",
    "just over eight",
    "nul\0inside",
    "Grüße",
    "世界",
    "🛒" * 3,
    "z" * 31,
    "z" * 32,
    "z" * 33,
    "z" * 64,
    "long, with umlauts: äöü " * 9,
]


def spark_hashes(spark: Any, keys: list[Any], sort: str, seed: int) -> list[int]:
    rows = spark.createDataFrame(list(enumerate(keys)), f"place INT, key {sort}")
    # Spark SQL has no literal for the least BIGINT: the parser reads its digits before the sign.
    hashed = rows.selectExpr("place", f"xxhash64(CAST('{seed}' AS BIGINT), key) AS hash").orderBy("place").collect()
    return [row["hash"] for row in hashed]


@pytest.mark.parametrize("seed", SEEDS)
def test_integers(spark: Any, seed: int):
    random = np.random.default_rng(1).integers(-(1 << 63), (1 << 63) - 1, 200).tolist()
    keys = LONGS + random
    assert hash_keys(keys, seed).view(np.int64).tolist() == spark_hashes(spark, keys, "BIGINT", seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_strings(spark: Any, seed: int):
    assert hash_keys(STRINGS, seed).view(np.int64).tolist() == spark_hashes(spark, STRINGS, "STRING", seed)
