"""Test tools for streams: a clock, a brute-force oracle, and generators (in `promising.testing.streams`)."""

from promising.testing.clock import ManualClock
from promising.testing.oracle import Oracle

__all__ = ["ManualClock", "Oracle"]
