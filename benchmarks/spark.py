"""Entry: `python -m benchmarks.spark [--quick] [--rows N ...] [part ...]`. Parts are load, skew and regions."""

from benchmarks import spark_load, spark_regions, spark_skew
from benchmarks.harness import run_parts

PARTS = {"load": spark_load.run, "skew": spark_skew.run, "regions": spark_regions.run}


if __name__ == "__main__":
    run_parts("benchmarks.spark", "Measure loads by Spark.", PARTS, quick="about three minutes", sized=True)
