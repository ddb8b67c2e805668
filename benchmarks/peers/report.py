"""What a run of the peers tells: tables for people, a line of JSON for each figure, Markdown for the documentation."""

from collections.abc import Iterable
from typing import Any

from benchmarks.harness import Figure, Report

TITLES = {
    "join": "continuous window join",
    "selections": "standing selections",
    "top": "pairs of the most frequent items first",
    "rare": "pairs of the rarest items first",
    "sampled": "a fair sample of the join",
    "sum": "a sum to 1 %",
    "sum-join": "a sum over a join to 1 %",
}
CONTINUOUS = ("join", "selections")
MS = 1e3
Told = dict[str, Any]


def kind_of(task: str) -> str:
    return "selections" if task.startswith("selections") else task


def tuples_of(task: str, sizes: dict[str, int]) -> int:
    """Tuples that go in, of both streams where there are two."""
    kind = kind_of(task)
    if kind == "selections":
        return sizes["selections"]
    if kind == "join":
        return 2 * sizes["join"]
    return sizes["history"] if kind == "sum" else 2 * sizes["history"]


def title_of(task: str, sizes: dict[str, int]) -> str:
    kind = kind_of(task)
    what = TITLES[kind]
    if kind == "selections":
        return f"{int(task.rsplit('-', 1)[1]):,} {what} over {sizes['selections']:,} tuples"
    if kind == "join":
        return f"{what}, {sizes['join']:,} tuples a side, window of {sizes['window_us'] / 1e6} s"
    if kind in ("top", "rare"):
        return f"{what}: {sizes['top']:,} rows of a join, {sizes['history']:,} tuples a side"
    if kind == "sampled":
        return f"{what}: {sizes['sample']:,} rows, {sizes['history']:,} tuples a side"
    return f"{what}, {sizes['history']:,} tuples a side"


def tasks_of(told: Told) -> list[str]:
    """In the order in which they came."""
    return list(dict.fromkeys([*(e["task"] for e in told["entries"]), *(e["task"] for e in told["absent"])]))


def label(told: Told, entry: Told) -> str:
    title = told["peers"].get(entry["peer"], {}).get("title", entry["peer"])
    return f"{title}, {entry['way']}" if entry["way"] else str(title)


def entries_of(told: Told, task: str) -> list[Told]:
    """Ours first, then by time."""
    found = [e for e in told["entries"] if e["task"] == task]
    return sorted(found, key=lambda e: (e["peer"] != "promising", e["wall_s"]["median"]))


# --- on the screen ---------------------------------------------------------------------------------------------------


def show(report: Report, told: Told) -> None:
    """For each task the table of all peers, then figures of ours against each that is right."""
    for task in tasks_of(told):
        print(f"\n{title_of(task, told['sizes'])}")
        _print_table([header(), *rows_of(told, task)])
        figures = list(_figures(told, task))
        if figures:
            report.part(f"peers.{task}", title_of(task, told["sizes"]), figures)


def header() -> list[str]:
    return [
        "",
        "wall ms",
        "least-most",
        "CPU ms",
        "first row",
        "50 %",
        "90 %",
        "100 %",
        "tuples/s",
        "peak MB",
        "answer",
    ]


def rows_of(told: Told, task: str) -> list[list[str]]:
    rows = []
    for entry in entries_of(told, task):
        wall = entry["wall_s"]
        times = [_ms(entry[name]["median"]) for name in ("first_row_s", "share50_s", "share90_s", "share100_s")]
        answer = "right" if entry["right"] else entry["problem"]
        if entry["right"] and entry["error"]:
            answer = f"off by {entry['error']['median']:.2%}"
        rows.append(
            [
                label(told, entry),
                _ms(wall["median"]),
                f"{_ms(wall['least'])}-{_ms(wall['most'])}",
                _ms(entry["cpu_s"]["median"]),
                *times,
                f"{entry['tuples_per_s']:,.0f}",
                f"{entry['peak_bytes'] / 1e6:,.0f}",
                answer,
            ]
        )
    for absent in (one for one in told["absent"] if one["task"] == task):
        why = f"{absent['status']}: {absent['reason']}"
        rows.append([label(told, absent), *[""] * 9, why])
    return rows


def _ms(seconds: float) -> str:
    value = seconds * MS
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True)), row[-1]]
        print("  ".join(cells).rstrip())


