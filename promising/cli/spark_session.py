"""The Spark session of a command: options, start and stop."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from promising import errors
from promising.cli.common_options import pairs
from promising.errors import BadSettings, PromisingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
INSTALL = 'Spark is not installed here; install it with pip install "promising-tuples[spark]"'
JAVA = "Spark needs Java 17 or newer; install it, or let JAVA_HOME say where it is"

Master = Annotated[
    str | None, typer.Option(metavar="URL", help=f"Spark master, such as spark://HOST:7077. Default: {LOCAL}.")
]
SparkConf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A Spark setting; repeatable.")]
DriverMemory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Memory of the Spark driver, such as 4g; in local mode, of all of Spark."),
]


@dataclass(frozen=True)
class Cluster:
    """Where a Spark session runs, and its settings."""

    master: str
    settings: dict[str, str]

    @classmethod
    def of(cls, master: str | None, conf: list[str] | None, memory: str | None) -> "Cluster":
        """A cluster from the options. A local one listens on loopback only."""
        place = master or LOCAL
        settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": _level()}
        if place.startswith("local"):
            settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        if memory is not None:
            settings["spark.driver.memory"] = memory
        return cls(place, settings | pairs(conf, "--spark-conf"))

    @contextmanager
    def session(self, name: str, failure: type[PromisingError]) -> Iterator["SparkSession"]:
        """A session for the block. Exceptions of Spark in it become ours, or a `failure`."""
        try:
            from pyspark.errors import PySparkException  # noqa: PLC0415  # optional
            from pyspark.sql import SparkSession  # noqa: PLC0415  # as above
        except ImportError:
            raise BadSettings(INSTALL) from None
        from py4j.protocol import Py4JError  # noqa: PLC0415  # part of pyspark

        _check_java()
        if self.master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder: Any = SparkSession.builder.appName(name).master(self.master)
        for setting, value in self.settings.items():
            builder = builder.config(setting, value)
        with _aside() as said:
            try:
                spark: SparkSession = builder.getOrCreate()
            except Exception as problem:
                raise BadSettings(self._not_started(problem, said())) from problem
        try:
            yield spark
        except (PySparkException, Py4JError) as problem:
            raise _ours(problem) or failure(f"Spark failed: {_line(problem)}") from problem
        finally:
            spark.stop()

    def _not_started(self, problem: BaseException, said: str) -> str:
        """Why the session did not start. If Java itself failed, the reason is in its stderr."""
        why = _line(problem)
        if "JAVA_GATEWAY_EXITED" in str(problem):
            lines = [line for line in said.splitlines() if line.strip() and not line.startswith(("WARNING:", "\tat "))]
            why = f"{lines[0] if lines else why}\n{JAVA}"
        return f"Spark does not start with --master {self.master}: {why}"


def _level() -> str:
    """Spark's log level: off by default, since errors are raised, too."""
    return "WARN" if os.environ.get("PROMISING_DEBUG") == "1" else "OFF"


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(os.path.join(home, "bin", "java"), os.X_OK):
        raise BadSettings(f"JAVA_HOME is {home}, where there is no bin/java. {JAVA}")
    if not home and shutil.which("java") is None:
        raise BadSettings(f"no java is found. {JAVA}")


@contextmanager
def _aside() -> Iterator[Any]:
    """Redirect stderr to a file within the block, permanently for child processes; yields its reader.

    Spark writes to stderr whatever its settings, which would break the progress bars.
    """
    if os.environ.get("PROMISING_DEBUG") == "1":
        yield lambda: ""
        return
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def said() -> str:
            file.seek(0)
            return file.read().decode("utf-8", "replace")

        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)


def _ours(problem: BaseException) -> PromisingError | None:
    """The error of ours with which a task failed, if any.

    >>> _ours(Exception("Job aborted\\npromising.errors.DataDamaged: a.parquet fails its checksum\\n  at org"))
    DataDamaged('a.parquet fails its checksum')
    >>> _ours(Exception("Traceback:\\n  File x\\n  org.PythonException: promising.errors.BadSource: no file a\\n"))
    BadSource('no file a')
    >>> _ours(Exception("Job aborted"))
    """
    found = re.findall(r"\bpromising\.errors\.([A-Z]\w+): (.+)$", str(problem), re.MULTILINE)
    kind = vars(errors).get(found[-1][0]) if found else None
    return kind(found[-1][1]) if isinstance(kind, type) and issubclass(kind, PromisingError) else None


def _line(problem: BaseException) -> str:
    """The first informative line, without Java classes and locations; of a Python traceback, the error at its end.

    >>> _line(Exception("Traceback (most recent call last):\\nValueError: no number\\n\\tat org"))
    'ValueError: no number'
    """
    java = getattr(problem, "java_exception", None)
    text = str(problem if java is None else java.toString())
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        lines = [line for line in lines if re.match(r"[\w.]*(Error|Exception): ", line)][-1:] or lines
    return lines[0][:500] if lines else type(problem).__name__
