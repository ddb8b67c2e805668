"""Mutated inputs for everything that reads some: statements, Arrow, requests, files, tokens.

Entry: `python -m tests.fuzz [--cases N] [--seed N] [--only NAME] [--case N]`. `--case` runs one case alone.
"""

import argparse
import random
import sys

from tests.fuzz.cases import judged
from tests.fuzz.processes import watched
from tests.fuzz.subjects import SUBJECTS

CASES = 100_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Mutated inputs for all that reads some.")
    parser.add_argument("--cases", type=int, default=CASES, help=f"of each subject ({CASES:,})")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31), help="to repeat a run")
    parser.add_argument("--only", choices=SUBJECTS, action="append", help="this subject; may be repeated")
    parser.add_argument("--case", type=int, help="this case alone, of one subject")
    given = parser.parse_args()
    names = given.only or list(SUBJECTS)
    if given.case is not None:
        if len(names) != 1:
            parser.error("--case needs one --only")
        with SUBJECTS[names[0]]() as subject:
            print(f"{names[0]}: {judged(subject, given.seed, given.case)}")
        return 0
    print(f"{given.cases:,} cases each of {', '.join(names)} with --seed {given.seed}", flush=True)
    failed = [name for name in names if not watched(name, given.seed, given.cases)]
    print(f"not well: {', '.join(failed)}" if failed else "every input was refused in words, or answered right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
