"""The short run of the crash harness; `make crash` is the long one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KILLS = 50


@pytest.mark.deep("kills a store at work many times")
def test_whatever_the_moment_of_a_kill_nothing_acknowledged_is_lost_and_nothing_is_there_twice():
    seed = int.from_bytes(os.urandom(3))
    command = [sys.executable, "-m", "tests.crash", "--kills", str(KILLS), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"--seed {seed}\n{done.stdout}\n{done.stderr}"
    assert f"{KILLS} kills" in done.stdout
