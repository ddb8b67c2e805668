"""Ships this package to the executors, where it need not be installed.

It is sent as a zip archive named by its content, which Spark puts on the path of every Python worker before installed
packages. Dependencies are not shipped: every worker must have them, and `remote` reports missing ones.
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
"""Dependencies of a worker that prepares or reads tuples."""
PACKAGE = "promising"
DATE = (1980, 1, 1, 0, 0, 0)  # so that equal sources give an equal archive


def ship(spark: Any) -> str:
    """Send the package to all current and later executors, once per version; returns the archive's path."""
    context = classic(spark).sparkContext
    archive = house()
    if Path(archive).name not in context._python_includes:
        context.addPyFile(archive)
    return archive


def classic(spark: Any) -> Any:
    """The session; raises if it is a Spark Connect session, which does not run in this process."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise BadSettings(
            "this session only talks to a Spark Connect server, which cannot take our code along: use a session with a "
            "master, as from SparkSession.builder.master(...).getOrCreate(), or spark-submit"
        )
    return spark


@contextmanager
def undisturbed(spark: Any) -> Iterator[None]:
    """Restores the active session afterwards: Spark looks up data sources in it, and `createDataFrame` changes it."""
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
    """The archive of the running package, created if necessary."""
    held = getattr(promising.loaders.__spec__ and promising.loaders.__spec__.loader, "archive", None)
    if held is not None:
        return str(held)  # this process runs from the archive
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
    """A task: calls `name` of `module` with these arguments, then Spark's.

    It is pickled by value, so that a worker without a dependency reports that, instead of failing to unpickle the task.
    """
    needed, archive = NEEDED, Path(house()).name

    def task(batches: Any) -> Any:
        import importlib.util  # noqa: PLC0415  # runs in a new process
        import socket  # noqa: PLC0415
        import sys  # noqa: PLC0415

        sys.path.sort(key=lambda place: not place.endswith(archive))  # even before the working directory
        missing = [package for package in needed if importlib.util.find_spec(package) is None]
        if missing:
            raise ImportError(
                f"the Python of the worker on {socket.gethostname()} ({sys.executable}) lacks {', '.join(missing)}: "
                "install what this package needs there too, or name a Python that has it by PYSPARK_PYTHON"
            )
        return getattr(importlib.import_module(module), name)(*given, batches)

    return task
