"""Entry: `python -m benchmarks.storage [--quick] [part ...]`. Parts are ingest, wire, restart, cold and memory."""

from benchmarks import storage_cold, storage_ingest, storage_memory, storage_restart
from benchmarks.harness import run_parts

PARTS = {
    "ingest": storage_ingest.run,
    "wire": storage_ingest.run_wire,
    "restart": storage_restart.run,
    "cold": storage_cold.run,
    "memory": storage_memory.run,
}


if __name__ == "__main__":
    run_parts("benchmarks.storage", "Measure the store on disk.", PARTS, quick="about three minutes")
