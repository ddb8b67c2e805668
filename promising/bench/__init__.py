"""Measurements on your own data and machine: what `promising bench` runs."""
