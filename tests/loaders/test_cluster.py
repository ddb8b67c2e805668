"""A real cluster: a master and two workers that have nothing of the house, speculation on, tasks failing at random."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyspark
import pytest

import promising
from tests.loaders.loading import answers, log, store, write, zones

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
KEPT = ("PATH", "HOME", "JAVA_HOME", "LANG", "TMPDIR", "XDG_CACHE_HOME", "PROMISING_CACHE_DIR")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1200):
        assert process.poll() is None, "it has ended"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nothing listens on {port}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of its master."""
    place = tmp_path_factory.mktemp("cluster")
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, role: str, host: str, *given: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", host, *given]
        with (place / f"{name}.log").open("wb") as out:
            processes.append(
                subprocess.Popen(
                    command,
                    env={**environment, "SPARK_LOCAL_IP": host},
                    cwd=place,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            )

    port = free_port()
    try:
        start("master", "master.Master", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        wait_for(port, processes[0])
        for worker, host in (("one", "127.0.0.1"), ("two", "127.0.0.2")):  # no task has two attempts on one host
            start(
                worker,
                "worker.Worker",
                host,
                *("--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(place / worker)),
                f"spark://127.0.0.1:{port}",
            )
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait(300)


def run(master: str, folder: Path, *given: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [sys.executable, "-m", "tests.loaders.cluster_load", master, str(folder), *given]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=1200, check=False
    )


def test_a_load_on_a_cluster_counts_every_tuple_once(cluster: str, tmp_path: Path):
    columns = log(20_000)
    write(columns, tmp_path / "in")
    with store(None) as session:
        session.ingest("sales", columns)
        session.ingest("other", log(200, seed=5))
        wanted = zones(session), answers(session)
    with store(tmp_path / "store") as session:
        session.ingest("other", log(200, seed=5))

    killed = run(cluster, tmp_path, "writing")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with promising.open(tmp_path / "store") as session:
        assert session.query("SELECT count(*) AS n FROM sales").to_arrow()["n"].to_pylist() == [0]

    ended = run(cluster, tmp_path)
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout.splitlines()[-1])
    with promising.open(tmp_path / "store") as session:
        assert (zones(session), answers(session)) == wanted
        oldest = session.stream("sales").oldest
        assert oldest is not None
        assert report["accepted"] == int(np.sum(columns["ts"] >= oldest))

    notes = [json.loads(path.read_text()) for path in (tmp_path / "notes").iterdir()]
    assert len(notes) > report["parts"], "no task was tried twice"
    assert sum(note["part"] == 0 for note in notes) > 1, "nobody did the work of the task that hangs"
    assert all(".zip/promising/index/storage/" in note["file"] for note in notes), "code that was not shipped was run"
    assert len({note["directory"] for note in notes}) == 2, "one worker did all of the work"
