"""Aggregates by group: exact over rows that were read, with confidence intervals over rows that were drawn."""
