"""Spark: bulk loads, streaming writes, and queries too large for one machine. Start at `bulk.py`."""
