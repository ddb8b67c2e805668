"""The benchmarks of the service run, and what they say about leaks holds in a small run, too."""

import pytest

from benchmarks.service_concurrency import jain
from tests.benchmarks.test_quick import lines, run

pytestmark = pytest.mark.deep("runs a benchmark, small")


def figures(part: str) -> list[dict[str, object]]:
    done = run("benchmarks.service", "--quick", part)
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    assert {figure["bench"] for figure in found} == {part}
    return found


def test_nothing_stays_behind_of_cancelled_streams_slow_readers_and_connections():
    found = {str(figure["metric"]): figure for figure in figures("soak")}
    for what in ("cancelled streams", "slow readers, too"):
        for kind, most in (("memory", 1.05), ("threads", 1.0), ("files", 1.0)):
            ratio = found[f"{kind}, {what}"]["ratio"]
            assert isinstance(ratio, float) and ratio <= most, found[f"{kind}, {what}"]
    assert found["files when they are gone"]["met"] is True
    assert found["readers told why"]["ratio"] == 1.0
    assert found["greeted back"]["ratio"] == 1.0


def test_256_clients_that_want_all_memory_stay_within_the_limit():
    found = {str(figure["metric"]): figure for figure in figures("memory")}
    within = found["memory, as counted"]["ratio"]
    assert isinstance(within, float)
    assert within <= 1.1
    assert found["ended with an answer or a limit"]["ratio"] == 1.0


def test_ingest_is_compared_with_an_empty_handler_and_with_rows_at_two_lengths():
    found = figures("ingest")
    rates = [f for f in found if f["metric"] == "wall"]
    assert {f["opponent"] for f in rates} == {"same bytes to an empty handler", "row-wise messages"}
    assert {f["sizes"]["KiB"] for f in rates} == {64, 256, 1024}  # type: ignore[index]  # JSON
    assert len({f["sizes"]["tuples"] for f in rates}) == 2  # type: ignore[index]  # JSON
    assert all(isinstance(f["ratio"], float) and f["ratio"] > 0 for f in rates)


def test_estimates_are_timed_while_tuples_come_in_at_half_the_rate_they_can():
    found = figures("latency")
    paced = next(f for f in found if f["metric"] == "ingest meanwhile")
    assert isinstance(paced["ratio"], float) and 0 < paced["ratio"] < 0.6  # never more, and less on a busy machine
    times = [f for f in found if f["metric"] in ("p50", "p99")]
    assert len(times) == 4
    assert all(f["opponent"] == "on an idle server" and f["ours"] and f["theirs"] for f in times)


def test_callers_are_answered_or_told_when_to_ask_again():
    found = figures("callers")
    assert {f["sizes"]["connections"] for f in found} == {1, 100}  # type: ignore[index]  # JSON
    assert all(f["met"] is True for f in found if f["metric"] == "neither")


def test_an_unknown_part_is_refused_by_name():
    done = run("benchmarks.service", "endurance")
    assert done.returncode == 2
    assert "endurance" in done.stderr and "soak" in done.stderr


@pytest.mark.parametrize(("shares", "index"), [([3.0, 3.0, 3.0], 1.0), ([1.0, 0.0, 0.0, 0.0], 0.25), ([0.0], 1.0)])
def test_fairness_is_one_if_all_have_the_same_and_least_if_one_has_all(shares, index):
    assert jain(shares) == index
