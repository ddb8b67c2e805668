"""ORDER BY."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from query.bound import Order


def sorted_places(keys: Sequence[pa.Array], orders: Sequence[Order]) -> NDArray[np.int64]:
    """The places of rows in order; rows that tie stay as they are. NaN is greater than every number, as in DuckDB."""
    columns: dict[str, pa.Array] = {}
    terms = []
    for number, (key, order) in enumerate(zip(keys, orders, strict=True)):
        direction = "descending" if order.descending else "ascending"
        columns[f"n{number}"] = key.is_null()
        terms.append((f"n{number}", "descending" if order.nulls_first else "ascending"))
        if pa.types.is_floating(key.type):
            columns[f"x{number}"] = pc.fill_null(pc.is_nan(key), False)
            terms.append((f"x{number}", direction))
        if not pa.types.is_null(key.type):
            columns[f"k{number}"] = key
            terms.append((f"k{number}", direction))
    columns["at"] = pa.array(np.arange(len(keys[0])))
    terms.append(("at", "ascending"))
    found: NDArray[np.int64] = pc.sort_indices(pa.table(columns), sort_keys=terms).to_numpy().astype(np.int64)
    return found
