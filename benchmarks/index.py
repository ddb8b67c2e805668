"""Entry: `python -m benchmarks.index [--quick] [part ...]`. Parts are insert, join, memory, zones and search."""

import argparse
import time

from benchmarks import insert, join, memory, search, zones
from benchmarks.harness import Effort, Report

PARTS = {"insert": insert.run, "join": join.run, "memory": memory.run, "zones": zones.run, "search": search.run}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.index", description="Measure the index.")
    parser.add_argument(
        "parts", nargs="*", metavar="part", help=f"what to measure: {', '.join(PARTS)}; all if none is named"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: under a minute")
    given = parser.parse_args()
    unknown = [part for part in given.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    report = Report()
    started = time.monotonic()
    for name in given.parts or PARTS:
        PARTS[name](report, Effort(given.quick))
    report.close()
    print(f"{time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
