"""The benchmark of standing selections runs, checks that all find the same, and says what it found."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep("runs a benchmark, small")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("part", "metrics"),
    [
        ("alone", {"selections, one batch", "selections, one batch, kept"}),
        ("many", {"written", "kept", "delivered"}),
        (
            "growth",
            {"selections", "selections, kept", "a selection: 100 against 20", "a selection, kept: 100 against 20"},
        ),
    ],
)
def test_a_quick_run_has_a_figure_for_every_way(part, metrics):
    command = [sys.executable, "-m", "benchmarks.standing", "--quick", part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {figure["metric"] for figure in figures} == metrics
    for figure in figures:
        assert figure["bench"] == part
        assert figure["ours"] > 0 and (figure["theirs"] is None or figure["theirs"] > 0)
        assert figure["sizes"]["batch"] > 0
    if part != "growth":
        opponents = {str(figure["opponent"]).split(",")[0] for figure in figures if figure["theirs"] is not None}
        assert opponents == {"Polars", "DuckDB"}
