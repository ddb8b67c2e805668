"""Kernels are compiled when first called; a changed file is compiled again with its importers, and no other is."""

import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from os import environ
from pathlib import Path

import pytest
from numba.core.registry import CPUDispatcher

import promising.summaries.kernels
from promising import warmup
from promising.summaries.kernels import clock, jit

KERNELS = Path(promising.summaries.kernels.__file__).parent
PLACE = Path("promising/summaries/kernels")
FILES = {
    "constants": """
        STEP = 3
    """,
    "leaf": """
        from promising.summaries.kernels.constants import STEP
        from promising.summaries.kernels.jit import kernel
        @kernel("int64(int64)")
        def step(x):
            return x + STEP
    """,
    "caller": """
        from promising.summaries.kernels.jit import kernel
        from promising.summaries.kernels.leaf import step
        @kernel("int64(int64)")
        def twice(x):
            return step(step(x))
    """,
    "above": """
        from promising.summaries.kernels.caller import twice
        from promising.summaries.kernels.jit import kernel
        @kernel("int64(int64)")
        def four_times(x):
            return twice(twice(x))
    """,
    "apart": """
        from promising.summaries.kernels.jit import kernel
        @kernel("int64(int64)")
        def half(x):
            return x // 2
    """,
}
CALLS = """
from promising.summaries.kernels import above, apart
print(above.four_times(1), apart.half(9))
"""
needs_compiler = pytest.mark.skipif(not warmup.every_kernel(), reason="kernels are plain Python here")


def dedented(text: str) -> str:
    return "\n".join(line.removeprefix("        ") for line in text.splitlines())


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A house of five kernel files, on the real machinery."""
    folder = tmp_path / PLACE
    folder.mkdir(parents=True)
    for name in ("__init__", "jit", "clock"):
        shutil.copy(KERNELS / f"{name}.py", folder)
    for name in ("promising", "promising/summaries"):
        (tmp_path / name / "__init__.py").touch()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(dedented(text))
    return tmp_path


def run(house: Path, program: str = CALLS, **environment: str) -> str:
    """Run a program on the copied kernels, in a process of its own."""
    clean = {name: value for name, value in environ.items() if not name.startswith(("NUMBA_", "PYTHON"))}
    settings = {"PYTHONPATH": str(house), "PROMISING_CACHE_DIR": str(house / "cache"), **environment}
    settings["PYTHONDONTWRITEBYTECODE"] = "1"  # Python does not see a change of equal length within a second
    # From the copied house, so that neither the working folder nor an installed house is found first.
    result = subprocess.run(
        [sys.executable, "-c", program], env=clean | settings, cwd=house, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def compiled(house: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (house / "cache").rglob("*.nbc")}


def names(paths: set[Path]) -> Counter[str]:
    """How many kernels were compiled, by the file they stand in."""
    return Counter(path.name.split(".")[0] for path in paths)


@pytest.mark.deep("compiles in processes of its own")
@needs_compiler
def test_a_change_compiles_its_file_and_its_importers_and_no_other(house: Path):
    assert run(house, "from promising.summaries.kernels import above, apart") == ""
    assert compiled(house) == {}, "an import compiled"

    assert run(house) == "13 4"
    first = compiled(house)
    assert names(set(first)) == {"leaf": 1, "caller": 1, "above": 1, "apart": 1}
    assert run(house) == "13 4"
    assert compiled(house) == first, "the second run compiled again"

    archive = shutil.make_archive(str(house / "elsewhere" / "house"), "zip", house, "promising")
    away = {"PYTHONPATH": archive, "PROMISING_CACHE_DIR": str(house / "cache")}
    assert run(house / "elsewhere", **away) == "13 4"
    assert compiled(house) == first, "the same sources in an archive were compiled again"

    caller = house / PLACE / "caller.py"
    caller.write_text(caller.read_text().replace("step(step(x))", "step(step(step(x)))"))
    assert run(house) == "19 4" == run(house, NUMBA_DISABLE_JIT="1")
    second = compiled(house)
    assert names(second.keys() - first.keys()) == {"caller": 1, "above": 1}
    assert first.items() <= second.items()

    constants = house / PLACE / "constants.py"
    constants.write_text(constants.read_text().replace("STEP = 3", "STEP = 5"))
    assert run(house) == "31 4" == run(house, NUMBA_DISABLE_JIT="1")
    assert names(compiled(house).keys() - second.keys()) == {"leaf": 1, "caller": 1, "above": 1}


@pytest.mark.deep("compiles in processes of its own")
@needs_compiler
def test_a_file_that_changes_before_its_first_call_runs_as_it_was_imported_and_poisons_nothing(house: Path):
    constants = house / PLACE / "constants.py"
    changes = f"""
