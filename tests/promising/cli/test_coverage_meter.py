"""A coverage that is not known is shown as such: in the meter, the verdict, the client's bar, status and JSON."""

import io
import json
import math
from dataclasses import replace

import pyarrow as pa
import pytest
from rich.console import Console

from promising.cli.coverage_meter import covered, meter, verdict
from promising.cli.statement_result import explanation_facts
from promising.client.progress_bar import Bar
from promising.index.regions import Guess
from promising.query.answers import Explanation, Progress

KNOWN = Progress(
    rows=70,
    total=Guess(100.0, 80.0, 140.0),
    coverage=Guess(0.7, 0.5, 0.875),
    complete=False,
    cut="budget",
    cpu_seconds=0.1,
    granularities=(1,),
    read=9,
    entries=3,
    rank=1,
)
UNKNOWN = replace(KNOWN, total=Guess(math.nan, 70.0, 9e5), coverage=Guess(math.nan, 7e-5, 1.0))


def test_a_known_coverage_has_its_bounds():
    assert covered(KNOWN) == "70.0 % (50.0 % to 87.5 %)"
    assert "covers 70.0 % (50.0 % to 87.5 %) of about 100 (80 to 140) rows in all" in verdict(KNOWN, False)


def test_an_unknown_coverage_is_no_number():
    assert covered(UNKNOWN) == "unknown"
    assert "unknown" in meter(UNKNOWN).plain and "%" not in meter(UNKNOWN).plain
    assert verdict(UNKNOWN, False).endswith(": coverage unknown, at least 70 rows in all")
    assert verdict(UNKNOWN, True).endswith("at least 70 tuples or pairs that go in")


@pytest.mark.parametrize(("progress", "said"), [(KNOWN, "70.0 % covered"), (UNKNOWN, "coverage unknown; 70 rows")])
def test_the_clients_bar_says_so(progress, said):
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=120)) as bar:
        bar.show(progress)
    assert said in out.getvalue() and "nan" not in out.getvalue()


def test_json_has_null_for_an_unknown_number():
    made = Explanation([], UNKNOWN.total, (), pa.table({}), progress=UNKNOWN)
    facts = json.loads(json.dumps(explanation_facts(made), allow_nan=False))
    assert facts["total"] == {"value": None, "lower": 70.0, "upper": 9e5}
    assert facts["progress"]["coverage"]["value"] is None
