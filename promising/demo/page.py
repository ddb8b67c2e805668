"""The HTML page of the demo: one file with embedded pictures."""

import base64
import os
import sys
from dataclasses import dataclass
from html import escape
from pathlib import Path

from promising.demo import journey
from promising.demo.charts import Race, amount_chart, duration, narrowing_chart, race_chart, share_chart
from promising.demo.findings import Findings
from promising.demo.questions import BEST, ERROR, MONTH, RAREST, SAMPLE, Average, Pairs

STYLE = """
:root { color-scheme: light dark; --ink: #1d2129; --paper: #ffffff; --faint: #5b6270; --line: #d9dce2; --shade: #f4f5f7;
  --accent: #00618f; --other: #c2571a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6ea; --paper: #15181d; --faint: #a2a9b5; --line: #383d47;
  --shade: #20242b; --accent: #6cc3f0; --other: #f0955c; } }
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
.hero { display: grid; grid-template-columns: minmax(0, 1.15fr) minmax(0, 1fr);
  gap: 1.5rem 2.5rem; align-items: start; }
.two { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1rem 2.5rem; align-items: start; }
@media (max-width: 52rem) { .hero, .two { grid-template-columns: minmax(0, 1fr); } }
.big { font-size: clamp(1.7rem, 4.2vw, 2.7rem); line-height: 1.15; font-weight: 700; margin: 0.9rem 0 0.3rem; }
.big b { color: var(--accent); white-space: nowrap; }
.small { color: var(--faint); font-size: 0.88rem; }
svg { display: block; width: 100%; max-width: 36rem; height: auto; font: 13px system-ui, sans-serif; fill: var(--ink); }
svg .ours { fill: var(--accent); } svg .plain { fill: var(--other); } svg .guess { fill: var(--other); opacity: 0.35; }
svg .tick { fill: var(--faint); font-size: 11.5px; } svg .name { font-weight: 600; } svg .grid { stroke: var(--line); }
svg .axis { stroke: var(--faint); } svg .exact { stroke: var(--other); stroke-width: 2; stroke-dasharray: 6 4; }
svg .bound { stroke: var(--accent); stroke-width: 2; }
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
            (f"{there} describe even_kinds", "the grid again"),
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


PLAIN = "Exact analytics over data at rest are what DuckDB is made for: use it for them."
GAP_LABELS = ("none", "to 0.50", "to 1", "to 2", "to 5", "more")


def coverage_text(share: float | None) -> str:
    """A share in percent with two significant digits, or "unknown".

    >>> coverage_text(0.000496), coverage_text(0.42), coverage_text(1.0), coverage_text(None)
    ('0.05 %', '42 %', '100 %', 'unknown')
    """
    return "unknown" if share is None else f"{float(f'{share * 100:.2g}'):.10g} %"


def races(found: Findings) -> list[Race]:
    """The questions of the first chart."""
    sample, average = found.pairs[SAMPLE], found.year
    whole = found.whole
    out = [
        Race(
            "a fair sample / all pairs",
            sample.seconds,
            whole.seconds if whole else None,
            whole is None or whole.done,
            whole.whole(found.total) if whole else None,
        ),
        _race(f"average, within {ERROR:.0%} / exact".replace("%", " %"), average.seconds, average),
    ]
    out += [_race(f"the {name} first", found.pairs[d].seconds, found.pairs[d]) for d, name in ORDERS]
    return out


ORDERS = ((BEST, "most frequent"), (RAREST, "rarest"))


def _race(label: str, seconds: float, asked: Pairs | Average) -> Race:
    plain = asked.plain
    return Race(label, seconds, plain.seconds if plain else None, plain is None or plain.done)


@dataclass(frozen=True)
class Page:
    """The page of a run."""

    found: Findings
    names: list[str]
    grid: bytes

    def html(self) -> str:
        """The page."""
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>promising: the answer before the join is done</title>
<style>{STYLE}</style>
</head>
<body>
<main>
{self._hero()}
{self._pairs()}
{self._average()}
{self._rarest()}
{self._watches()}
{self._plain()}
{self._cells()}
{self._next()}
</main>
</body>
</html>
"""

    def _hero(self) -> str:
        found, sample = self.found, self.found.pairs[SAMPLE]
        whole = found.whole
        if whole is None:
            big = f"A fair sample of the answer in <b>{duration(sample.seconds)}</b>"
            compared = "DuckDB is not installed, so nothing is compared: pip install duckdb, and run the demo again."
        else:
            takes = whole.whole(found.total)
            about = "" if whole.done else "about "
            big = (
                f"A fair sample in <b>{duration(sample.seconds)}</b>, instead of all pairs in {about}{duration(takes)}"
            )
            rest = (
                "DuckDB delivered all pairs."
                if whole.done
                else f"DuckDB, on one thread, was stopped after {duration(whole.seconds)}, with"
                f" {coverage_text(whole.rows / max(found.total, 1))} of the pairs; {duration(takes)} is at that rate."
            )
            compared = rest if takes > sample.seconds else f"{rest} On so few rows the plain engine is faster."
        last = found.year.last
        value = (
            f"The average gap is {last.value:.2f} dollars ({last.lower:.2f} to {last.upper:.2f}),"
            f" known after {duration(found.year.seconds)}."
            if last
            else "There are no pairs to average."
        )
        return f"""<header class="hero">
<div>
<h1>How far apart are the prices that two customers pay for the same kind of product?</h1>
<p>A grocery chain asks this of one half of its stores against the other. Each sale must be compared with each sale of
that kind in the other half: {found.rows:,} sales make {found.total:,} pairs.</p>
<p class="big">{big}</p>
<p>{value}</p>
<p class="small">{compared}</p>
<p><strong>What is behind it:</strong> promising answers SQL over streams, best rows first, within a budget of time.
It has a small summary of every stretch of a stream, which shows which pairs are frequent, rare or a fair draw before
the join is computed. Every answer reports its coverage.</p>
</div>
<div><figure>{race_chart(races(found))}
<figcaption class="small">Measured in this run, same machine, same rows; answers of promising cross gRPC, its kernels
were loaded. "over": stopped there, not done.</figcaption></figure>
<p class="small">{PLAIN}{self._of_kinds()} About the data: {escape(journey.REMARK)}</p></div>
</header>"""

    def _of_kinds(self) -> str:
        """A plain question, if DuckDB is here."""
        if self.found.simple_plain is None:
            return ""
        return (
            f" Sales per kind in this run: DuckDB {duration(self.found.simple_plain)}, promising"
            f" {duration(self.found.simple)}, each the best of three."
        )

    def _table(self, pairs: Pairs) -> str:
        rows = "".join(
            f'<tr><td>{escape(self.names[p.kind])}</td><td class="number">{p.paid:.2f}</td>'
            f'<td class="number">{p.other_paid:.2f}</td><td class="number">{p.store} / {p.other_store}</td></tr>\n'
            for p in pairs.first
        )
        whole = " of the rows asked for" if "LIMIT" in pairs.sql else " of all pairs"
        return f"""<div class="wide" tabindex="0" role="group" aria-label="pairs"><table>
<thead><tr><th scope="col">kind</th><th scope="col" class="number">paid, $</th>
<th scope="col" class="number">paid there, $</th><th scope="col" class="number">stores</th></tr></thead>
<tbody>{rows}</tbody></table></div>
<p>{pairs.rows:,} pairs of {pairs.kinds:,} kinds in {duration(pairs.seconds)} ({duration(pairs.cpu)} of CPU time);
coverage {coverage_text(pairs.coverage)}{whole}. {_beside(pairs)}</p>"""

    def _pairs(self) -> str:
        best, sample = self.found.pairs[BEST], self.found.pairs[SAMPLE]
        return f"""<section>
<h2>Best pairs first, or a fair sample</h2>
<div class="two"><div><h3>Most frequent kinds first</h3>{self._table(best)}</div>
<div><h3>A fair sample</h3>{self._table(sample)}</div></div>
<figure>{share_chart(sample.gaps, GAP_LABELS, "difference of the two prices, dollars")}
<figcaption>What the sample says: the share of pairs by how far apart they are; {sample.gap:.2f} dollars on
average.</figcaption></figure>
<details><summary>the statement</summary><pre>{escape(sample.sql)}</pre></details>
</section>"""

    def _average(self) -> str:
        month = self.found.month
        if not month.steps:
            return ""
        held = {
            None: "",
            True: "The exact value, computed beside it, is within the last bounds.",
            False: "The exact value, computed beside it, is outside the last bounds; they hold 19 times out of 20.",
        }[month.held]
        return f"""<section>
<h2>WITH ERROR: stop when it is known well enough</h2>
<p>The same average over the last {MONTH} days, {month.pairs:,} pairs. {held} {_beside(month)}</p>
<figure>{narrowing_chart(month)}</figure>
<pre>{escape(month.sql)}</pre>
</section>"""

    def _rarest(self) -> str:
        return f"""<section>
<h2>The rarest first</h2>
{self._table(self.found.pairs[RAREST])}
</section>"""

    def _watches(self) -> str:
        w = self.found.watched
        bars = [("promising, standing", w.cpu, f"{w.cpu * 1000:.0f} ms")]
        if w.polled is not None and w.merged is not None:
            bars.append(("DuckDB, each polled", w.polled, f"{w.polled * 1000:.0f} ms"))
            bars.append(("DuckDB, rewritten by hand as one join", w.merged, f"{w.merged * 1000:.0f} ms"))
        by_hand = (
            " If all conditions have one form, and you maintain the table of them yourself, the join by hand is best."
            if w.merged is not None and w.merged < w.cpu
            else ""
        )
        return f"""<section>
<h2>{w.selections:,} standing selections</h2>
<p>Each watches one product for a sale at twice its usual price. {w.live:,} sales were replayed in {w.days} days of the
log; {w.delivered:,} of {w.expected:,} matching rows were delivered.{by_hand}</p>
<figure>{amount_chart(bars, "CPU time for one day of the log, milliseconds, ingest included")}</figure>
<pre>{escape(w.example)}</pre>
</section>"""

    def _plain(self) -> str:
        return f"""<section>
<h2>When to use something else</h2>
<p>{PLAIN}{self._of_kinds()} A query written for one key by hand is fast there, too.</p>
</section>"""

    def _cells(self) -> str:
        told = self.found.told
        picture = _image(
            self.grid,
            f"The value x time grid of the summary {told.name}: a panel per granularity, buckets upwards",
            f"The summary {told.name} on {told.key}: {told.tuples:,} tuples of {told.keys:,} keys in"
            f" {len(told.zones)} zones and {told.bytes / 1e6:.0f} MB. Every cell knows its tuples and has a"
            " sketch of them.",
        )
        return f"""<section>
<h2>What a summary knows</h2>
<p>A stream's past is a grid: time zones across, value buckets up. The newest tuples are in fine zones, which the stream
itself has cut; with age they collapse into coarser ones.</p>
{picture}
</section>"""

    def _next(self) -> str:
        entries = "".join(f"<dt>{escape(command)}</dt><dd>{escape(does)}</dd>" for command, does in commands(None))
        return f"<section>\n<h2>What to type next</h2>\n<dl>{entries}</dl>\n</section>"


def _beside(asked: Pairs | Average) -> str:
    """What the plain engine did with the same question."""
    if asked.plain is None:
        return ""
    return f"DuckDB: {'exact in' if asked.plain.done else 'not done after'} {duration(asked.plain.seconds)}."
