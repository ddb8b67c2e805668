"""What a client holds of subscriptions that nobody looks at."""

import numpy as np
import pyarrow as pa

from promising import wire_changes
from promising.client.subscription_state import Board
from promising.query.standing.subscription import Delta
from promising.v1 import queries_pb2

SCHEMA = pa.schema([("item", pa.int64())])


def told(board, watched, section):
    section.number = watched.number
    board.add(queries_pb2.SubscribeResponse(sections=[section]))


def opened(board, watched, endless=False):
    made = wire_changes.opened_to(wire_changes.Opened(SCHEMA, 1, False, endless))
    told(board, watched, queries_pb2.SubscriptionSection(opened=made))


def send(board, watched, items, reset=False, shed=0.0):
    ids = np.array(items, np.int64).reshape(-1, 1)
    rows, ends, gone = pa.table({"item": ids[:, 0]}), np.full(len(ids), 1 << 61), np.empty((0, 1), np.int64)
    delta = Delta(1, 5, reset, rows, ids, ends, gone, "t", shed, 0)
    for part in wire_changes.section_parts(watched.number, delta):
        told(board, watched, part)


def taken(board, watched):
    found = []
    while (change := board.take(watched)) is not None:
        found.append((change[1].reset, change[1].ids[:, 0].tolist(), change[1].shed))
    return found


def test_of_changes_without_rows_only_the_last_one_waits():
    board = Board()
    watched = board.watch("q", None)
    opened(board, watched)
    send(board, watched, [1], reset=True)
    for shed in range(50):
        send(board, watched, [], shed=float(shed))
    send(board, watched, [2], shed=50.0)
    send(board, watched, [], shed=51.0)
    assert taken(board, watched) == [
        (True, [1], 0.0),
        (False, [], 49.0),
        (False, [2], 50.0),
        (False, [], 51.0),
    ]


def test_news_of_a_query_without_window_wait_through_a_gap():
    for endless, expected in ((True, [(True, []), (False, [1, 2, 3]), (True, [9])]), (False, [(True, [9])])):
        board = Board()
        watched = board.watch("q", None)
        opened(board, watched, endless)
        send(board, watched, [], reset=True)
        send(board, watched, [1, 2, 3])
        board.begin()
        opened(board, watched, endless)
        send(board, watched, [9], reset=True)
        assert [change[:2] for change in taken(board, watched)] == expected
