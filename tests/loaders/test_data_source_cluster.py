"""The data source on a cluster, with executors that have nothing of the house, and a task that runs twice at a time."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.loaders.data_source_sales import ROWS
from tests.loaders.test_cluster import free_port, wait_for

pytestmark = pytest.mark.spark

HOME = Path(pyspark.__file__).parent


def environment(host: str) -> dict[str, str]:
    ours = {"SPARK_LOCAL_IP": host, "SPARK_HOME": str(HOME), "PYSPARK_PYTHON": sys.executable}
    small = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | ours | small


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """A master and two workers. Their hosts have to differ: Spark starts no double where the task runs already."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(host: str, role: str, *given: str) -> None:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", "--host", host, *given]
        with (tmp_path / f"{role}-{host}.log").open("wb") as out:
            made = subprocess.Popen(command, env=environment(host), stdout=out, stderr=out, start_new_session=True)
            processes.append(made)

    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    try:
        start("127.0.0.1", "master.Master", "--port", str(port), "--webui-port", "0")
        wait_for(port, processes[0])
        for host in ("127.0.0.1", "127.0.0.2"):
            folder = str(tmp_path / host)
            start(host, "worker.Worker", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", folder, address)
        yield address
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            process.wait(300)


def test_a_task_and_its_double_add_every_row_once(master: str, tmp_path: Path):
    (tmp_path / "met").mkdir()
    ended = subprocess.run(
        [sys.executable, "-m", "tests.loaders.data_source_cluster", master, str(tmp_path / "met")],
        env=environment("127.0.0.1") | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found["in"] == list(range(ROWS))
    assert found["read"] == ROWS
    assert found["attempts"] == 2