def _figures(told: Told, task: str) -> Iterable[Figure]:
    """Of ours against each way of each peer. A wrong answer has no figure."""
    right = [e for e in entries_of(told, task) if e["right"]]
    ours = next((e for e in right if e["peer"] == "promising"), None)
    if ours is None:
        return
    sizes: dict[str, int | float | str] = {"tuples": ours["tuples"], "rows": ours["rows"]}
    for theirs in right:
        if theirs is ours:
            continue
        name = label(told, theirs)
        if kind_of(task) in CONTINUOUS:
            yield Figure("throughput", ours["tuples_per_s"], theirs["tuples_per_s"], name, "tuples/s", sizes=sizes)
        else:
            for metric, key in (("first row", "first_row_s"), ("whole answer", "share100_s")):
                yield Figure(metric, ours[key]["median"] * MS, theirs[key]["median"] * MS, name, "ms", sizes=sizes)
        yield Figure("CPU", ours["cpu_s"]["median"] * MS, theirs["cpu_s"]["median"] * MS, name, "CPU ms", sizes=sizes)
        yield Figure("peak memory", ours["peak_bytes"] / 1e6, theirs["peak_bytes"] / 1e6, name, "MB", sizes=sizes)


# --- in the documentation --------------------------------------------------------------------------------------------

HEAD = """# The same work on other systems

`make bench-peers` writes this page; [results.md](../results.md) interprets it. Medians of {rounds} rounds in turn;
{cores} cores, {memory:.0f} GiB; {java}. Times exclude starting, importing and loading. Every answer is
checked against brute force.

[peers.json](peers.json) has every measurement. `entries` lists, per task, peer and way, wall-clock and CPU time, time
to the first row and to 50, 90 and 100 % of the answer (median, least and most, in seconds), tuples per second, peak
memory, error and curve. `peers` has packages and settings, `sizes` the sizes of the data, `absent` the tasks that a
peer does not offer. `python -m benchmarks.peers --render docs/results/peers.json` prints this page from it.
"""


def markdown(told: Told) -> str:
    """The page of a file of results: what ran, wall-clock times of all, then for each task ours and the best other."""
    machine = told["machine"]
    tasks = tasks_of(told)
    lines = [
        HEAD.format(
            rounds=told["rounds"],
            cores=machine["cores"],
            memory=machine["memory_bytes"] / 2**30,
            java=machine["java"] or "no Java",
        ),
        *_markdown_table(
            ["peer", "version", "start, s", "load, s"],
            [_about(told, name) for name in told["peers"]],
        ),
        "",
        "## Wall-clock time, milliseconds",
        "",
        *_markdown_table(["peer", *tasks], _times(told, tasks)),
        *_absent(told),
    ]
    lines += ["", "## Ours and the fastest of the others", ""]
    lines += ["Time to the first row and to all rows, and CPU time, in milliseconds; memory in MB.", ""]
    head = ["task", "ours: first row", "all", "CPU", "memory", "other", "first row", "all", "CPU", "memory"]
    lines += _markdown_table(head, [_compared(told, task) for task in tasks])
    lines += ["", "## Seconds to a share of the answer", ""]
    for task in tasks:
        lines += [f"{title_of(task, told['sizes']).capitalize()}:", ""]
        lines += [f"![{task}](../images/peers/{task}.png)", ""]
    return "\n".join(lines[:-1]) + "\n"


def _about(told: Told, name: str) -> list[str]:
    peer = told["peers"][name]
    own = [e for e in told["entries"] if e["peer"] == name]
    spent = [f"{max(e[key]['median'] for e in own):.1f}" if own else "" for key in ("start_s", "load_s")]
    return [peer["title"], peer["version"], *spent]


def _times(told: Told, tasks: list[str]) -> list[list[str]]:
    """A row for each peer, with the time of its fastest way; a wrong answer has no time."""
    rows = []
    for name, peer in told["peers"].items():
        cells = []
        for task in tasks:
            own = [e for e in entries_of(told, task) if e["peer"] == name]
            right = [e for e in own if e["right"]]
            cells.append(_timed(right[0]) if right else "wrong" if own else "")
        rows.append([peer["title"], *cells])
    return rows


def _timed(entry: Told) -> str:
    return _ms(entry["wall_s"]["median"]) + (f" ({entry['way']})" if entry["way"] else "")


def _absent(told: Told) -> list[str]:
    """Why tasks are missing, one line for each peer and reason."""
    why: dict[str, list[str]] = {}
    for one in told["absent"]:
        why.setdefault(f"{label(told, one)}, {one['status']}: {one['reason']}", []).append(one["task"])
    return ["", *(f"- {reason} ({', '.join(tasks)})" for reason, tasks in why.items())] if why else []


def _compared(told: Told, task: str) -> list[str]:
    """A row of ours and the fastest of the others. Only right answers count."""
    right = [e for e in entries_of(told, task) if e["right"]]
    ours = next((e for e in right if e["peer"] == "promising"), None)
    other = next((e for e in right if e["peer"] != "promising"), None)
    return [task, *_measured(ours), label(told, other) if other else "", *_measured(other)]


def _measured(entry: Told | None) -> list[str]:
    if entry is None:
        return [""] * 4
    times = [_ms(entry[name]["median"]) for name in ("first_row_s", "share100_s", "cpu_s")]
    return [*times, f"{entry['peak_bytes'] / 1e6:,.0f}"]


def _markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [" | ".join(head), "|".join(["---"] * len(head)), *(" | ".join(row).rstrip() for row in cells)]
