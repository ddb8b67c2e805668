"""README's first query delivers: in every fresh process its budget leaves time for rows."""

import re
import subprocess
import sys

import pytest

from tests.docs.pages import ROOT, blocks

PROCESSES = 20


def run() -> str:
    first = next(b for b in blocks((ROOT / "README.md").read_text()) if b.language == "python")
    assert "BUDGET 100 MILLISECONDS" in first.text
    done = subprocess.run([sys.executable, "-c", first.text], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.deep("starts twenty processes")
def test_readmes_first_query_prints_rows_in_twenty_fresh_processes():
    run()  # compiles what is not compiled yet
    for _ in range(PROCESSES):
        said = run()
        found = re.match(r"([\d,]+) of about ([\d,]+) rows, [\d.]+%$", said.splitlines()[0])
        assert found is not None, said
        rows, total = (int(n.replace(",", "")) for n in found.groups())
        assert 0 < rows <= total
