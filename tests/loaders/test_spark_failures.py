"""What a failed Spark job reports: one sentence, without Spark's traces unless PROMISING_DEBUG=1."""

import threading
import traceback
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

from promising.errors import LoadError
from promising.loaders import spark_jobs
from promising.loaders.spark_jobs import Stages

TRACE = """Job aborted due to stage failure: Task 0 in stage 1.0 failed
Traceback (most recent call last):
  File "worker.py", line 1, in main
promising.errors.BadPackage: part 3 has no summary
\tat org.apache.spark.api.python.BasePythonRunner
"""


class Context:
    """A SparkContext without jobs."""

    def setJobGroup(self, *_: object, **__: object) -> None: ...

    def statusTracker(self):
        return SimpleNamespace(getJobIdsForGroup=lambda group: [])


def failed(monkeypatch):
    monkeypatch.setattr(spark_jobs, "InheritableThread", threading.Thread)
    stages = Stages(SimpleNamespace(sparkContext=Context()), None)
    stages.begin("writing")

    def action():
        raise PySparkException(TRACE)

    with pytest.raises(LoadError) as raised:
        stages.run(action)
    return raised.value


def test_the_sentence_is_all_that_is_shown(monkeypatch):
    monkeypatch.delenv("PROMISING_DEBUG", raising=False)
    problem = failed(monkeypatch)
    assert str(problem) == "writing failed, and nothing of the load is in the stream: part 3 has no summary"
    assert "org.apache" not in "".join(traceback.format_exception(problem))


def test_the_trace_is_shown_on_demand(monkeypatch):
    monkeypatch.setenv("PROMISING_DEBUG", "1")
    assert "org.apache" in "".join(traceback.format_exception(failed(monkeypatch)))
