"""Operators of a standing plan: each step applies the changes of its inputs and emits the changes of its output."""
