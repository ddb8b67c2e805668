"""The view of a continuous query as a source of one-shot queries."""

from promising.index import Stream
from promising.query.standing.engine import Engine
from promising.query.standing.subscription import LiveView

TIME = "__time"


def view_stream(engine: Engine, name: str) -> Stream:
    """The current rows of a view, copied: as of now, or as of the last tick where a service makes them.

    A stream needs a time: its last column is one, always 0. Raises Unsupported for a query without WINDOW.
    """
    engine.start(name)
    with engine.lock:
        if not engine.driven:
            engine.tick()
        feed = engine.subscribe(name)
        try:
            live = LiveView(feed.schema, feed.keyed, feed.endless)
            delta = feed.take()
        finally:
            feed.close()
        kinds = dict(zip(feed.view.standing.names, feed.view.standing.kinds, strict=True))
    if delta is not None:
        live.apply(delta)
    rows = live.snapshot()
    time = TIME
    while time.lower() in map(str.lower, kinds):
        time += "_"
    made = Stream(name, {**kinds, time: "timestamp"}, time)
    if rows.num_rows:
        made.append({**dict(zip(kinds, rows.columns, strict=True)), time: [0] * rows.num_rows})
    return made
