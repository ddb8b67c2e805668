"""Entry: `python -m benchmarks.standing [--quick] [part ...]`: standing queries over sliding windows."""

import pyarrow as pa

from benchmarks import standing_crowded, standing_modes, standing_plans, standing_selections, standing_stores
from benchmarks.harness import run_parts

PARTS = {
    "freshness": standing_modes.freshness,
    "messages": standing_modes.messages,
    "speed": standing_modes.speed,
    "wire": standing_modes.wire,
    "weak": standing_stores.weak,
    "negation": standing_stores.negation,
    "distinct": standing_stores.distinct,
    "tables": standing_plans.tables,
    "orders": standing_plans.orders,
    "alone": standing_selections.alone,
    "many": standing_selections.many,
    "growth": standing_selections.growth,
    "crowded": standing_crowded.run,
}


if __name__ == "__main__":
    pa.set_cpu_count(1)
    run_parts("benchmarks.standing", "Measure standing queries.", PARTS, quick="some minutes")
