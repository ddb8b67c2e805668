"""An environment for each peer, of its own and with versions by name; made when it is first needed, kept in `.peers`.

Packages come from wherever pip is set up to get them. A peer that cannot be installed or started is not left out: what
was tried and why it failed is a part of the results.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.protocol import reason

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".peers"
STAMP = "installed.txt"
ARROW = ("pyarrow==26.0.1", "numpy==2.4.6")


@dataclass(frozen=True)
class Kind:
    """A peer as it is installed."""

    name: str
    title: str
    packages: tuple[str, ...]
    quick: bool = False
    """Part of a quick run, which uses the environment that the benchmark itself runs in."""

    @property
    def module(self) -> str:
        return f"benchmarks.peers.{self.name}_peer"


OURS = Kind("promising", "ours", (), quick=True)
KINDS = {
    kind.name: kind
    for kind in (
        OURS,
        Kind("duckdb", "DuckDB", ("duckdb==2.0.0", *ARROW), quick=True),
        Kind("polars", "Polars", ("polars==2.1.0", *ARROW), quick=True),
        Kind("chdb", "chDB", ("chdb==4.4.0", *ARROW)),
        Kind("pathway", "Pathway", ("pathway==0.33.0",)),
        Kind("bytewax", "Bytewax", ("bytewax==0.21.1", *ARROW)),
        Kind("flink", "Flink", ("apache-flink==2.3.0",)),
        Kind("spark", "Spark", ("pyspark==4.3.0", "pandas<3", *ARROW)),
    )
}


class NotInstalled(RuntimeError):
    """A peer that is not there, with the reason."""


def python_of(kind: Kind, *, own: bool) -> str:
    """The interpreter that runs a peer. own: in an environment of its own, which is made if it is not there."""
    if not own or kind is OURS:
        return sys.executable
    home = HOME / kind.name
    python = home / "bin" / "python"
    stamp = home / STAMP
    wanted = "\n".join(kind.packages)
    if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
        return str(python)
    print(f"making an environment for {kind.title}: {', '.join(kind.packages)}", file=sys.stderr, flush=True)
    for attempt in (1, 2):
        try:
            _made(home, python, kind.packages)
        except (OSError, subprocess.SubprocessError) as problem:
            if attempt == 2:
                raise NotInstalled(f"tried twice: {_told(problem)}") from problem
        else:
            break
    stamp.write_text(wanted, encoding="ascii")
    return str(python)


def _made(home: Path, python: Path, packages: tuple[str, ...]) -> None:
    subprocess.run([_base(), "-m", "venv", "--clear", str(home)], check=True, capture_output=True, text=True)
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=1_800)


def _base() -> str:
    """The interpreter that this environment was made from, if it can be told."""
    base = getattr(sys, "_base_executable", None)
    return str(base) if base else sys.executable


def _told(problem: Exception) -> str:
    """The last line of what pip says against it, without the paths and addresses of a machine."""
    said = getattr(problem, "stderr", None) or ""
    errors = [line for line in str(said).splitlines() if line.startswith("ERROR:")]
    return reason(RuntimeError(errors[-1])) if errors else f"{type(problem).__name__}"


def installed(python: str) -> dict[str, str]:
    """Versions of the packages that matter in an environment."""
    names = (
        "duckdb",
        "polars",
        "chdb",
        "chdb-core",
        "pathway",
        "bytewax",
        "apache-flink",
        "pyspark",
        "pyarrow",
        "numpy",
    )
    code = (
        "import importlib.metadata as m, json, platform; found = {'python': platform.python_version()}\n"
        f"for n in {names!r}:\n"
        "    try: found[n] = m.version(n)\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def java_version() -> str:
    """As `java -version` tells it, in one line; empty if there is none."""
    try:
        done = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stderr.splitlines()[0] if done.stderr else ""
