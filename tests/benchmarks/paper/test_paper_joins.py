"""Figures 9 to 14 on small logs: what is counted is true, and curves have the shape they must; nothing is timed."""

import json
from functools import partial
from itertools import count, pairwise

import numpy as np
import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper import cold, fig11, fig12, fig13, fig14
from benchmarks.paper.joins import MINUTE, NUMBERS, Window, pairs_of, session_of, statement
from benchmarks.paper.logs import Log, complete_journey, generated
from benchmarks.paper.results import Curve, Goal, Outcome, Plot, spread, write
from benchmarks.paper.structures import STRUCTURES, WAYS, Player


@pytest.fixture(scope="module")
def log() -> Log:
    return generated(2_000, 1, drift=True, gap_us=MINUTE / 1_500, spell=500)


def brute(log: Log) -> set[tuple[int, int]]:
    found = np.nonzero(log.a["item_id"][:, None] == log.b["item_id"][None, :])
    return set(zip(*(where.tolist() for where in found), strict=True))


@pytest.mark.parametrize("direction", ["DESC", "ASC", "WEIGHTED"])
def test_a_part_of_the_output_is_true_and_no_pair_comes_twice(log, direction):
    session, exact = session_of(log), brute(log)
    for most in (10, 1_000, len(exact) // 2, len(exact)):
        a, b = pairs_of(session, statement(NUMBERS, direction, tail=f"LIMIT {most}"))
        found = set(zip(a.tolist(), b.tolist(), strict=True))
        assert len(found) == len(a) == most
        assert found <= exact
    session.close()


def test_the_prefix_of_simple_and_the_window_are_true(log):
    window = Window(log)
    exact = brute(log)
    assert window.exact == len(exact)
    a, b = window.prefix(500)
    assert len(a) == 500 and set(zip(a.tolist(), b.tolist(), strict=True)) < exact


@pytest.mark.deep("runs a figure of the paper, small")
def test_hot_joins_agree_and_ours_never_has_more_than_there_is(log):
    found = fig11.hot(log, 1, [0.5, 1.0])  # raises if the exact joins differ
    assert all(0 <= share <= 1 for share in (*found.ours, *found.kept, *found.simple))
    whole = fig11.hot(log, 1, [1.0], whole=True)
    assert whole.pairs == len(brute(log)) > found.pairs


@pytest.mark.parametrize("drift", [True, False])
def test_cold_output_rises_with_the_bytes_and_is_ahead_of_the_order_of_arrival(drift):
    log = generated(1 << 14, 1, drift=drift, gap_us=2 * MINUTE / (1 << 14))
    reads = [0.1, 0.25, 0.5, 1.0]
    found = cold.measure(log, 1 << 13, reads, [0.3, 0.6, 0.9])
    for points in (found.regions, found.simple, found.keys):
        assert all(a.got <= b.got and a.read <= b.read for a, b in pairwise(points))
    assert all(point.read <= read for point, read in zip(found.regions, reads, strict=True))
    assert found.regions[-1].got == found.simple[-1].got == 1.0
    assert found.regions[1].got > found.simple[1].got
    assert all(point.got >= share for point, share in zip(found.keys, [0.3, 0.6, 0.9], strict=True))


def test_ages_meet_where_all_of_the_output_is_there(log):
    found = fig12.ages(log, [0.1, 1.0])
    assert len({round(values[1], 6) for values in found.values()}) == 1
    assert found["fade 0.8"][0] <= found["no fade"][0]


def test_what_simple_sheds_is_part_of_the_exact_output(log):
    a, b = fig12.shed(Window(log), 0.2)
    found = list(zip(a.tolist(), b.tolist(), strict=True))
    assert len(found) == len(set(found)) and set(found) < brute(log)
    assert len(found) == pytest.approx(0.2 * len(brute(log)), rel=0.01)


@pytest.mark.parametrize("make", [lambda: complete_journey(8_000, 1), lambda: generated(3_000, 1, drift=True)])
def test_a_weighted_part_is_more_faithful_than_the_first_part(make):
    found = fig13.measure(make(), 1, [0.05, 0.2, 0.5], [1.0], 1)
    for of in fig13.OF:
        assert all(ours < simple for ours, simple in zip(found.ours[of], found.simple[of], strict=True))


def test_a_histogram_of_all_of_it_has_no_error():
    values = np.random.default_rng(1).random(1_000)
    whole = fig13.Histogram(values, np.ones(1_000))
    assert whole.mse(values) == 0
    assert whole.mse(np.zeros(10)) > whole.mse(values[:500]) > 0


def test_outliers_are_the_rarest_and_asc_finds_them_alone(log):
    items, pairs = fig14.outliers(log)
    keys, counts = np.unique([log.a["item_id"][i] for i, _ in brute(log)], return_counts=True)
    assert pairs == counts[np.isin(keys, items)].sum()
    assert counts[np.isin(keys, items)].max() < counts[~np.isin(keys, items)].min()
    assert len(items) / len(keys) >= 0.05
    found = fig14.measure(log, [0.25, 0.5, 1.0, 4.0], [1.0], 1)
    assert found.precision[:3] == [1.0, 1.0, 1.0]
    assert found.recall[2] == found.recall[3] == 1.0
    assert found.simple_recall[2] < 0.5 and found.precision[3] == pytest.approx(0.25, rel=0.01)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("way", WAYS)
def test_a_structure_finds_every_pair_of_the_window(name, way):
    log = generated(6_000, 1, drift=True, gap_us=20_000, spell=1_000)
    filled, batch, window = 5_000, 50, MINUTE
    player = Player(log, STRUCTURES[name], filled)
    played = player.play(batch, 3, window, way, None)
    wanted = 0
    for first in range(filled, filled + 3 * batch, batch):
        for side, seen in ((0, first), (1, first + batch)):
            mine, other = (log.a, log.b) if side == 0 else (log.b, log.a)
            now = int(mine["ts"][first + batch - 1])
            near = (other["ts"][:seen] > now - window) & (other["ts"][:seen] <= now)
            keys = mine["item_id"][first : first + batch]
            wanted += int((keys[:, None] == other["item_id"][:seen][near][None, :]).sum())
    assert played.outputs == wanted
    assert played.inputs == 2 * 3 * batch


def test_less_time_brings_fewer_pairs():
    log = generated(6_000, 1, drift=True, gap_us=20_000, spell=1_000)
    outputs = []
    for tau in (0.1, 0.4, None):
        clock = partial(next, count(0, 1_000))  # it goes on by a microsecond each time it is asked
        player = Player(log, "grid", 5_000)
        outputs.append(player.play(50, 2, MINUTE, "cells", tau, clock=clock).outputs)
    assert outputs[0] < outputs[1] < outputs[2]


def test_an_outcome_is_written_as_pictures_table_and_numbers(tmp_path):
    curve = Curve("ours", [1.0, 2.0], [[1.0, 2.0, 3.0], [2.0, 2.5, 4.0]])
    plots = [Plot("p", "A plot", "x", "y", [curve, Curve("theirs", [1.0, 2.0], [[1.0], [1.5]])], log_y=True)]
    outcome = Outcome("fig99", "A figure", plots, ["a", "b"], [["1", "2"]], [Goal("g", "1x", True)], ["So."], "data")
    write(outcome, tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(first) == {"p.png", "p.svg", "fig99.json", "fig99.md"}
    assert "| g | 1x | yes |" in first["fig99.md"].decode()
    assert json.loads(first["fig99.json"])["plots"][0]["curves"][0]["y"] == [[1.0, 2.0, 3.0], [2.0, 2.5, 4.0]]
    write(outcome, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first  # the same numbers, the same bytes
    assert spread([1.0, 2.0, 4.0]) == "2 (1 to 4)" and spread([0.5]) == "0.5"


@pytest.mark.deep("runs a figure of the paper, small")
def test_a_figure_runs_from_the_command_line_and_replaces_only_its_own_numbers(tmp_path, capsys):
    (tmp_path / "paper.json").write_text('{"fig9": {"kept": 1}}')
    assert paper.main(["--quick", "--out", str(tmp_path), "fig14"]) == 0
    numbers = json.loads((tmp_path / "paper.json").read_text())
    assert numbers["fig9"] == {"kept": 1} and numbers["fig14"]["figure"] == "fig14"
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert {line["bench"] for line in lines} == {"paper.fig14"}
    assert all({"metric", "ours", "theirs", "ratio"} <= set(line) for line in lines)
    assert len(list(tmp_path.glob("*.png"))) == len(numbers["fig14"]["plots"])


def test_an_unknown_figure_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        paper.main(["fig8"])
    assert "fig8" in capsys.readouterr().err
