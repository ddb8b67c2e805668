"""Scalar expressions: types, names, and functions over Arrow arrays compiled from syntax."""
