"""Measurements on your own data and machine, for `promising bench`."""
