"""Entry: `python -m benchmarks.storage [--quick] [part ...]`. Parts are ingest, wire, restart, standing, cold,
regions and memory."""

from benchmarks import (
    storage_cold,
    storage_ingest,
    storage_memory,
    storage_regions,
    storage_restart,
    storage_standing,
)
from benchmarks.harness import run_parts

PARTS = {
    "ingest": storage_ingest.run,
    "wire": storage_ingest.run_wire,
    "restart": storage_restart.run,
    "standing": storage_standing.run,
    "cold": storage_cold.run,
    "regions": storage_regions.run,
    "memory": storage_memory.run,
}


if __name__ == "__main__":
    run_parts("benchmarks.storage", "Measure the store on disk.", PARTS, quick="about three minutes")
