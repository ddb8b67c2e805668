"""The order that preferences promise: most expected output first, and rarest first without a false outlier."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray

from promising.demo import journey
from promising.query import Session
from tests.query import skewed
from tests.query.stores import SECOND, Stores, filled, rows_of, stores, tuples

STORES = (367, 406)
"""The two with the most purchases, 41,334 and 32,602."""
DAY = 86_400
PAIRS = "SELECT a.k, a.id, b.id FROM a, b WHERE a.k = b.k"
COUNTS = "SUMMARY.Estimate.Count(a.k), SUMMARY.Estimate.Count(b.k)"


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """From 0 on, ties sharing the mean of theirs."""
    _, place, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    mean: NDArray[np.float64] = np.cumsum(counts) - (counts + 1) / 2
    return mean[place]


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def in_order(keys: Sequence[Any]) -> list[Any]:
    """Each key once, where it comes first."""
    return list(dict.fromkeys(keys))


# --- DESC ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def retail() -> tuple[Session, dict[str, dict[str, NDArray[Any]]]]:
    """A stream for each of two stores of Complete Journey, and what is in them."""
    log = journey.transactions()
    session = Session(clock=lambda: 1 << 60, seed=3)
    held = {}
    for name, store in zip("ab", STORES, strict=True):
        session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
        session.execute(f"CREATE SUMMARY by_{name} ON {name} (k) WITH GRANULARITY 7 DAYS AND COLLAPSE (4, 4)")
        mine = log.filter(pc.equal(log["StoreID"], store))
        columns = {"ts": mine["TimeStamp"].to_numpy().astype(np.int64), "k": mine["ItemID"].to_numpy()}
        assert session.ingest(name, columns).accepted == mine.num_rows
        held[name] = columns
    return session, held


@pytest.mark.parametrize("days", [None, 300, 200, 120, 30])
def test_desc_follows_the_exact_counts_on_complete_journey(retail, days):
    session, held = retail
    window = "" if days is None else f"WINDOW {days} DAYS"
    end = max(int(c["ts"].max()) for c in held.values())
    since = -1 if days is None else end - days * DAY * SECOND
    counts = [Counter(c["k"][c["ts"] > since].tolist()) for c in held.values()]
    exact = {key: n * counts[1][key] for key, n in counts[0].items() if key in counts[1]}
    sql = f"SELECT a.k FROM a, b WHERE a.k = b.k WITH PREFERENCE DESC {COUNTS} {window}"
    order = in_order(session.query(sql).to_arrow().column(0).to_pylist())
    assert set(order) == set(exact) and len(order) > 300
    values = [exact[key] for key in order]
    assert values == sorted(values, reverse=True)
    if days != 30:  # there, most products are 1, and no order at all could correlate so well with so many ties
        assert spearman(range(len(order)), [-v for v in values]) >= 0.95
    assert days is not None or values == sorted(values, reverse=True)


@pytest.mark.parametrize("window", [None, 25])
@pytest.mark.parametrize("preference", ["COUNT", "LOWER", "UPPER"])
def test_without_fade_a_key_comes_in_one_piece(preference, window):
    made = filled(900, 60)
    within = "" if window is None else f"WINDOW {window} SECONDS"
    rows = rows_of(made.session.query(f"{PAIRS} WITH PREFERENCE DESC SUMMARY.Estimate.{preference}(a.k) {within}"))
    keys = [row[0] for row in rows]
    changes = sum(x != y for x, y in itertools.pairwise(keys))
    assert changes == len(set(keys)) - 1 > 20


def test_exact_counts_give_the_exact_order():
    made = filled(900, 60)
    a, b = (Counter(made.columns(name)["k"].tolist()) for name in "ab")
    rows = rows_of(made.session.query(f"{PAIRS} WITH PREFERENCE DESC {COUNTS}"))
    values = [a[row[0]] * b[row[0]] for row in rows]
    assert values == sorted(values, reverse=True)
    rows = rows_of(made.session.query(f"{PAIRS} WITH PREFERENCE DESC 1.0 / SUMMARY.Estimate.Count(b.k)"))
    counts = [b[row[0]] for row in rows]
    assert counts == sorted(counts)


@pytest.mark.parametrize("window", [None, 25])
@pytest.mark.parametrize("direction", ["DESC", "ASC"])
def test_tuples_come_by_count_and_price(direction, window):
    made = filled(900, 60)
    within = "" if window is None else f"WINDOW {window} SECONDS"
    counts = Counter(made.window(window, "a")[0]["k"].tolist())
    sql = f"SELECT k, price FROM a WITH PREFERENCE {direction} SUMMARY.Estimate.Count(k) * price {within}"
    values = [counts[k] * price for k, price in rows_of(made.session.query(sql))]
    assert values == sorted(values, reverse=direction == "DESC")


@pytest.mark.parametrize("joined", [False, True])
def test_fade_lets_recent_entries_come_first(joined):
    """Each entry's share of the value falls by the factor for each granularity back; entries come by what is left."""
    made = filled(900, 60)
    bands = [of_granularity(made, name) for name in "ab"]
    counts = [
        Counter(zip(made.columns(n)["k"].tolist(), g.values(), strict=True)) for n, g in zip("ab", bands, strict=True)
    ]
    if joined:
        rows = rows_of(made.session.query(f"{PAIRS} WITH PREFERENCE DESC {COUNTS} FADE FACTOR 0.5"))
        at = [(k, bands[0][x], bands[1][y]) for k, x, y in rows]
        values = [counts[0][k, i] * counts[1][k, j] * 0.5 ** (i + j - 2) for k, i, j in at]
    else:
        sql = "SELECT k, id FROM a WITH PREFERENCE DESC SUMMARY.Estimate.Count(k) FADE FACTOR 0.5"
        values = [counts[0][k, bands[0][x]] * 0.5 ** (bands[0][x] - 1) for k, x in rows_of(made.session.query(sql))]
    assert len({b for g in bands for b in g.values()}) >= 3
    assert values == sorted(values, reverse=True)


