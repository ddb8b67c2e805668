"""Aggregation by group: exact over rows read, with confidence intervals over sampled rows."""
