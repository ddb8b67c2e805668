"""Entry: `python -m tests.index.storage.scripted DIR [asking] [threads] [stopping]`: one stream, filled by a script.

What goes into the store is always the same. asking: questions in between. threads: several take turns to send.
stopping: the store is closed and opened in between, or left without being closed.
"""

import sys
import threading
from itertools import count
from pathlib import Path

from promising.index.storage.store import Store
from tests.crash import feed
from tests.index.storage.lives import abandon, opened, populate, small_and_quiet
from tests.index.storage.told import told

BATCHES = 150
EVERY = 25  # batches between two checkpoints
SENDERS = 3


def send(store: Store, number: int, wait: bool) -> None:
    stream = store.streams["left"]
    stream.append(feed.batch(5, 0, number), producer="till", sequence=number, wait=wait)


def in_turns(store: Store, first: int, last: int) -> None:
    """Threads that each take the next batch; the order is kept, the timing is not."""
    numbers = count(first)
    turn = threading.Lock()

    def work() -> None:
        while True:
            with turn:
                number = next(numbers)
                if number >= last:
                    return
                send(store, number, wait=False)
            store.streams["left"].wait()

    senders = [threading.Thread(target=work) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()


def main(folder: Path, how: list[str]) -> None:
    store = opened(folder)
    populate(store, ("left",))
    for turn, first in enumerate(range(1, BATCHES, EVERY)):
        if "threads" in how:
            in_turns(store, first, first + EVERY)
        else:
            for number in range(first, first + EVERY):
                send(store, number, wait=number % 7 == 0)
        if "asking" in how:
            told(store.streams["left"], feed.KEYS)
        store.checkpoint()
        if "stopping" in how and turn in (1, 3):
            abandon(store)
            store = opened(folder)
        if "asking" in how:
            told(store.streams["left"], feed.KEYS)
    abandon(store)


if __name__ == "__main__":
    with small_and_quiet():
        main(Path(sys.argv[1]), sys.argv[2:])