def faded(ages: Sequence[int], half_life: int) -> float:
    """The factor of a row by the ages of its tuples, in quarters of a half life and more coarsely beyond four."""
    out = 1.0
    for age in ages:
        lives = age / half_life
        if lives >= 20:
            lives = 20 * 2 ** min(int(np.log2(lives / 20)), 4)
        out *= 0.5 ** (int(lives) if lives >= 4 else int(4 * lives) / 4)
    return out


@pytest.mark.parametrize("window", [None, 25, 6])
@pytest.mark.parametrize("half_life", [0.001, 0.5, 4, 60])
@pytest.mark.parametrize("direction", ["DESC", "ASC"])
@pytest.mark.parametrize("what", ["keys", "tuples", "pairs", "one side", "falling"])
def test_a_half_life_counts_ages_and_no_granularities(what, direction, half_life, window):
    made = filled(900, 60)
    made.ingest("b", {**tuples(30, 60, seed=7, start=40.0, seconds=0.5)})
    joined = what in ("pairs", "one side")
    within = "" if window is None else f"WINDOW {window} SECONDS"
    columns = made.window(window, "a", "b")
    counts = [Counter(c["k"].tolist()) for c in columns]
    at = [dict(zip(c["id"].tolist(), c["ts"].tolist(), strict=True)) for c in columns]
    now = max(max(a.values()) for a in at) if joined else max(made.columns("a")["ts"].tolist())
    if not joined and window is not None:
        columns = [{n: c[made.columns("a")["ts"] > now - window * SECOND] for n, c in made.columns("a").items()}]
        counts = [Counter(columns[0]["k"].tolist())]
        at = [dict(zip(columns[0]["id"].tolist(), columns[0]["ts"].tolist(), strict=True))]
    ask = {
        "keys": "SELECT k, id FROM a WITH PREFERENCE {} SUMMARY.Estimate.Count(k)",
        "tuples": "SELECT k, id, price FROM a WITH PREFERENCE {} SUMMARY.Estimate.Count(k) * price",
        "pairs": f"{PAIRS} WITH PREFERENCE {{}} {COUNTS}",
        "one side": f"{PAIRS} WITH PREFERENCE {{}} SUMMARY.Estimate.Count(b.k)",
        "falling": "SELECT k, id FROM a WITH PREFERENCE {} 1.0 / SUMMARY.Estimate.Count(k)",
    }[what]
    rows = rows_of(made.session.query(f"{ask.format(direction)} FADE HALF LIFE {half_life} SECONDS {within}"))
    values = []
    for row in rows:
        value = {
            "keys": lambda r: counts[0][r[0]],
            "tuples": lambda r: counts[0][r[0]] * r[2],
            "pairs": lambda r: counts[0][r[0]] * counts[1][r[0]],
            "one side": lambda r: counts[1][r[0]],
            "falling": lambda r: 1 / counts[0][r[0]],
        }[what](row)
        ages = [now - at[side][row[1 + side]] for side in range(2 if joined else 1)]
        factor = faded(ages, int(half_life * SECOND))
        values.append(value / factor if direction == "ASC" else value * factor)
    assert len(rows) == len({row[1:3] for row in rows})
    assert len(rows) == (sum(n * counts[1][k] for k, n in counts[0].items()) if joined else len(at[0]))
    steps = np.diff(values if direction == "DESC" else values[::-1])
    assert (steps <= 1e-9 * np.max(np.abs([values[1:], values[:-1]]), axis=0)).all()


