"""Validation of the keys of a query."""

from typing import Any

import numpy as np

from promising.errors import WrongType
from promising.index.schema import Schema
from promising.summaries.keys import Keys, as_keys


def check_keys(keys: Any, column: str, schema: Schema) -> Keys:
    """Keys of the key column's type; keys of the other type would silently match nothing."""
    asked = as_keys(keys)
    kind = "int" if isinstance(asked, np.ndarray) else "string"
    if len(asked) and kind != schema.types[column]:
        raise WrongType(f"keys of type {kind} (row 0: {asked[0]}), but column {column!r} is {schema.types[column]}")
    return asked
