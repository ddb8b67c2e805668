"""Queries that spill however small they are."""

import pytest

from promising.query import merge_sort, query_memory, result_sinks, spill, spilled_groups
from promising.query.query_memory import QueryLimits

PLENTY = QueryLimits(1 << 40, 1 << 40, 1 << 40)
SIZES = (
    (query_memory, "OWN", 0.0),
    (result_sinks, "WORTH", 1),
    (result_sinks, "RUN", 64),
    (merge_sort, "RUN", 64),
    (merge_sort, "FAN", 3),
    (spill, "BATCH_ROWS", 10),
    (spilled_groups, "WAITING", 4_000),
    (spilled_groups, "FULL", 20_000),
)


def spill_early(patch: pytest.MonkeyPatch) -> None:
    """Sessions with limits and a store spill at once, in runs, batches and files of a few rows."""
    for module, name, value in SIZES:
        patch.setattr(module, name, value)