def test_a_half_life_is_explained():
    made = filled(900, 60)
    sql = "SELECT k FROM a WITH PREFERENCE SUMMARY.Estimate.Count(k) FADE HALF LIFE 5 SECONDS"
    explained = made.session.explain(sql)
    assert "priority halves with every 5 s of age" in str(explained)
    faded = explained.regions["fade"].to_pylist()
    assert faded and all(0 < f <= 1 for f in faded) and max(faded) == 1


def of_granularity(made: Stores, stream: str) -> dict[int, int]:
    """The granularity of each tuple, by its id, in order of arrival."""
    columns = made.columns(stream)
    out = np.zeros(len(columns["ts"]), int)
    for region in made.session.regions(f"by_{stream}", sorted(set(columns["k"].tolist()))):
        out[(columns["ts"] >= region.start) & (columns["ts"] < region.end)] = region.granularity
    assert (out > 0).all()
    return dict(zip(columns["id"].tolist(), out.tolist(), strict=True))


# --- ASC -------------------------------------------------------------------------------------------------------------


def crowded(structure: str, strings: bool) -> Stores:
    """Keys so many that no sketch tells rare from frequent, and a few rare ones among them."""
    made = stores(structure=structure, strings=strings)
    for number, name in enumerate("ab"):
        made.ingest(name, tuples(6_000, 500, seed=51 + number, exponent=0.6, strings=strings))
    return made


def rare(counts: Counter[Any], share: float = 0.05) -> tuple[set[Any], int]:
    """The keys with the lowest frequencies: as many as are surely within that share, ties left in."""
    ordered = sorted(counts.values())
    limit = ordered[max(int(share * len(ordered)) - 1, 0)]
    return {key for key, n in counts.items() if n <= limit}, limit


@pytest.mark.parametrize("fade", ["", "FADE FACTOR 1"])
@pytest.mark.parametrize("window", [None, 15])
@pytest.mark.parametrize(
    ("structure", "strings"),
    [("adaptive", False), ("adaptive", True), ("none", False), ("time", False), ("grid", False)],
)
def test_asc_selects_no_false_outlier(structure, strings, window, fade):
    made = crowded(structure, strings)
    within = "" if window is None else f"WINDOW {window} SECONDS"
    counts = Counter(made.window(window, "a")[0]["k"].tolist())
    outliers, _ = rare(counts)
    few = sum(counts[key] for key in outliers)
    sql = f"SELECT k FROM a WITH PREFERENCE ASC SUMMARY.Estimate.Count(k) {fade} {within}"
    first = [row[0] for row in rows_of(made.session.query(f"{sql} LIMIT {few}"))]
    assert Counter(first) == {key: counts[key] for key in outliers}
    everything = [counts[row[0]] for row in rows_of(made.session.query(sql))]
    assert everything == sorted(everything)


@pytest.mark.parametrize("window", [None, 15])
def test_asc_joins_no_false_outlier(window):
    made = crowded("adaptive", False)
    within = "" if window is None else f"WINDOW {window} SECONDS"
    a, b = (Counter(c["k"].tolist()) for c in made.window(window, "a", "b"))
    counts = Counter({key: n * b[key] for key, n in a.items() if key in b})
    outliers, limit = rare(counts)
    sql = f"{PAIRS} WITH PREFERENCE ASC {COUNTS} {within} LIMIT {sum(counts[key] for key in outliers)}"
    rows = rows_of(made.session.query(sql))
    assert {row[0] for row in rows} == outliers
    assert max(counts[row[0]] for row in rows) <= limit


