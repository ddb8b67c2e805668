"""Entry: `python -m benchmarks.index [--quick] [part ...]`. Parts: insert, join, memory, zones, search, counts."""

from benchmarks import counts, insert, join, memory, search, zones
from benchmarks.harness import run_parts

PARTS = {
    "insert": insert.run,
    "join": join.run,
    "memory": memory.run,
    "zones": zones.run,
    "search": search.run,
    "counts": counts.run,
}


if __name__ == "__main__":
    run_parts("benchmarks.index", "Measure the index.", PARTS, quick="under a minute")
