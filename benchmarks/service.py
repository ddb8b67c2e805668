"""Entry: `python -m benchmarks.service [--quick] [part ...]`.

Parts: ingest, latency, concurrency, callers, soak, memory.
"""

from benchmarks import (
    service_callers,
    service_concurrency,
    service_ingest,
    service_latency,
    service_memory,
    service_soak,
)
from benchmarks.harness import run_parts

PARTS = {
    "ingest": service_ingest.run,
    "latency": service_latency.run,
    "concurrency": service_concurrency.run,
    "callers": service_callers.run,
    "soak": service_soak.run,
    "memory": service_memory.run,
}


if __name__ == "__main__":
    run_parts("benchmarks.service", "Measure the service.", PARTS, quick="about two minutes")
