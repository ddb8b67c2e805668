"""Spark jobs that report progress and are cancelled with their caller."""

import os
import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark import InheritableThread
from pyspark.errors import PySparkException

from promising.errors import LoadError

TICK = 0.2  # seconds between polls


class Progress(NamedTuple):
    """Progress of a load: the stage, the fraction of it done (0 to 1), and the rows done, once counted."""

    stage: str
    done: float
    rows: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0


class Stages:
    """The sequential stages of a load; `tell` is called when each begins, as it runs, and when it ends."""

    def __init__(self, spark: Any, tell: Callable[[Progress], None] | None) -> None:
        self._context = spark.sparkContext
        self._tell = tell or (lambda progress: None)
        self._stage = ""
        self._began = 0.0
        self.seconds: dict[str, float] = {}
        self.rows = 0  # rows of the current stage, once known

    def begin(self, stage: str, rows: int = 0) -> None:
        self.end()
        self._stage, self._began, self.rows = stage, time.monotonic(), rows
        self._say(0.0)

    def end(self) -> None:
        if self._stage:
            self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + time.monotonic() - self._began
            self._say(1.0)
        self._stage = ""

    def _say(self, done: float) -> None:
        self._tell(Progress(self._stage, done, int(self.rows * done), time.monotonic() - self._began))

    def run(self, action: Callable[[], Any]) -> Any:
        """Run the action in a thread of its own. If the caller is interrupted, its jobs are cancelled."""
        group = f"promising-{uuid4().hex}"
        found: list[Any] = []
        problems: list[BaseException] = []

        def work() -> None:
            self._context.setJobGroup(group, f"promising: {self._stage}", interruptOnCancel=True)
            try:
                found.append(action())
            except BaseException as problem:  # raised in the waiting thread
                problems.append(problem)

        thread = InheritableThread(target=work, daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(TICK)
                self._say(self._done(group))
        except BaseException:
            self._context.cancelJobGroup(group)
            thread.join()
            raise
        if problems:
            # The sentence first and alone: the traces of Spark above it are pages long.
            raise self._explained(problems[0]) from problems[0] if os.environ.get("PROMISING_DEBUG") == "1" else None
        return found[0]

    def _done(self, group: str) -> float:
        """The fraction of tasks completed, over all stages of all jobs so far."""
        tracker = self._context.statusTracker()
        tasks = ended = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info else ():
                seen = tracker.getStageInfo(stage)
                if seen:
                    tasks, ended = tasks + seen.numTasks, ended + seen.numCompletedTasks
        return min(ended / tasks, 0.99) if tasks else 0.0

    def _explained(self, problem: BaseException) -> BaseException:
        if not isinstance(problem, PySparkException):
            return problem
        lines = [line.strip() for line in str(problem).splitlines()]
        raised = [line for line in lines if re.match(r"(promising\.errors\.\w+|[\w.]+(Error|Exception)): ", line)]
        ours = [line for line in raised if line.startswith(("promising.errors.", "ImportError"))]
        said = (ours or raised or [(problem.getMessage() or str(problem)).strip().splitlines()[0]])[0]
        said = re.sub(r"^promising\.errors\.\w+: ", "", said)
        return LoadError(f"{self._stage} failed, and nothing of the load is in the stream: {said}")