@pytest.mark.parametrize("slices", range(1, 12))
def test_a_budget_that_ends_among_the_rare_keys_shows_only_those(slices):
    made = crowded("adaptive", False)
    counts = Counter(made.columns("a")["k"].tolist())
    outliers, _ = rare(counts)
    few = sum(counts[key] for key in outliers)
    sql = "SELECT k FROM a WITH PREFERENCE ASC SUMMARY.Estimate.Count(k)"
    answer = made.session.query(sql, budget=0.02 * slices)
    rows = [row[0] for row in rows_of(answer)]
    assert set(rows[:few]) <= outliers
    values = [counts[key] for key in rows]
    assert values == sorted(values)


def test_a_key_that_grows_while_the_answer_waits_is_judged_as_it_was():
    """The rare keys of the snapshot, although others are rare by the time that they are listed."""
    made = crowded("adaptive", False)
    counts = Counter(made.columns("a")["k"].tolist())
    outliers, _ = rare(counts)
    sql = f"SELECT k FROM a WITH PREFERENCE ASC SUMMARY.Estimate.Count(k) LIMIT {sum(counts[k] for k in outliers)}"
    answer = made.session.query(sql, budget=0)
    assert rows_of(answer) == []
    more = tuples(2_000, 500, seed=91, start=40, seconds=1)
    more["k"] = np.random.default_rng(1).choice(sorted(outliers), 2_000)
    made.ingest("a", more)
    assert answer.progress.token is not None
    rows = rows_of(made.session.resume(answer.progress.token))
    assert {row[0] for row in rows} == outliers


def test_rare_keys_among_named_ones_come_in_order_inside_a_window():
    session = skewed.filled()
    data, other = skewed.batch(30_000, 3_000, 0), range(100, 3_000, 7)
    inside = np.asarray(data["ts"]) > np.max(np.asarray(data["ts"])) - 450 * SECOND
    counts = np.bincount(np.asarray(data["k"])[inside], minlength=3_000)
    named = ", ".join(map(str, other))
    sql = f"SELECT k FROM a WHERE k IN ({named}) WITH PREFERENCE ASC SUMMARY.Estimate.Count(k) WINDOW 450 SECONDS"
    found = counts[session.query(sql).to_arrow()["k"].to_numpy()]
    assert len(found) == counts[list(other)].sum()
    assert (np.diff(found) >= 0).all()


@pytest.mark.parametrize("preference", ["DESC 1.0 / {}", "DESC {} - 30", "ASC {} - 30"])
def test_a_preference_that_may_fall_fades_in_order(preference):
    """Priorities are worked out anew from the rows: by key, granularity and in the order they came."""
    session = skewed.filled(granularity=60, collapse="(4, 4)", n=20_000, keys=300)
    sql = "SELECT k, ts FROM a WITH PREFERENCE " + preference.format("SUMMARY.Estimate.Count(k)") + " FADE FACTOR 0.5"
    rows = session.query(sql).to_arrow()
    keys, times = rows["k"].to_numpy(), rows["ts"].cast("int64").to_numpy()
    horizons = np.array(session.catalog.summaries["sa"].index.state.horizons)
    bands = (times[:, None] < horizons[None, :]).sum(axis=1)
    entry = keys * 10 + bands
    first = np.flatnonzero(np.concatenate(([True], entry[1:] != entry[:-1])))
    assert len(first) == len(np.unique(entry)), "each entry in one piece"
    size = dict(zip(*np.unique(entry, return_counts=True), strict=True))
    total = dict(zip(*np.unique(keys, return_counts=True), strict=True))
    rising = preference.startswith("ASC")
    count = np.array([total[keys[i]] if rising else size[entry[i]] for i in first], float)
    value = 1.0 / count if "/" in preference else count - 30
    priority = value / 0.5 ** bands[first] if rising else value * 0.5 ** bands[first]
    assert (np.diff(priority if rising else -priority) >= -1e-12).all()
