"""What a service has, asked without Arrow, is what SHOW tells."""

import promising
from promising.client.connection import dial
from promising.client.listings import list_streams, list_summaries
from promising.testing.service import running

FAR = 1 << 60  # microseconds: a year that Python has not


def test_listings_are_those_of_show():
    with running() as target, promising.connect(target) as session:
        for number, name in enumerate(("b", "A", "c")):
            session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
            for summary in ("x", "Y")[:number]:
                session.execute(
                    f"CREATE SUMMARY {summary}{name} ON {name} (k) WITH GRANULARITY 90 SECONDS AND COLLAPSE (3, 4)"
                    f" STRUCTURE {'auto' if number == 2 else 'grid'}"
                )
        session.ingest("c", {"ts": [1_500_000, 2_500_000, FAR], "k": [1, 2, 3]})
        with dial(target, token=None, ca=None, certificate=None, key=None, timeout=None, retries=0) as connection:
            streams, summaries = connection.ask(list_streams()), connection.ask(list_summaries())
            assert [stream["summaries"] for stream in streams] == [["xA"], [], ["xc", "Yc"]]
            shown = session.execute("SHOW STREAMS").to_pylist()  # type: ignore[union-attr]  # SHOW gives a table
            assert [{**stream, "summaries": len(stream["summaries"])} for stream in streams] == shown
            assert streams[2]["refused"] == 1
            assert summaries == session.execute("SHOW SUMMARIES").to_pylist()  # type: ignore[union-attr]  # as above
            session.advance("b", -FAR)
            assert connection.ask(list_streams())[1]["watermark"].year == 1  # the first of the type on the wire
