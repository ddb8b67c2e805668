"""`python -m benchmarks.peers`: the same work on what a user would otherwise use."""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Report
from benchmarks.peers import driver, report
from benchmarks.peers.data import Truth, sizes_of, world
from benchmarks.peers.environments import KINDS, OURS, Kind, NotInstalled, installed, java_version, python_of

TASKS = ("join", "selections", "top", "rare", "sampled", "sum", "sum-join")
HISTORY = ("top", "rare", "sampled", "sum", "sum-join")


def groups_of(tasks: list[str], queries: int) -> driver.Groups:
    """Tasks that share what is loaded share a process."""
    made: driver.Groups = {}
    if "join" in tasks:
        made["join"] = ["join"]
    if "selections" in tasks:
        made["selections"] = [f"selections-{number}" for number in (max(queries // 10, 1), queries)]
    history = [task for task in HISTORY if task in tasks]
    if history:
        made["history"] = history
    return made


def main() -> None:
    given = _arguments()
    if given.render:
        print(report.markdown(json.loads(Path(given.render).read_text(encoding="utf-8"))), end="")
        return
    began = time.monotonic()
    sizes = sizes_of(given.quick, given.rows)
    threads = os.cpu_count() or 1
    pythons: dict[Kind, str] = {}
    missing: dict[str, str] = {}
    for kind in given.peers:
        try:
            pythons[kind] = python_of(kind, own=not given.quick)
        except NotInstalled as problem:
            missing[kind.name] = str(problem)
    with tempfile.TemporaryDirectory() as folder:
        of = world(sizes)
        of.write(Path(folder))
        groups = groups_of(given.tasks, sizes["queries"])
        plan = driver.Plan(groups, Path(folder), sizes, threads, given.rounds)
        results = driver.run(plan, pythons, Truth(of))
    for name, why in missing.items():
        for task in (task for tasks in groups.values() for task in tasks):
            results.leave_out(task, name, "", "not installed", why)
    told: dict[str, Any] = {
        "about": "the same work on what a user would otherwise use; medians over rounds, in turn",
        "quick": given.quick,
        "rounds": given.rounds,
        "machine": {"cores": threads, "memory_bytes": psutil.virtual_memory().total, "java": java_version()},
        "sizes": sizes,
        "peers": {
            kind.name: {
                "title": kind.title,
                "packages": installed(python),
                "version": results.versions.get(kind.name, ""),
                "settings": results.settings.get(kind.name, {}),
            }
            for kind, python in pythons.items()
        },
        "entries": [entry.told(report.tuples_of(entry.task, sizes)) for entry in results.entries.values()],
        "absent": [vars(absent) for absent in results.absent.values()],
    }
    report.show(Report(), told)
    if given.out:
        out = Path(given.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        out.with_suffix(".md").write_text(report.markdown(told), encoding="utf-8")
        print(f"all of it: {given.out}")
    if given.plots:
        from benchmarks.peers.picture import draw  # noqa: PLC0415  # matplotlib is for pictures alone

        print(*(f"drawn: {path.name}" for path in draw(told, Path(given.plots))), sep="\n")
    print(f"{time.monotonic() - began:.0f} s")
    wrong = [e for e in told["entries"] if not e["right"]]
    sys.exit(1 if wrong else 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, one round, the peers of this environment alone: half a minute"
    )
    parser.add_argument("--peers", default="", metavar="A,B", help=f"of {', '.join(KINDS)}; ours is always there")
    parser.add_argument("--tasks", default="", metavar="A,B", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--rows", type=int, metavar="N", help="tuples a side of the history; streams have a fifth")
    parser.add_argument("--rounds", type=int, metavar="N", help="3 if not given, 1 in a quick run")
    parser.add_argument("--out", metavar="FILE.json", help="docs/results/peers.json if not given; a quick run has none")
    parser.add_argument("--plots", metavar="DIR", help="docs/images/peers if not given; a quick run has none")
    parser.add_argument("--render", metavar="FILE.json", help="print stored results as Markdown; no run")
    given = parser.parse_args()
    names = [name for name in given.peers.split(",") if name] or [
        name for name, kind in KINDS.items() if kind.quick or not given.quick
    ]
    given.tasks = [name for name in given.tasks.split(",") if name] or list(TASKS)
    for name, known in [*((n, KINDS) for n in names), *((n, TASKS) for n in given.tasks)]:
        if name not in known:
            parser.error(f"no {name!r}; there are {', '.join(known)}")
    given.peers = [kind for name, kind in KINDS.items() if name in names or kind is OURS]
    given.rounds = given.rounds or (1 if given.quick else 3)
    if not given.quick:
        given.out = given.out or "docs/results/peers.json"
        given.plots = given.plots or "docs/images/peers"
    return given


if __name__ == "__main__":
    main()
