"""The notebook runs from top to bottom, and shows what its text says."""

import copy

import pytest

from promising.query.answers import Progress
from tests.deploy.notebooks import read, run
from tests.docs.pages import ROOT

NOTEBOOK = ROOT / "docs" / "first-look.ipynb"


def test_it_runs_and_shows_answers():
    names, shown = run(read(NOTEBOOK))
    rows, progress, more, mean, estimates = (value for value in shown if value is not None)
    assert rows.column_names == ["item", "ts", "other"]
    assert 0 < rows.num_rows <= 5
    assert isinstance(progress, Progress)
    assert progress.rows == names["rows"].num_rows > 0
    assert more[0] >= progress.rows
    lower, value, upper = (bound.as_py() for bound in mean)
    assert lower <= value <= upper
    assert len(estimates) == 3


def test_its_links_lead_to_pages():
    text = "".join(
        line for cell in read(NOTEBOOK)["cells"] if cell["cell_type"] == "markdown" for line in cell["source"]
    )
    assert (NOTEBOOK.parent / "tutorial.md").exists()
    assert "(tutorial.md)" in text


def test_a_cell_that_fails_fails_the_test():
    notebook = copy.deepcopy(read(NOTEBOOK))
    notebook["cells"][-2]["source"] = ['session.estimate("no_such_summary", [1])']
    with pytest.raises(Exception, match="no_such_summary"):
        run(notebook)


def test_stored_outputs_are_refused(tmp_path):
    path = tmp_path / "with-outputs.ipynb"
    text = NOTEBOOK.read_text(encoding="utf-8")
    path.write_text(text.replace('"execution_count": null', '"execution_count": 3', 1), encoding="utf-8")
    with pytest.raises(AssertionError, match="clear the outputs"):
        read(path)
