"""Expressions over one row: kinds of values, names, and functions over Arrow arrays compiled from syntax."""
