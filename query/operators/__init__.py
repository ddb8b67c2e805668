"""Operators: read streams in slices and produce candidate rows."""
