"""A changed kernel file never runs stale cached code, and an unchanged one is not compiled again."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import promising.summaries.kernels

KERNELS = Path(promising.summaries.kernels.__file__).parent
PROGRAM = """
import numpy as np
from promising.summaries.kernels.sketch import count_min_update
counters = np.zeros((2, 16), np.int64)
with np.errstate(over="ignore"):
    count_min_update(np.arange(20, dtype=np.uint64), np.arange(20), counters)
print(counters.tolist())
"""


def run(house: Path, **environment: str) -> str:
    """Run the program on the copied kernels, in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
    settings = {"PYTHONPATH": str(house), "PROMISING_CACHE_DIR": str(house / "cache"), **environment}
    # From the copied house, so that neither the working folder nor an installed house comes first.
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=clean | settings, cwd=house, capture_output=True, text=True, check=True
    )
    return result.stdout


def compiled(house: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (house / "cache").rglob("*.nbc")}


def test_a_changed_callee_in_another_file_is_seen(tmp_path: Path):
    package = tmp_path / "summaries"
    shutil.copytree(KERNELS, package / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()

    before = run(tmp_path)
    files = compiled(tmp_path)
    assert files
    assert run(tmp_path) == before
    assert compiled(tmp_path) == files, "the second run compiled again"

    archive = shutil.make_archive(str(tmp_path / "elsewhere" / "house"), "zip", tmp_path, "summaries")
    away = {"PYTHONPATH": archive, "PROMISING_CACHE_DIR": str(tmp_path / "cache")}
    assert run(tmp_path / "elsewhere", **away) == before
    assert compiled(tmp_path) == files, "the same sources in an archive were compiled again"

    callee = package / "kernels" / "hashing.py"
    text = callee.read_text()
    changed = text.replace("MIX1 = np.uint64(0xBF58476D1CE4E5B9)", "MIX1 = np.uint64(0xBF58476D1CE4E5BB)")
    assert changed != text
    callee.write_text(changed)

    after = run(tmp_path)
    assert after == run(tmp_path, NUMBA_DISABLE_JIT="1"), "compiled code differs from its source"
    assert after != before