from pathlib import Path
from promising.summaries.kernels import above, apart
constants = Path({str(constants)!r})
constants.write_text(constants.read_text().replace("STEP = 3", "STEP = 5"))
print(above.four_times(1), apart.half(9))
"""
    assert run(house, changes) == "13 4"
    assert run(house) == "21 4"


@pytest.mark.deep("compiles in a process of its own")
@needs_compiler
def test_a_call_with_another_type_is_refused_also_as_the_first(house: Path):
    program = """
import numpy as np
from promising.summaries.kernels import apart
for given in ("x", np.zeros(2)):
    try:
        apart.half(given)
    except TypeError:
        print("refused", end=" ")
print(apart.half(9), len(apart.half.overloads))
"""
    assert run(house, program) == "refused refused 4 1"


@pytest.mark.deep("compiles in a process of its own")
@needs_compiler
def test_threads_that_call_first_together_all_get_the_result(house: Path):
    program = """
from concurrent.futures import ThreadPoolExecutor
from promising.summaries.kernels import above
with ThreadPoolExecutor(8) as pool:
    print(sorted(set(pool.map(above.four_times, range(8)))))
"""
    assert run(house, program) == str(list(range(12, 20)))
    assert names(set(compiled(house))) == {"leaf": 1, "caller": 1, "above": 1}


@pytest.mark.deep("compiles in a process of its own")
def test_without_a_place_for_a_cache_it_compiles_in_memory(house: Path, tmp_path: Path):
    nowhere = tmp_path / "file"
    nowhere.touch()
    away = {"PROMISING_CACHE_DIR": str(nowhere), "TMPDIR": str(nowhere)}
    assert run(house, **away) == "13 4"


@needs_compiler
def test_every_kernel_of_the_house_compiles_for_all_its_signatures():
    warmup.load_all()
    for kernel in warmup.every_kernel():
        assert kernel.stored
        assert len(kernel.overloads) == len(kernel._signatures), kernel
        assert not kernel._can_compile


@pytest.mark.deep("compiles in processes of its own")
@needs_compiler
def test_what_is_missing_is_compiled_side_by_side_and_reported(tmp_path, monkeypatch):
    """Two of all kernels, in an empty cache."""
    monkeypatch.setenv("PROMISING_CACHE_DIR", str(tmp_path))
    few = tuple(kernel for kernel in warmup.every_kernel() if kernel.py_func.__name__ in ("rotl", "avalanche"))
    monkeypatch.setattr(warmup, "every_kernel", lambda: few)
    monkeypatch.setattr(warmup, "_load", load_named)
    told: list[tuple[int, int]] = []
    assert warmup.compile_all(lambda done, of: told.append((done, of))) == 2
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert all(kernel.stored for kernel in few)
    assert warmup.compile_all() == 0


def load_named(number: int) -> None:
    """In a process of its own, where nothing is replaced."""
    found = [kernel for kernel in warmup.every_kernel() if kernel.py_func.__name__ in ("rotl", "avalanche")]
    found[number].load()


def test_the_clock_of_work_stands_still_while_kernels_load(monkeypatch):
    now = [0]
    monkeypatch.setattr(time, "thread_time_ns", lambda: now[0])

    def pass_(nanoseconds: int) -> None:
        now[0] += nanoseconds

    before = clock.work_ns()
    pass_(5)
    with clock.loading():
        pass_(100)
        with clock.loading():
            pass_(1000)
        pass_(10_000)
    pass_(7)
    with pytest.raises(ZeroDivisionError), clock.loading():
        pass_(3)
        raise ZeroDivisionError
    assert clock.work_ns() - before == 12

    elsewhere: list[int] = []
    thread = threading.Thread(target=lambda: elsewhere.append(clock.work_ns()))
    thread.start()
    thread.join()
    assert elsewhere == [now[0]], "what another thread has loaded is no matter of this one"


@needs_compiler
def test_loading_a_kernel_takes_no_time_of_work(monkeypatch):
    made = jit.kernel("int64(int64)")(lambda x: x + 1)
    now, compile_it = [0], CPUDispatcher.compile

    def slow(dispatcher, signature):
        now[0] += 1_000_000_000
        return compile_it(dispatcher, signature)

    monkeypatch.setattr(time, "thread_time_ns", lambda: now[0])
    monkeypatch.setattr(CPUDispatcher, "compile", slow)
    before = clock.work_ns()
    assert made(1) == 2
    assert now[0] > 0
    assert clock.work_ns() == before
