"""Kill a process that creates and revokes tokens again and again: what it said was done holds, for all who look."""

import os
import select
import signal
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from promising.server.access_tokens import TokenStore
from tests.crash.harness import Lost

LONGEST = 0.2
"""Seconds of a life, at most."""


@dataclass
class Known:
    """What is known of the tokens, by name: their secrets, and those that were revoked."""

    kills: int = 0
    valid: dict[str, str] = field(default_factory=dict)
    revoked: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)  # begun, and not said to be done

    def __str__(self) -> str:
        created = len(self.valid) + len(self.revoked)
        return f"{self.kills} kills of a process that had created {created:,} tokens and revoked {len(self.revoked):,}"

    def hear(self, line: str) -> None:
        what, name, *secret = line.split()
        if what == "revoking":
            self.unsure.add(name)
        elif what == "created":
            self.valid[name] = secret[0]
        elif what == "revoked":
            self.unsure.discard(name)
            self.revoked[name] = self.valid.pop(name)

    def look(self, store: TokenStore) -> None:
        """Hold the file against it."""
        listed = {token.name for token in store.list()}
        for name, secret in self.revoked.items():
            if store.check(secret) is not None or name in listed:
                raise Lost(f"token {name} was revoked, and is valid after kill {self.kills}")
        for name, secret in list(self.valid.items()):
            there = store.check(secret) is not None
            if there != (name in listed):
                raise Lost(f"token {name} is {'' if there else 'not '}valid, and the list says otherwise")
            if not there and name not in self.unsure:
                raise Lost(f"token {name} was created, and is not there after kill {self.kills}")
            if not there:
                self.revoked[name] = self.valid.pop(name)
        self.unsure.clear()


def run(kills: int, seed: int) -> Known:
    """Whoever looks has looked before each kill as well, as a service does that goes on."""
    known = Known()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokens.db"
        running = TokenStore(path)
        known.valid["first"] = running.create("first", "admin")
        try:
            for number in range(kills):
                rng = np.random.default_rng([seed, number])
                _life(path, known, number, float(rng.uniform(0, LONGEST)), rng)
                known.kills += 1
                restarted = TokenStore(path)
                for store in (running, restarted):
                    known.look(store)
                restarted.close()
        except Lost as problem:
            print(f"kill {known.kills} of seed {seed}: {problem}", flush=True)
            raise
        finally:
            running.close()
    return known


def _life(path: Path, known: Known, number: int, seconds: float, rng: np.random.Generator) -> None:
    hear, speak = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _work(path, list(known.valid), number, speak, rng)
        finally:
            os._exit(1)
    os.close(speak)
    said, until = b"", time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([hear], [], [], left)[0]:
            part = os.read(hear, 1 << 16)
            if not part:
                break
            said += part
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    while part := os.read(hear, 1 << 16):
        said += part
    os.close(hear)
    for line in said.decode().split("\n")[:-1]:
        known.hear(line)
    if os.WIFEXITED(status):
        raise Lost("the process that creates tokens ended by itself")


def _work(path: Path, names: list[str], number: int, speak: int, rng: np.random.Generator) -> None:
    store = TokenStore(path)
    count = 0
    while True:
        if len(names) < 5 or rng.random() < 0.5:
            name = f"t{number}-{count}"
            count += 1
            secret = store.create(name, "query")
            names.append(name)
            os.write(speak, f"created {name} {secret}\n".encode())
        else:
            name = names.pop(int(rng.integers(len(names))))
            os.write(speak, f"revoking {name}\n".encode())
            store.revoke(name)
            os.write(speak, f"revoked {name}\n".encode())
