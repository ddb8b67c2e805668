"""Operators: what reads the streams, in slices, and hands on candidate rows."""
