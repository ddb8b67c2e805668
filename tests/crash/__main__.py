"""Entry: `python -m tests.crash [--kills N] [--seed N]`. A process of its own, since it forks: no threads before."""

import argparse
import random
import sys
import time

from tests.crash import revocations
from tests.crash.harness import Lost, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="Kill a store again and again.")
    parser.add_argument("--kills", type=int, default=500, help="how often (500)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="to repeat a run")
    given = parser.parse_args()
    print(f"{given.kills} kills with --seed {given.seed}", flush=True)
    started = time.monotonic()
    try:
        tokens = revocations.run(given.kills, given.seed)
        print(tokens, flush=True)
        tally = run(given.kills, given.seed)
    except Lost:
        return 1
    print(f"{tally}\n0 lost, 0 twice, every answer right; {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
