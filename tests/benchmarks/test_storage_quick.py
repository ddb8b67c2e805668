"""The benchmarks of the store run, and compare with what they say."""

import pytest

from tests.benchmarks.test_quick import lines, run

pytestmark = pytest.mark.deep("runs a benchmark, small")


def figures(part: str) -> list[dict[str, object]]:
    done = run("benchmarks.storage", "--quick", part)
    assert done.returncode == 0, done.stderr
    found = lines(done.stdout)
    assert {figure["bench"] for figure in found} == {part}
    assert all(isinstance(figure["ours"], float | int) and figure["ours"] > 0 for figure in found)
    return found


def test_durable_ingest_is_compared_with_write_and_sync_at_three_sizes():
    found = figures("ingest")
    assert {(f["sizes"]["KiB"], f["sizes"]["producers"]) for f in found} == {  # type: ignore[index]  # JSON
        (size, producers) for size in (64, 256, 1024) for producers in (1, 4)
    }
    assert {(f["opponent"], f["goal"]) for f in found} == {("write and fdatasync", ">= 0.5")}


def test_rows_through_the_service_are_compared_with_the_same_in_memory():
    found = figures("wire")
    assert {f["opponent"] for f in found} == {"", "in memory"}


def test_a_start_is_compared_with_reading_its_files_dropped_and_warm_after_a_close_and_after_a_kill():
    found = [f for f in figures("restart") if f["metric"] == "start"]
    assert {(f["sizes"]["after"], f["sizes"]["cache"]) for f in found} == {  # type: ignore[index]  # JSON
        (after, cache) for after in ("a close", "a kill") for cache in ("cold", "warm")
    }


def test_a_start_with_queries_is_compared_with_one_without():
    found = figures("standing")
    assert [f["opponent"] for f in found] == ["without queries", "without queries", ""]


def test_a_cold_window_is_read_and_little_else():
    found = figures("cold")
    windows = [f for f in found if str(f["metric"]).startswith("window")]
    assert windows and any(str(f["metric"]).startswith("key") for f in found)
    for figure in windows:
        assert figure["opponent"] != "regions needed" or figure["met"] is True  # bytes, not time: it holds anywhere


def test_a_quarter_of_the_bytes_of_a_cold_join_brings_what_its_regions_can():
    found = [f for f in figures("regions") if f["goal"]]
    assert {f["opponent"] for f in found} == {"every key alone", "ideal order"}
    for figure in found:
        assert figure["opponent"] != "ideal order" or figure["met"] is True  # bytes and counts: it holds anywhere


def test_memory_is_told_of_the_process_that_fills_and_of_the_one_that_serves():
    metrics = {str(f["metric"]) for f in figures("memory")}
    assert {"resident, filling", "resident, serving", "grown, serving", "on disk"} <= metrics


@pytest.mark.parametrize("part", ["shelves"])
def test_an_unknown_part_is_refused_by_name(part):
    done = run("benchmarks.storage", part)
    assert done.returncode == 2
    assert part in done.stderr and "restart" in done.stderr
