"""Memory goes back when there is nothing to do, and what is dropped while it is kept is found.

Each in a process of its own: a collection that another thread has begun would make ours come to nothing.
"""

import subprocess
import sys

KNOT = """
import gc, weakref
from promising.server import memory

class Knot:
    def __init__(self):
        self.self = self  # only a collection frees it

knot = Knot()
seen = weakref.ref(knot)
"""


def run(body: str) -> None:
    ended = subprocess.run([sys.executable, "-c", KNOT + body], capture_output=True, text=True, timeout=90, check=False)
    assert not ended.returncode, ended.stderr


def test_what_is_kept_is_left_out_of_collections_until_memory_is_given_back():
    run("""
memory.keep_loaded()
del knot
gc.collect()
assert seen() is not None
memory.collect()
assert seen() is None
assert gc.get_freeze_count() > 0
""")


def test_a_process_that_keeps_nothing_is_not_made_to():
    run("""
del knot
memory.collect()
assert seen() is None
assert gc.get_freeze_count() == 0
""")
