"""Entry: `python -m benchmarks.query [--quick] [part ...]`. Parts: see `PARTS`; all if none is named."""

import pyarrow as pa

from benchmarks import (
    cells,
    coverage,
    desc_join,
    exact_join,
    freshness,
    heavy_tails,
    many_selections,
    overshoot,
    sampled_sum,
    strings,
    unposted,
)
from benchmarks.harness import run_parts

PARTS = {
    "desc": desc_join.run,
    "exact": exact_join.run,
    "sum": sampled_sum.run,
    "tails": heavy_tails.run,
    "many": many_selections.run,
    "overshoot": overshoot.run,
    "coverage": coverage.run,
    "fresh": freshness.run,
    "cells": cells.run,
    "strings": strings.run,
    "unposted": unposted.run,
}


if __name__ == "__main__":
    pa.set_cpu_count(1)
    run_parts("benchmarks.query", "Measure queries.", PARTS, quick="about a minute")
