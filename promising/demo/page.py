"""The HTML page of the demo: one file with embedded pictures."""

import base64
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from promising.demo import journey
from promising.demo.running_sum import Sums
from promising.grid.cells import REASONS
from promising.grid.picture import COLOURS_OF
from promising.index.regions import Description, Story
from promising.index.time_text import instant, readable

STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --paper: #ffffff; --faint: #5b6270; --line: #d9dce2; --shade: #f4f5f7;
  --accent: #00618f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --paper: #15181d; --faint: #a2a9b5; --line: #383d47;
  --shade: #20242b; --accent: #6cc3f0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.5rem; }
p, figcaption, li { max-width: 46rem; }
.remark { color: var(--faint); border-left: 3px solid var(--line); padding-left: 0.8rem; }
figure { margin: 1rem 0; }
figcaption { color: var(--faint); margin-top: 0.5rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
.wide img { display: block; width: 100%; min-width: 44rem; background: #ffffff; }
table { border-collapse: collapse; width: 100%; font-size: 0.92rem; }
th, td { text-align: left; padding: 0.35rem 0.7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child > * { border-bottom: 0; }
th { white-space: nowrap; }
thead th { background: var(--shade); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.fixed { font-family: ui-monospace, monospace; white-space: pre; font-size: 0.88rem; }
.swatch { display: inline-block; width: 0.8rem; height: 0.8rem; border-radius: 2px; margin-right: 0.45rem; }
pre { background: var(--shade); padding: 0.8rem; overflow-x: auto; border-radius: 6px; font-size: 0.9rem; }
summary { cursor: pointer; color: var(--accent); }
dt { font-family: ui-monospace, monospace; font-size: 0.9rem; overflow-wrap: anywhere; }
dd { margin: 0 0 0.7rem 1rem; color: var(--faint); }
"""


def commands(address: str | None) -> list[tuple[str, str]]:
    """Commands to try next, and what they do. `address`: of the running service, or None if it has stopped."""
    promising = _program()
    first = (f"{promising} --help", "all commands")
    if address is not None:
        there = f"{promising} --target {address}"
        return [
            first,
            (f"{there} sql", "a shell on this service: statements, history, completion"),
            (f"{there} describe even_items", "the grid again"),
            (f'{there} query "SELECT count(*) AS n, avg(Price) AS mean FROM odd WITH ERROR 0.01"', "a question"),
        ]
    return [
        first,
        (f"{promising} serve", "a service at 127.0.0.1:50151, until Ctrl-C; then, in another terminal:"),
        (f"{promising} sql", "a shell on it: CREATE STREAM, SELECT, SHOW STREAMS, ..."),
        (f"{promising} status", "what it holds"),
        ("make demo DEMO_ARGS=--stay", "this demo again, with its service left running to be asked"),
    ]


def _program() -> str:
    """How to call `promising` here: by its path, unless it is in PATH."""
    script = Path(sys.executable).parent / "promising"
    if not script.exists() or str(script.parent) in os.environ.get("PATH", "").split(os.pathsep):
        return "promising"
    try:
        return str(script.relative_to(Path.cwd()))
    except ValueError:
        return str(script)


def _image(png: bytes, alt: str, caption: str) -> str:
    """An embedded picture, which scrolls sideways if it is wider than the screen."""
    data = base64.b64encode(png).decode()
    return (
        f'<figure>\n<div class="wide" tabindex="0" role="group" aria-label="picture, scrolls sideways">'
        f'<img alt="{escape(alt)}" src="data:image/png;base64,{data}"></div>\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


@dataclass(frozen=True)
class Page:
    """The content of the page. `lines` are those of the join: a heading, then one per preference."""

    rows: int
    first: str
    last: str
    rate: float
    window: str
    budget: float
    preferences: Mapping[str, str]
    lines: list[tuple[str, ...]]
    sums: Sums
    grid: bytes
    curves: bytes
    told: Description
    stories: list[Story]

    def html(self) -> str:
        """The page."""
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>promising: a year of shopping</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<h1>promising: the best rows first, and how much of the answer they are</h1>
<p>{self.rows:,} rows of a retail log, {self.first} to {self.last}, in two streams by the number of the store.
The past was loaded over gRPC at {self.rate:,.0f} rows a second; the rest was replayed while the first questions below
were asked.</p>
<p class="remark">About the data: {escape(journey.REMARK)} It is the Complete Journey retail log.</p>
</header>
{self._join()}
{self._aggregate()}
{self._cells()}
{self._zones()}
{self._next()}
</main>
</body>
</html>
"""

    def _join(self) -> str:
        heads = "".join(f'<th scope="col">{name}</th>' for name in self.preferences)
        prefers = "".join(f"<td>{escape(what)}</td>" for what in self.preferences.values())
        body = "".join(
            f'<tr><th scope="row">{escape(line[0])}</th>'
            + "".join(f'<td class="fixed">{escape(cell)}</td>' for cell in line[1:])
            + "</tr>\n"
            for line in self.lines
        )
        picture = _image(
            self.curves,
            "Curves of coverage against CPU time for the preferences DESC, ASC and WEIGHTED",
            "How much of the join is there, after how much CPU time. DESC begins with the items that have the most"
            " pairs, ASC with those that have the fewest; WEIGHTED draws pairs at random, so that what is there is a"
            " fair sample at any moment.",
        )
        return f"""<section>
<h2>One join, three preferences</h2>
<p>What was sold in stores with even and with odd numbers, over the last {escape(self.window)}, each within
{self.budget * 1000:.0f} ms of CPU time, one after the other while tuples came in. A row is an item, and a price of it
in each kind of store.</p>
<div class="wide"><table>
<thead><tr><td></td>{heads}</tr></thead>
<tbody><tr><th scope="row">prefers</th>{prefers}</tr>
{body}</tbody></table></div>
{picture}
</section>"""

    def _aggregate(self) -> str:
        found = self.sums
        rows = "".join(
            f'<tr><td class="number">{s.cpu * 1000:,.1f} ms</td><td class="number">{s.value:,.0f}</td>'
            f'<td class="number">{s.lower:,.0f} to {s.upper:,.0f}</td></tr>\n'
            for s in found.steps
        )
        return f"""<section>
<h2>A sum that ends when it is known well enough</h2>
<pre>{escape(found.sql)}</pre>
<div class="wide"><table>
<thead><tr><th scope="col" class="number">CPU time</th><th scope="col" class="number">estimate</th>
<th scope="col" class="number">bounds, 95 %</th></tr></thead>
<tbody>{rows}<tr><td class="number">{found.exact_cpu * 1000:,.1f} ms</td><td class="number">{found.exact:,.0f}</td>
<td class="number">exact, of {found.pairs:,} pairs</td></tr>
</tbody></table></div>
<p>The exact sum is {"within" if found.held else "outside"} the last bounds.</p>
</section>"""

    def _cells(self) -> str:
        told = self.told
        picture = _image(
            self.grid,
            f"The value x time grid of the summary {told.name}: a panel per granularity, buckets upwards",
            f"The summary {told.name} on {told.key}: {told.tuples:,} tuples of {told.keys:,} keys in"
            f" {len(told.zones)} zones and {told.bytes / 1e6:.0f} MB. Every cell knows its tuples and has a"
            " sketch of them.",
        )
        return f"""<section>
<h2>What a summary knows</h2>
<p>A stream's past is a grid: time zones across, value buckets up. What came last is in fine zones, which the stream
itself has cut; with age they collapse into coarser ones.</p>
{picture}
</section>"""

    def _zones(self) -> str:
        body = "".join(self._zone(story) for story in self.stories)
        seen = [reason for reason in REASONS if any(s.zone.reason == reason for s in self.stories)]
        spans = ", ".join(f"T_{i} = {readable(span)}" for i, span in enumerate(self.told.spans, 1))
        meanings = "".join(
            f'<li><span class="swatch" style="background:{COLOURS_OF[r]}"></span>{r}: {escape(REASONS[r])}</li>'
            for r in seen
        )
        return f"""<section>
<h2>Its zones, and why each ends where it does</h2>
<p>Granularities span {spans}.</p>
<ul>{meanings}</ul>
<div class="wide"><table>
<thead><tr><th scope="col">zone</th><th scope="col">from</th><th scope="col">to</th>
<th scope="col" class="number">tuples</th><th scope="col">ends by</th><th scope="col">story</th></tr></thead>
<tbody>{body}</tbody></table></div>
</section>"""

    def _zone(self, story: Story) -> str:
        zone = story.zone
        lines = "".join(f"<p>{escape(line)}</p>" for line in story.lines)
        return (
            f"<tr><td>G_{zone.granularity}&nbsp;{zone.zone}</td><td>{instant(zone.start)[:16]}</td>"
            f'<td>{instant(zone.end)[:16]}</td><td class="number">{zone.tuples:,}</td>'
            f'<td><span class="swatch" style="background:{COLOURS_OF[zone.reason]}"></span>{zone.reason}</td>'
            f"<td><details><summary>why</summary>{lines}</details></td></tr>\n"
        )

    def _next(self) -> str:
        entries = "".join(f"<dt>{escape(command)}</dt><dd>{escape(does)}</dd>" for command, does in commands(None))
        return f"<section>\n<h2>What to type next</h2>\n<dl>{entries}</dl>\n</section>"
