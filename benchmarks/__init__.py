"""What the house promises about speed and size, measured. `python -m benchmarks.index --quick` takes a minute."""
