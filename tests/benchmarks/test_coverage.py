"""The benchmark of coverage, small: what joins report of their totals before they have done any work."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.coverage import Case, Outcome, cases_of, figures, logs, session_with, truth
from promising.index.regions import Guess

ROWS, CASES = 20_000, 24


@pytest.fixture(scope="module")
def found() -> list[Outcome]:
    """With no work done, nothing depends on the speed of the machine."""
    out = []
    for log in logs(ROWS, seed=3):
        session = session_with(log)
        for number, case in enumerate(cases_of(log, CASES, seed=3)):
            answer = session.query(replace(case, budget_ms=50).sql, seed=number)
            out.append(Outcome(case, truth(log, case), answer.progress))
            answer.close()
    return out


def test_totals_are_known_near_and_within_their_bounds(found):
    by_metric = {f.metric: f.ours for f in figures(found) if f.sizes["log"] == "both"}
    assert by_metric["unknown"] <= 5
    assert by_metric["within 20 % of the truth"] >= 80
    assert by_metric["bounds hold"] >= 95
    assert by_metric["p95 of upper / lower"] <= 2


def test_the_set_has_both_logs_keys_of_both_types_windows_and_conditions(found):
    cases: list[Case] = [o.case for o in found]
    assert len({c.log for c in cases}) == 2 and {c.key for c in cases} == {"item", "name"}
    assert None in {c.window for c in cases} and len({c.window for c in cases}) > CASES
    assert len({c.condition for c in cases}) == len({c.preference for c in cases}) == 5


def test_the_truth_is_what_the_whole_answer_has():
    log = logs(1_500, seed=5)[0]
    session = session_with(log)
    for case in cases_of(log, 12, seed=5):
        whole = session.query(case.sql.rsplit(" BUDGET", 1)[0]).to_arrow()
        assert whole.num_rows == truth(log, case)


def test_an_outcome_out_of_its_bounds_or_too_wide_does_not_hold(found):
    good = next(o for o in found if o.known and o.truth)

    def told(value: float, lower: float, upper: float) -> Outcome:
        return Outcome(good.case, good.truth, replace(good.progress, total=Guess(value, lower, upper)))

    n = float(good.truth)
    assert told(n, n, n).held and told(n, n, n).close
    assert not told(2 * n, 1.5 * n, 2.5 * n).held and not told(2 * n, 1.5 * n, 2.5 * n).close
    assert not told(n, 0.4 * n, n).held
    assert told(np.nan, 0.0, 9 * n).held and not told(np.nan, 0.0, 9 * n).close
