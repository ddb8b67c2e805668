"""The wheel holds one package, and works beside files and distributions that have the names of its floors."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks

FLOORS = ("summaries", "index", "query", "loaders")
FOREIGN = "raise ImportError('this is not the one you are looking for')\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A distribution of somebody else that owns the names of the floors."""
    path = tmp_path_factory.mktemp("foreign") / "query-1.0-py3-none-any.whl"
    about = "query-1.0.dist-info"
    files = {f"{floor}/__init__.py": FOREIGN for floor in FLOORS} | {
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: query\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as packed:
        for name, text in files.items():
            packed.writestr(name, text)
    return path


class Environment:
    """A virtual environment with what the wheel needs, and a folder to work in where `query.py` and `index/` are."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "env", with_pip=True)
        self.python = folder / "env" / "bin" / "python"
        site = next((folder / "env" / "lib").glob("python*/site-packages"))
        self.site = site
        # Its requirements are those of this environment: found after all that is installed into it.
        (site / "requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
        self.folder = folder / "work"
        (self.folder / "index").mkdir(parents=True)
        (self.folder / "index" / "__init__.py").write_text(FOREIGN)
        (self.folder / "query.py").write_text(FOREIGN)

    def run(self, *command: str, **settings: str) -> str:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | settings
        done = subprocess.run(
            [self.python, *command], cwd=self.folder, env=clean, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def pip(self, *command: str) -> None:
        self.run("-m", "pip", "--quiet", "--disable-pip-version-check", *command)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path, foreign: Path) -> Iterator[Environment]:
    made = Environment(tmp_path_factory.mktemp("environment"))
    for one in (wheel, foreign):
        made.pip("install", "--no-deps", "--no-index", "--ignore-installed", str(one))
    yield made


def first_example() -> str:
    """The first block of Python in README."""
    readme = (ROOT / "README.md").read_text("utf-8")
    return next(block.text for block in blocks(readme) if block.language == "python")


@pytest.mark.deep("builds a wheel")
def test_it_holds_one_package_with_all_floors(wheel):
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"promising"}
    assert {name.split("/")[1] for name in names} >= {*FLOORS, "py.typed", "errors.py"}
    for floor in FLOORS:
        files = {path.relative_to(ROOT / floor) for path in (ROOT / floor).rglob("*.py")}
        held = {Path(name).relative_to("promising", floor) for name in names if name.startswith(f"promising/{floor}/")}
        assert held == files


@pytest.mark.deep("builds and installs a wheel")
def test_readme_s_first_example_runs_beside_foreign_names(environment, tmp_path):
    (environment.folder / "first.py").write_text(first_example())
    assert str(environment.site) in environment.run("-c", "import promising.index; print(promising.index.__file__)")
    said = environment.run("first.py", PROMISING_CACHE_DIR=str(tmp_path))  # so all kernels it needs are compiled
    rows = int(said.split(" of about ")[0].replace(",", ""))
    assert rows > 0, "compiling took the query's budget"
    assert "promising" in environment.run("-m", "promising.cli", "version")


@pytest.mark.deep("builds and installs a wheel")
def test_to_remove_the_foreign_distribution_harms_nothing(environment):
    installed = {path for path in (environment.site / "promising").rglob("*.py")}
    environment.pip("uninstall", "--yes", "query")
    assert not (environment.site / "query").exists()
    assert {path for path in (environment.site / "promising").rglob("*.py")} == installed
    (environment.folder / "first.py").write_text(first_example())
    assert "rows" in environment.run("first.py")
