"""Code generated from `proto/promising/v1` by `make proto`; never edited by hand."""
