"""Every Python example in the documentation runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[int, str]]:
    """The Python blocks of a page, each with the line it starts on."""
    return [(text.count("\n", 0, found.start(1)) + 1, found.group(1)) for found in FENCE.finditer(text)]


def run(page: Path) -> int:
    """Run the blocks of a page in order in one namespace; returns how many there were."""
    found = blocks(page.read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": page.stem}
    for line, code in found:
        # Blank lines in front make a traceback name the line of the page.
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
    return len(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page):
    run(page)


@pytest.mark.parametrize("name", ["README.md", "docs/onboarding.md"])
def test_the_pages_that_teach_have_examples(name):
    assert blocks((ROOT / name).read_text(encoding="utf-8"))


def test_a_wrong_example_fails_at_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError) as failure:
        run(page)
    assert failure.traceback[-1].lineno + 1 == 10
