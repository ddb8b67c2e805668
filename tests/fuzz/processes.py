"""A subject in a process of its own, so that a crash or a hang names its case as an error does."""

import faulthandler
import multiprocessing
import resource
import time
from typing import Any

from tests.fuzz.cases import run, too_few
from tests.fuzz.subjects import SUBJECTS

HANG = 120.0  # seconds on one case
PROGRESS = 10.0  # seconds between two lines
ROOM = 1 << 30  # bytes that a subject may take beyond what it has at its start
ENOUGH = 1_000  # cases to tell whether mutations are of use


def limit_memory() -> None:
    """An input that makes somebody ask for more than `ROOM` ends with a MemoryError, which is not a typed one."""
    with open("/proc/self/status", encoding="utf-8") as status:
        (has,) = (int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (has + ROOM, resource.RLIM_INFINITY))


def work(name: str, seed: int, cases: int, at: Any, told: Any) -> None:
    """In a process of its own. at: the number of the case that it works on."""
    faulthandler.enable()
    subject = SUBJECTS[name]()
    limit_memory()

    def begun(number: int) -> None:
        at.value = number

    found = run(subject, seed, range(cases), begun)
    told.put((dict(found.most_common()), too_few(subject, found)))


def watched(name: str, seed: int, cases: int) -> bool:
    """Run a subject to its end, with a line now and then; whether all was well."""
    context = multiprocessing.get_context("spawn")
    at, told = context.Value("q", -1), context.SimpleQueue()
    process = context.Process(target=work, args=(name, seed, cases, at, told), name=f"fuzz {name}")
    process.start()
    began = moved = said = time.monotonic()
    last = -1
    while process.is_alive() and told.empty():
        process.join(0.5)
        now = time.monotonic()
        if at.value != last:
            last, moved = at.value, now
        if now - moved > HANG:
            process.kill()
            process.join()
            break
        if now - said > PROGRESS:
            said = now
            print(f"  {name}: {last + 1:,} of {cases:,} cases, {now - began:.0f} s", flush=True)
    if told.empty():
        process.join()
        how = {0: "ended early", 1: "failed"}.get(process.exitcode or 0, f"died by signal {-(process.exitcode or 0)}")
        again = f"python -m tests.fuzz --only {name} --seed {seed} --case {at.value}"
        print(f"{name} {how} at case {at.value} of seed {seed}; again by: {again}", flush=True)
        return False
    found, few = told.get()
    process.join()
    print(f"{name}: {', '.join(f'{count:,} {verdict}' for verdict, count in found.items())}", flush=True)
    if few and cases >= ENOUGH:
        print(f"{name}: mutations of little use: {'; '.join(few)}", flush=True)
        return False
    return process.exitcode == 0
