"""The benchmarks of loads run, and compare with what they say."""

import pytest

from tests.benchmarks.test_quick import lines, run

pytestmark = pytest.mark.spark
ROWS = 100_000


@pytest.fixture(scope="module")
def figures() -> list[dict[str, object]]:
    done = run("benchmarks.spark", "--quick", "--rows", str(ROWS))
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    assert {figure["bench"] for figure in found} == {"load", "skew", "regions", "growth"}
    assert all(isinstance(figure["ours"], float | int) and figure["ours"] > 0 for figure in found)
    return found


def of(figures: list[dict[str, object]], bench: str, metric: str) -> list[dict[str, object]]:
    return [f for f in figures if f["bench"] == bench and str(f["metric"]).endswith(metric)]


def test_a_load_is_compared_with_sorting_and_its_stages_are_told(figures):
    (load,) = of(figures, "load", "load")
    assert load["opponent"] == "sort and write" and load["sizes"] == {"rows": ROWS}
    told = {str(f["metric"]) for f in figures if f["bench"] == "load"}
    assert {"rows a second", "stage checking", "stage writing", "stage committing"} <= told


def test_a_skewed_load_is_compared_with_an_even_one_in_the_harder_order(figures):
    (load,) = of(figures, "skew", "load, skewed")
    assert load["opponent"] == "even" and load["sizes"] == {"rows": ROWS, "order": "stores"}
    (part,) = of(figures, "skew", "largest part")
    assert part["met"] is True  # rows, not time: it holds anywhere


def test_most_of_a_join_is_in_few_bytes(figures):
    reads, got = of(figures, "regions", "read"), of(figures, "regions", "got")
    assert {f["opponent"] for f in reads} == {"all regions", "source files"}
    assert [f["met"] for f in got] == [True, True]
    (journey,) = (f for f in reads if str(f["metric"]).startswith("Complete") and f["opponent"] == "all regions")
    assert journey["met"] is True  # bytes, not time


def test_an_unknown_part_is_refused_by_name():
    done = run("benchmarks.spark", "sparks")
    assert done.returncode == 2
    assert "sparks" in done.stderr and "regions" in done.stderr
