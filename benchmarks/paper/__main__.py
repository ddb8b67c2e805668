"""The paper's figures, run and drawn: `python -m benchmarks.paper [--quick] [--seeds N] [--out DIR] [fig9 ...]`.

Tables go to the standard output, one line of JSON a number after them, progress to the standard error. Plots and
numbers go to the folder of `--out`; without it to the documentation, which gets a page of all figures, too. A run
replaces its own figures only. `--render FILE.json` prints the page of stored numbers and runs nothing.
"""

import argparse
import json
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.harness import Effort
from benchmarks.paper import results
from benchmarks.paper.page import machine, page
from benchmarks.paper.results import Outcome

FIGURES = {f"fig{number}": f"benchmarks.paper.fig{number:02d}" for number in range(9, 17)}
FIGURES["auto"] = "benchmarks.paper.auto"
"""The module of each figure, imported when the figure is run; it has `run(effort, seeds) -> Outcome`."""
IMAGES = Path("docs/images/paper")
NUMBERS = Path("docs/results/paper.json")
PAGE = NUMBERS.with_suffix(".md")
SEEDS, QUICK_SEEDS = 3, 1


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper", description="The paper's experiments.")
    parser.add_argument("figures", nargs="*", metavar="figure", help=f"{', '.join(FIGURES)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="small sizes and one seed: under a minute in all")
    parser.add_argument("--seeds", type=int, help=f"number of runs, each on its own data; default {SEEDS}")
    parser.add_argument("--first-seed", type=int, default=1, metavar="K", help="the seeds are K, K + 1, ...")
    parser.add_argument("--out", type=Path, help=f"folder for plots and numbers; default {IMAGES} and {NUMBERS}")
    parser.add_argument("--render", type=Path, metavar="FILE.json", help="print stored numbers as Markdown; no run")
    asked = parser.parse_args(given)
    unknown = [name for name in asked.figures if name not in FIGURES]
    if unknown:
        parser.error(f"no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    if asked.render:
        print(page(json.loads(asked.render.read_text(encoding="utf-8"))), end="")
        return 0
    count = asked.seeds or (QUICK_SEEDS if asked.quick else SEEDS)
    seeds = list(range(asked.first_seed, asked.first_seed + count))
    missed = []
    began = time.monotonic()
    for name in asked.figures or FIGURES:
        outcome = _run(name, asked.quick, seeds)
        _tell(outcome)
        _keep(outcome, seeds, asked.out, asked.quick)
        if asked.out is None and not asked.quick:
            PAGE.write_text(page(json.loads(NUMBERS.read_text(encoding="utf-8"))), encoding="utf-8")
        missed += [f"{name}: {goal.text}; measured {goal.measured}" for goal in outcome.goals if goal.met is False]
    print(f"\n{len(missed)} goals missed")
    for line in missed:
        print(f"  {line}")
    print(f"{time.monotonic() - began:.0f} s")
    return 0


def _run(name: str, quick: bool, seeds: list[int]) -> Outcome:
    began = time.monotonic()
    print(f"{name} ...", file=sys.stderr, flush=True)
    outcome: Outcome = import_module(FIGURES[name]).run(Effort(quick), seeds)
    print(f"{name} took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return outcome


def _tell(outcome: Outcome) -> None:
    print("\n" + results.text(outcome), flush=True)
    for metric in outcome.metrics or _from_goals(outcome):
        ours, theirs = metric.get("ours"), metric.get("theirs")
        ratio = ours / theirs if ours is not None and theirs else None
        print(json.dumps({"bench": f"paper.{outcome.figure}", **metric, "ratio": ratio}), flush=True)


def _from_goals(outcome: Outcome) -> list[dict[str, Any]]:
    """The metrics of a figure that names none of its own."""
    return [{"metric": g.text, "ours": None, "theirs": None, "told": g.measured, "met": g.met} for g in outcome.goals]


def _keep(outcome: Outcome, seeds: list[int], out: Path | None, quick: bool) -> None:
    """Plots and numbers; those of a quick run only where they were asked for."""
    if out is not None:
        results.write(outcome, out)
        _merge(outcome, seeds, out / NUMBERS.name)
    elif not quick:
        with tempfile.TemporaryDirectory() as spare:  # of the files only the pictures are kept in the tree
            results.write(outcome, Path(spare))
            IMAGES.mkdir(parents=True, exist_ok=True)
            for file in Path(spare).iterdir():
                if file.suffix in (".png", ".svg"):
                    (IMAGES / file.name).write_bytes(file.read_bytes())
        _merge(outcome, seeds, NUMBERS)


def _merge(outcome: Outcome, seeds: list[int], path: Path) -> None:
    """Replace the figure in the file of all numbers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    numbers = json.loads(path.read_text()) if path.exists() else {}
    numbers[outcome.figure] = {**results.as_json(outcome), "machine": machine(), "seeds": seeds}
    path.write_text(json.dumps(dict(sorted(numbers.items())), indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
