"""Spark: history in, streams in, and queries that outgrow one machine. Start at `bulk.py`."""
