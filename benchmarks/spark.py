"""Entry: `python -m benchmarks.spark [--quick] [--rows N ...] [part ...]`. Parts are load, skew, regions and growth."""

from benchmarks import spark_growth, spark_load, spark_regions, spark_skew
from benchmarks.harness import run_parts

PARTS = {"load": spark_load.run, "skew": spark_skew.run, "regions": spark_regions.run, "growth": spark_growth.run}


if __name__ == "__main__":
    run_parts("benchmarks.spark", "Measure loads by Spark.", PARTS, quick="about three minutes", sized=True)
