"""The house on the way to the executors: a job takes it along, so that nothing of it need be installed there.

What is shipped is a zip archive of the package `promising`, named by its content. Spark puts it on the path of every
Python worker before anything that is installed. Packages of others are not shipped: they have to be on every worker,
and `remote` says which one is missing.
"""

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import promising.loaders
from promising.errors import BadSettings

NEEDED = ("numpy", "numba", "pyarrow", "datasketches", "sortedcontainers", "crc32c", "fsspec")
"""What a worker must have of others to prepare or to read tuples."""
PACKAGE = "promising"
DATE = (1980, 1, 1, 0, 0, 0)  # equal sources give an equal archive


def ship(spark: Any) -> str:
    """Give the house to all executors that a session has now or later; returns the path of the archive.

    The same sources are sent once.
    """
    context = classic(spark).sparkContext
    archive = house()
    if Path(archive).name not in context._python_includes:
        context.addPyFile(archive)
    return archive


def classic(spark: Any) -> Any:
    """The session, if it is one that runs in this process."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BadSettings(
            "this session only talks to a Spark Connect server, which cannot take our code along: use a session with a "
            "master, as from SparkSession.builder.master(...).getOrCreate(), or spark-submit"
        )
    return spark


@contextmanager
def undisturbed(spark: Any) -> Iterator[None]:
    """Another session may be used inside: afterwards the active one is that of before.

    Spark looks up data sources in the active one, and `createDataFrame` changes which that is.
    """
    sessions, jvm = type(spark), spark._get_j_spark_session_class(spark._jvm)
    before, beneath = sessions._activeSession, jvm.getActiveSession()
    try:
        yield
    finally:
        sessions._activeSession = before
        if beneath.isDefined():
            jvm.setActiveSession(beneath.get())
        else:
            jvm.clearActiveSession()


@cache
def house() -> str:
    """The archive of the house as it is running, made if it is not there."""
    held = getattr(promising.loaders.__spec__ and promising.loaders.__spec__.loader, "archive", None)
    if held is not None:
        return str(held)  # it was shipped here itself
    root = Path(promising.loaders.__file__).parent.parent.parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in sorted(_sources(root)):
            archive.writestr(zipfile.ZipInfo(name, DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
    content = packed.getvalue()
    folder = Path(tempfile.gettempdir()) / f"promising-house-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid():
        raise BadSettings(f"{folder} belongs to somebody else; set TMPDIR to a folder of your own")
    file = folder / f"promising-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not file.exists():
        half = file.with_suffix(f".{os.getpid()}")
        half.write_bytes(content)
        half.rename(file)
    return str(file)


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, _, names in os.walk(root / PACKAGE, followlinks=True):  # in a working tree the floors are links
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), path


def remote(module: str, name: str, *given: Any) -> Callable[[Any], Any]:
    """A task: `name` of `module` with what is given here, then with what Spark gives.

    It is pickled by value, so a worker that lacks something says what, instead of failing to read its task.
    """
    needed, archive = NEEDED, Path(house()).name

    def task(batches: Any) -> Any:
        import importlib.util  # noqa: PLC0415  # in a process that knows nothing yet
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        sys.path.sort(key=lambda place: not place.endswith(archive))  # before the directory it was started in, too
        missing = [package for package in needed if importlib.util.find_spec(package) is None]
        if missing:
            raise ImportError(
                f"the Python of the worker on {socket.gethostname()} ({sys.executable}) lacks {', '.join(missing)}: "
                "install what this package needs there too, or name a Python that has it by PYSPARK_PYTHON"
            )
        return getattr(importlib.import_module(module), name)(*given, batches)

    return task
