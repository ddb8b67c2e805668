"""Rules of the house that no other tool holds."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from promising.summaries.kernels.jit import IMPORTED

ROOT = Path(__file__).resolve().parents[1]
FLOORS = {"summaries", "index", "query", "loaders"}
KERNELS = sorted(ROOT.glob("*/kernels/*.py"))


def imported(path: Path) -> set[str]:
    """The modules a file names in its import statements."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found.add(str(node.module))
    return found


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: str(path.relative_to(ROOT)))
def test_kernels_import_only_kernels_and_in_the_form_that_the_cache_follows(path):
    """The kernel cache is keyed by a file and what it imports so: anything else could go stale unseen."""
    ours = {name for name in imported(path) if name.split(".")[0] == "promising"}
    assert ours == set(IMPORTED.findall(path.read_text(encoding="utf-8")))


def test_every_floor_is_a_room_of_the_one_package():
    for floor in FLOORS:
        assert (ROOT / "promising" / floor).readlink() == Path("..", floor)
    assert (ROOT / "promising" / "py.typed").exists()


def test_the_lock_pins_every_package_with_a_hash_and_names_no_host():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert [entry for entry in entries if not re.match(r"[\w.-]+==\S+( ;.*)? \\\n +--hash=sha256:", entry)] == []
    assert "://" not in text


def test_make_lists_every_target():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = re.findall(r"^  make ([a-z-]+)", shown.stdout, re.MULTILINE)
    assert sorted(listed) == sorted(re.findall(r"^\.PHONY: ([a-z-]+)$", makefile, re.MULTILINE))
