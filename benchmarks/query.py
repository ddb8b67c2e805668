"""Entry: `python -m benchmarks.query [--quick] [part ...]`. Parts are desc, exact, sum, many and overshoot."""

import argparse
import time

import pyarrow as pa

from benchmarks import desc_join, exact_join, many_selections, overshoot, sampled_sum
from benchmarks.harness import Effort, Report

PARTS = {
    "desc": desc_join.run,
    "exact": exact_join.run,
    "sum": sampled_sum.run,
    "many": many_selections.run,
    "overshoot": overshoot.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query", description="Measure queries.")
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"what to measure: {', '.join(PARTS)}; all if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: about a minute")
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    pa.set_cpu_count(1)
    report = Report()
    started = time.monotonic()
    for name in given.parts or PARTS:
        PARTS[name](report, Effort(given.quick))
    report.close()
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
