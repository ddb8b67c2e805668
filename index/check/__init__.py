"""Invariant checks of streams and tables in memory; summaries are recomputed from their tuples."""

from promising.index.check.stream import check_stream
from promising.index.check.table import check_table

__all__ = ["check_stream", "check_table"]
