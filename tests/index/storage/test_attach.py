"""Loads prepared elsewhere: what they become is what live tuples would have become, once and whole."""

import contextlib
import itertools
import json
import shutil

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.index.log
from promising.errors import (
    BadPackage,
    CeilingReached,
    DataDamaged,
    NewerFormat,
    NullKey,
    StorageError,
    TokenReused,
    UnknownName,
)
from promising.index.check import check_stream
from promising.index.load_plan import LoadPlan, Shape
from promising.index.storage.checksums import crc32c
from promising.index.storage.package import attach, read_manifest, remove, write_manifest, write_part
from promising.index.storage.repair import repair
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.index.summary import SummaryState
from promising.query.session import Session
from tests.index.counted import counted
from tests.index.storage.flaky import Crash, FlakyDisk
from tests.tiers import examples

MINUTE = 60_000_000
NOW = 10**15
CREATE = (
    "CREATE STREAM s (ts TIMESTAMP, item BIGINT, till VARCHAR, price DOUBLE, paid BOOLEAN) TIMESTAMP BY ts LATENESS 90"
    " SECONDS KEEP 45 MINUTES",
    "CREATE SUMMARY items ON s (item) WITH GRANULARITY 1 MINUTE AND COLLAPSE (3, 4) OPTIONS (buckets = 8, width = 64)",
    "CREATE SUMMARY tills ON s (till) USING COUNT_MIN WITH GRANULARITY 50 SECONDS AND COLLAPSE (2, 5) STRUCTURE grid"
    " OPTIONS (buckets = 4, width = 64)",
    "CREATE SUMMARY exact ON s (till) USING EXACT WITH GRANULARITY 70 SECONDS AND COLLAPSE (2, 4)",
    "CREATE SUMMARY off ON s (item) WITH GRANULARITY 1 MINUTE AND COLLAPSE (3, 4)"
    " OPTIONS (buckets = 8, width = 64, postings = off)",
    "CREATE SUMMARY bare ON s (item) WITH GRANULARITY 2 MINUTES AND COLLAPSE (3, 3) STRUCTURE none",
)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(promising.index.log, "CHUNK", 256)


def table(rows, seed=0, span=40 * MINUTE, sort=True):
    rng = np.random.default_rng(seed)
    times = rng.integers(0, span, rows)
    price = rng.normal(5, 3, rows).round(2)
    return pa.table(
        {
            "ts": pa.array(np.sort(times) if sort else times).cast(pa.timestamp("us")),
            "item": pa.array(rng.zipf(1.3, rows) % 300),
            "till": [f"till {n}" for n in rng.integers(0, 20, rows)],
            "price": pa.array(price, mask=rng.random(rows) < 0.05),
            "paid": pa.array(rng.random(rows) < 0.5),
        }
    )


def opened(folder=None, disk=None, create=True, **options):
    small = StoreOptions(hot_tuples=512, run_tuples=512, **options)
    store = None if folder is None else Store.open(folder, seed=7, clock=lambda: NOW, disk=disk, options=small)
    session = Session(store=store, clock=lambda: NOW, seed=7)
    for sql in CREATE if create else ():
        session.execute(sql)
    return session


def prepare(session, folder, data, parts=3, token="t", refused=None):
    """A package of the tuples, as a loader makes it: in parts by time, each tuple that is kept in one of them."""
    plan = LoadPlan.from_json(session.load_plan("s").to_json())
    times = data["ts"].cast(pa.int64()).to_numpy()
    shape = Shape.from_json(json.dumps(json.loads(plan.shaped(int(times.max())).to_json())))
    kept = np.ones(len(times), bool) if shape.oldest is None else times >= shape.oldest
    data = data.filter(pa.array(kept))
    cut = np.linspace(0, data.num_rows, parts + 1).astype(int)
    entries = [
        write_part(str(folder), f"{n:05d}-x", plan, shape, data.slice(a, b - a))
        for n, (a, b) in enumerate(itertools.pairwise(cut))
        if b > a
    ]
    write_manifest(str(folder), plan, shape, token, entries, refused or {})
    return data.num_rows


def coarse(session):
    """Every zone of `G_2..G_m` of every summary, to the bit."""
    out = {}
    for name, summary in session.stream("s").summaries.items():
        state = summary.state
        if isinstance(state, SummaryState):
            for granularity, zones in state.coarse.levels.items():
                for number, zone in zones.items():
                    arrays = (*counted(zone), zone.bits.tobytes(), zone.cells.tobytes())
                    out[name, granularity, number] = (zone.start, zone.first, zone.last, zone.count, *arrays)
    return out


ASKED = (
    "SELECT item, till, price, paid, ts FROM s",
    "SELECT item, count(*) AS n, sum(price) AS total FROM s GROUP BY item",
    "SELECT till, min(ts), max(ts), count(price) FROM s GROUP BY till WINDOW 12 MINUTES",
    "SELECT a.till, b.price FROM s a, s b WHERE a.item = b.item AND a.price > b.price AND a.item > 3 WINDOW 5 MINUTES",
    "SELECT ts, price FROM s WHERE item = 5 AND NOT paid",
)


def answers(session):
    out = []
    for sql in ASKED:
        rows = session.query(sql).to_arrow().to_pylist()
        out.append(
            sorted(json.dumps([round(v, 6) if isinstance(v, float) else str(v) for v in r.values()]) for r in rows)
        )
    return out


def same(one, other):
    """All that can be told of both is the same."""
    assert coarse(one) == coarse(other)
    assert answers(one) == answers(other)
    keys = list(range(40))
    for name, given_keys in (("items", keys), ("off", keys), ("tills", [f"till {n}" for n in range(20)])):
        for window in (None, (5 * MINUTE, 31 * MINUTE)):
            found = [
                s.probe(name, given_keys, window).sort_by([("ts", "ascending"), ("price", "ascending")])
                for s in (one, other)
            ]
            assert found[0].select(["probe", "ts"]).equals(found[1].select(["probe", "ts"]))
    assert one.stream("s").kept == other.stream("s").kept


def whole(session):
    assert check_stream(session.stream("s")) == []


@pytest.mark.deep("compares whole stores")
@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("sort", [True, False])
def test_live_and_loaded_and_half_of_each_are_the_same(tmp_path, durable, sort):
    data = table(4_000, sort=sort)
    if not sort:  # so that live tuples come late, but not too late
        data = data.take(pa.array(np.argsort(data["ts"].cast(pa.int64()).to_numpy() // (20 * MINUTE), kind="stable")))
    even = pa.array(np.arange(data.num_rows) % 2 == 0)
    live = opened(tmp_path / "live" if durable else None)
    for start in range(0, data.num_rows, 700):
        live.ingest("s", data.slice(start, 700))
    bulk = opened(tmp_path / "bulk" if durable else None)
    prepare(bulk, tmp_path / "package", data)
    attached = bulk.attach("s", str(tmp_path / "package"), "t")
    assert attached.accepted == read_manifest(str(tmp_path / "package")).rows
    half = opened(tmp_path / "half" if durable else None)
    half.ingest("s", data.filter(even))
    odd = data.filter(pa.array(~np.asarray(even)))
    prepare(half, tmp_path / "odd", odd, parts=5)
    half.attach("s", str(tmp_path / "odd"), "t")
    for session in (live, bulk, half):
        whole(session)
    same(live, bulk)
    same(live, half)
    more = table(2_000, seed=9, span=9 * MINUTE)
    later = more.set_column(
        0, "ts", pa.array(more["ts"].cast(pa.int64()).to_numpy() + 40 * MINUTE).cast(pa.timestamp("us"))
    )
    for session in (live, bulk, half):  # and it ages as it would have
        session.ingest("s", later)
        whole(session)
    same(live, bulk)
    same(live, half)
    for session in (live, bulk, half):
        session.close()
    if durable:
        for name in ("live", "bulk", "half"):
            session = opened(tmp_path / name, create=False)
            whole(session)
            if name == "live":
                first = session
            else:
                same(first, session)
                session.close()
        first.close()


@pytest.mark.deep("compares whole stores")
@settings(max_examples=examples(15))
@given(st.data())
def test_any_mixture_is_the_same(tmp_path_factory, data):
    """Live batches, loads, checkpoints, restarts and steps of the watermark, in any order that keeps time."""
    folder = tmp_path_factory.mktemp("mixture")
    live, mixed = opened(), opened(folder / "store")
    at = 0
    try:
        for number in range(data.draw(st.integers(1, 6))):
            rows, seed = data.draw(st.integers(1, 900)), data.draw(st.integers(0, 1 << 30))
            span = data.draw(st.sampled_from([1, 2, 8, 25])) * MINUTE
            part = table(rows, seed, span)
            times = part["ts"].cast(pa.int64()).to_numpy() + at
            part = part.set_column(0, "ts", pa.array(times).cast(pa.timestamp("us")))
            at += data.draw(st.sampled_from([0, span // 2, span, 3 * span]))
            if data.draw(st.booleans()):
                mixed.ingest("s", part)
            else:
                kept = prepare(mixed, folder / f"p{number}", part, parts=data.draw(st.integers(1, 4)))
                if kept:
                    mixed.attach("s", str(folder / f"p{number}"), f"t{number}")
            live.ingest("s", part)
            if data.draw(st.booleans()):
                mixed.store.checkpoint()
            if data.draw(st.booleans()):
                mixed.close()
                mixed = opened(folder / "store", create=False)
            whole(mixed)
            assert coarse(live) == coarse(mixed)
        same(live, mixed)
    finally:  # also of an example that is given up half-way
        live.close()
        mixed.close()
        shutil.rmtree(folder)


def test_a_token_stands_for_one_load(tmp_path):
    session = opened(tmp_path / "store")
    data = table(2_000)
    prepare(session, tmp_path / "p", data, refused={"no_time": 3})
    first = session.attach("s", str(tmp_path / "p"), "monday")
    assert (first.accepted, first.refused, first.duplicate) == (2_000, {"no_time": 3}, False)
    prepare(session, tmp_path / "again", data, parts=7, refused={"no_time": 3})  # cut in another way
    again = session.attach("s", str(tmp_path / "again"), "monday")
    assert (again.accepted, again.refused, again.duplicate) == (2_000, {"no_time": 3}, True)
    prepare(session, tmp_path / "other", table(2_000, seed=5))
    with pytest.raises(TokenReused, match="'monday' already, with other tuples"):
        session.attach("s", str(tmp_path / "other"), "monday")
    assert session.stream("s").count == 2_000
    session.close()
    session = opened(tmp_path / "store", create=False)
    assert session.attach("s", str(tmp_path / "again"), "monday").duplicate
    assert (session.stream("s").count, session.stream("s").accepted) == (2_000, 2_000)
    assert session.stream("s").refused == {"no_time": 3}
    session.close()


@pytest.mark.parametrize("durable", [False, True])
def test_a_load_finds_the_stream_further_on(tmp_path, durable):
    """The watermark has moved since the load was planned, a summary is new and another is gone."""
    data = table(3_000)
    session = opened(tmp_path / "store" if durable else None)
    session.ingest("s", data.slice(0, 10))
    prepare(session, tmp_path / "p", data.slice(10))
    session.execute("DROP SUMMARY tills")
    session.execute(
        "CREATE SUMMARY tills ON s (till) WITH GRANULARITY 70 SECONDS AND COLLAPSE (2, 5) OPTIONS (buckets = 4)"
    )
    live = opened()
    for one in (session, live):
        one.advance("s", 46 * MINUTE)
    session.attach("s", str(tmp_path / "p"), "t")
    whole(session)
    live = opened()
    live.ingest("s", data)
    live.execute("DROP SUMMARY tills")
    live.execute(
        "CREATE SUMMARY tills ON s (till) WITH GRANULARITY 70 SECONDS AND COLLAPSE (2, 5) OPTIONS (buckets = 4)"
    )
    live.advance("s", 46 * MINUTE)
    assert {k: v for k, v in coarse(live).items() if k[0] == "items"} == {
        k: v for k, v in coarse(session).items() if k[0] == "items"
    }
    session.close()
    live.close()


def test_what_does_not_fit_is_refused_whole(tmp_path):
    session = opened(tmp_path / "store")
    session.execute("CREATE STREAM tiny (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts OPTIONS (max_tuples = 1000)")
    plan = session.load_plan("tiny")
    assert plan.room == 1024
    data = pa.table({"ts": pa.array(np.arange(3_000)).cast(pa.timestamp("us")), "item": np.arange(3_000)})
    shape = plan.shaped(2_999)
    entry = write_part(str(tmp_path / "p"), "one", plan, shape, data)
    write_manifest(str(tmp_path / "p"), plan, shape, "t", [entry], {})
    with pytest.raises(CeilingReached, match="3,000 tuples do not fit"):
        session.attach("tiny", str(tmp_path / "p"), "t")
    assert session.stream("tiny").count == 0
    assert [p.name for p in (tmp_path / "store" / "streams").rglob("*.parquet")] == []
    whole(session)
    session.close()


def test_packages_that_are_none(tmp_path):
    session = opened()
    package = tmp_path / "p"
    prepare(session, package, table(500))
    attach = lambda path=package, stream="s", token="t": session.attach(stream, str(path), token)  # noqa: E731
    with pytest.raises(BadPackage, match=r"there is no package\.json"):
        attach(tmp_path / "nowhere")
    with pytest.raises(BadPackage, match="1 to 250"):
        attach(token="")
    session.execute("CREATE STREAM other (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts")
    with pytest.raises(BadPackage, match="made for stream 's', not for 'other'"):
        attach(stream="other")
    with pytest.raises(BadPackage, match="another seed"):
        stranger = Session(clock=lambda: NOW, seed=8)
        for sql in CREATE:
            stranger.execute(sql)
        stranger.attach("s", str(package), "t")
    manifest = package / "package.json"
    text = manifest.read_text()
    manifest.unlink()
    with pytest.raises(BadPackage, match=r"there are files, but no package\.json"):
        attach()
    manifest.write_text(text[:-40])
    with pytest.raises(DataDamaged, match="cut off or damaged"):
        attach()
    manifest.write_text(text.replace('"rows": ', '"rows": 1'))
    with pytest.raises(DataDamaged, match="fails its checksum"):
        attach()
    manifest.write_text(text.replace('"format": 2', '"format": 3'))
    with pytest.raises(NewerFormat, match="format 3"):
        attach()
    whole = json.loads(text)
    for change in (
        {"parts": [{**whole["package"]["parts"][0], "name": "../x"}]},
        {"parts": [{"name": "x"}]},
        {"plan": 1},
    ):
        body = {**whole["package"], **change}
        manifest.write_text(json.dumps({**whole, "package": body, "crc": crc32c(json.dumps(body).encode())}))
        with pytest.raises(BadPackage, match="no manifest of a package"):
            attach()
    manifest.write_text(text)
    for path in sorted(package.glob("*-x.*")):
        data = path.read_bytes()
        path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        with pytest.raises(DataDamaged, match="fails its checksum"):
            attach()
        path.unlink()
        with pytest.raises(DataDamaged):
            attach()
        path.write_bytes(data)
    assert session.stream("s").count == 0
    assert attach().accepted == 500
    session.execute("DROP STREAM s CASCADE")
    for sql in CREATE:
        session.execute(sql.replace("till VARCHAR, price DOUBLE", "price DOUBLE, till VARCHAR"))
    with pytest.raises(BadPackage, match="other columns"):
        attach()
    remove(str(package))
    assert not package.exists()
    session.close()


def test_a_stream_that_is_not_the_one_of_then(tmp_path):
    session = opened()
    session.advance("s", 100 * MINUTE)
    plan = session.load_plan("s")
    shape = plan.shaped(99 * MINUTE)
    data = table(10).set_column(0, "ts", pa.array(np.full(10, 99 * MINUTE)).cast(pa.timestamp("us")))
    write_manifest(str(tmp_path / "p"), plan, shape, "t", [write_part(str(tmp_path / "p"), "x", plan, shape, data)], {})
    new = opened()
    with pytest.raises(BadPackage, match="it is not the stream of then"):
        new.attach("s", str(tmp_path / "p"), "t")
    assert new.stream("s").count == 0


def test_a_key_that_was_none_when_it_was_planned(tmp_path):
    session = Session(clock=lambda: NOW, seed=7)
    session.execute("CREATE STREAM s (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts")
    plan = session.load_plan("s")
    data = pa.table({"ts": pa.array([1, 2]).cast(pa.timestamp("us")), "item": pa.array([5, None])})
    shape = plan.shaped(2)
    write_manifest(str(tmp_path), plan, shape, "t", [write_part(str(tmp_path), "x", plan, shape, data)], {})
    session.execute("CREATE SUMMARY i ON s (item) WITH GRANULARITY 1 MINUTE AND COLLAPSE (2, 2)")
    with pytest.raises(NullKey, match="is a key now"):
        session.attach("s", str(tmp_path), "t")
    session.execute("DROP SUMMARY i")
    assert session.attach("s", str(tmp_path), "t").accepted == 2
    assert session.query("SELECT item FROM s ORDER BY ts").to_arrow()["item"].to_pylist() == [5, None]


def test_a_stream_that_was_dropped_meanwhile(tmp_path):
    session = opened(tmp_path / "store")
    prepare(session, tmp_path / "p", table(500))
    package = read_manifest(str(tmp_path / "p"))
    kept = session.store._kept["s"]
    session.execute("DROP STREAM s CASCADE")
    with pytest.raises(UnknownName):
        session.store.attach("s", package, "t")
    with pytest.raises(UnknownName, match="has been dropped"):
        kept.attach(package, "t")
    session.close()


def test_a_disk_that_fails_for_a_while(tmp_path):
    """Whatever cannot be written: the load is told to have failed, and the same load under its token mends it."""
    first = opened(tmp_path / "first")
    prepare(first, tmp_path / "p", table(700))
    first.close()
    for call in (1, 2, 5, 9, 12, 15):
        shutil.copytree(tmp_path / "first", tmp_path / "store")
        disk = FlakyDisk()
        session = opened(tmp_path / "store", disk=disk, create=False, sync_ahead=False)
        disk.fail_at(len(disk.calls) + call, lasting=True)
        with contextlib.suppress(StorageError):
            session.attach("s", str(tmp_path / "p"), "t")
        disk.mend()
        session.attach("s", str(tmp_path / "p"), "t")
        disk.lose()
        stopped(session)
        after = opened(tmp_path / "store", create=False)
        whole(after)
        assert after.stream("s").count == 700
        after.close()
        shutil.rmtree(tmp_path / "store")


@pytest.mark.deep("a crash at every call of the disk")
def test_a_crash_leaves_all_or_nothing(tmp_path):
    """The disk fails for good at each of its calls: after a start the load is in, or nothing of it is, and it can be
    given again."""
    data, before = table(1_500), table(300, seed=3, span=MINUTE)
    first = opened(tmp_path / "first")
    first.ingest("s", before)
    prepare(first, tmp_path / "p", data)
    first.close()
    seen = set()
    for call in itertools.count(1):
        shutil.copytree(tmp_path / "first", tmp_path / "store")
        disk = FlakyDisk()
        session = opened(tmp_path / "store", disk=disk, create=False, sync_ahead=False)
        done = len(disk.calls)
        disk.crash_at(done + call)
        told = None
        with contextlib.suppress(StorageError, Crash):
            told = session.attach("s", str(tmp_path / "p"), "t").accepted
        reached = disk.crashed
        stopped(session)
        disk.lose()
        after = opened(tmp_path / "store", create=False)
        whole(after)
        count = after.stream("s").count
        assert count in (300, 1_800) and (told is None or count == 1_800)
        seen.add(count)
        assert after.attach("s", str(tmp_path / "p"), "t").duplicate == (count == 1_800)
        assert after.stream("s").count == 1_800
        after.close()
        shutil.rmtree(tmp_path / "store")
        if not reached:
            break
    assert seen == {300, 1_800}
    assert call > 5


# --- damage, crashes, ceilings ---------------------------------------------------------------------------------------

PLAIN = "CREATE STREAM s (ts TIMESTAMP, item BIGINT{}) TIMESTAMP BY ts KEEP 8 MINUTES{}"
FAR = "CREATE SUMMARY far ON s (item) WITH GRANULARITY 1 MINUTE AND COLLAPSE (3, 5) OPTIONS (buckets = 8, width = 64)"
NEAR = "CREATE SUMMARY near ON s (item) WITH GRANULARITY 1 MINUTE AND COLLAPSE (2, 2) OPTIONS (buckets = 8, width = 64)"


def plain(folder=None, more="", options="", summaries=(NEAR,)):
    session = opened(folder, create=False)
    session.execute(PLAIN.format(more, options))
    for sql in summaries:
        session.execute(sql)
    return session


def items(rows, first, last, seed=0, **more):
    """Tuples of some minutes."""
    rng = np.random.default_rng(seed)
    times = pa.array(np.sort(rng.integers(first * MINUTE, last * MINUTE, rows))).cast(pa.timestamp("us"))
    return pa.table({"ts": times, "item": pa.array(rng.integers(0, 50, rows)), **more})


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def stopped(session):
    """As a crash leaves it: nothing more is written."""
    session.store._ended.set()
    for thread in session.store._threads:
        thread.join()
    session.store._let_go()


def test_a_damaged_checkpoint_does_not_take_a_load_with_it(tmp_path):
    session = plain(tmp_path / "store")
    session.ingest("s", items(600, 99, 100))
    prepare(session, tmp_path / "p", items(2_000, 95, 100, 1))
    session.attach("s", str(tmp_path / "p"), "t")
    count = session.stream("s").count
    assert count > 2_000
    session.close()
    images = sorted(tmp_path.glob("store/streams/*/checkpoint/*.image"))
    assert len(images) == 2
    damage(images[-1])
    session = opened(tmp_path / "store", create=False)
    assert session.stream("s").count == count
    whole(session)
    session.close()
    for image in tmp_path.glob("store/streams/*/checkpoint/*.image"):
        damage(image)
    session = opened(tmp_path / "store", create=False)
    assert any("lost" in what for what in session.stream("s").damages)
    session.close()


def test_what_came_after_a_load_that_a_crash_took_still_fits(tmp_path, monkeypatch):
    session = plain(tmp_path / "store", options=" OPTIONS (max_tuples = 2048)")
    session.ingest("s", items(2_000, 103, 104))
    prepare(session, tmp_path / "p", items(300, 107, 120, 2), parts=1)
    kept = session.store._kept["s"]

    def full(force=True):
        raise StorageError("disk full")

    monkeypatch.setattr(kept, "checkpoint", full)
    with pytest.raises(StorageError, match="disk full"):
        session.attach("s", str(tmp_path / "p"), "t")
    oldest = session.stream("s").oldest
    late = items(1_000, 0, 1, 3)
    times = late["ts"].cast(pa.int64()).to_numpy() // 2 + oldest + 1
    session.ingest("s", late.set_column(0, "ts", pa.array(times).cast(pa.timestamp("us"))))
    stopped(session)
    session = opened(tmp_path / "store", create=False)
    assert session.stream("s").accepted == 3_000
    whole(session)
    session.close()


def test_a_damaged_load_is_given_up_by_repair(tmp_path):
    session = plain(tmp_path / "store")
    session.ingest("s", items(100, 99, 100))
    prepare(session, tmp_path / "p", items(1_000, 99, 100, 1), parts=1)
    session.attach("s", str(tmp_path / "p"), "t")
    session.close()
    (run,) = tmp_path.glob("store/streams/*/cold/*.parquet")
    damage(run)
    repair(tmp_path / "store")
    session = opened(tmp_path / "store", create=False)
    assert session.stream("s").count == 100
    session.ingest("s", items(500, 100, 101, 5))
    whole(session)
    assert session.query("SELECT count(*) AS n FROM s").to_arrow()["n"].to_pylist() == [600]
    session.close()


@pytest.mark.parametrize("again", [True, False])
def test_what_was_gone_before_a_summary_was_made_stays_gone(tmp_path, again):
    session = plain(summaries=(FAR, NEAR))
    session.ingest("s", items(300, 99, 100, 1))
    if again:
        prepare(session, tmp_path / "p", items(2_000, 20, 100, 2))
    session.execute("DROP SUMMARY far")
    if again:
        session.ingest("s", items(300, 100, 101, 3))
        session.execute(FAR)
    else:
        session.execute(FAR.replace("far", "far2"))
        prepare(session, tmp_path / "p", items(2_000, 20, 100, 2))
    session.attach("s", str(tmp_path / "p"), "t")
    whole(session)
    session.ingest("s", items(3_000, 101, 140, 4))
    whole(session)


def test_many_small_loads_share_chunks(tmp_path):
    session = plain(tmp_path / "store", options=" OPTIONS (max_tuples = 2000)")
    for number in range(20):
        prepare(session, tmp_path / f"p{number}", items(10, 99, 100, number), parts=1)
        session.attach("s", str(tmp_path / f"p{number}"), f"t{number}")
        session.ingest("s", items(10, 99, 100, 100 + number))
    whole(session)
    session.close()
    session = opened(tmp_path / "store", create=False)
    assert session.stream("s").count == 400
    whole(session)
    session.close()


def test_small_parts_between_large_ones_need_no_chunk_each(tmp_path):
    session = plain(tmp_path / "store", options=" OPTIONS (max_tuples = 768)")
    plan = session.load_plan("s")
    parts = [items(rows, 99, 100, rows) for rows in (100, 512, 101)]
    shape = plan.shaped(max(part["ts"].cast(pa.int64()).to_numpy().max() for part in parts).item())
    entries = [write_part(str(tmp_path / "p"), f"{n}", plan, shape, part) for n, part in enumerate(parts)]
    write_manifest(str(tmp_path / "p"), plan, shape, "t", entries, {})
    assert session.attach("s", str(tmp_path / "p"), "t").accepted == 713
    whole(session)
    session.close()


def test_strings_of_a_load_have_their_ceiling(tmp_path):
    session = plain(more=", till VARCHAR", options=" OPTIONS (max_string_bytes = 200000)")
    prepare(session, tmp_path / "p", items(2_000, 99, 100, till=pa.array(["x" * 1_000] * 2_000)))
    with pytest.raises(CeilingReached, match="strings of the load"):
        session.attach("s", str(tmp_path / "p"), "t")
    assert session.stream("s").count == 0


def test_a_stream_of_the_same_name_made_meanwhile(tmp_path):
    session = plain(tmp_path / "store")
    prepare(session, tmp_path / "p", items(500, 99, 100))
    package = read_manifest(str(tmp_path / "p"))
    session.execute("DROP STREAM s CASCADE")
    session.execute("CREATE STREAM s (ts TIMESTAMP, item VARCHAR) TIMESTAMP BY ts")
    with pytest.raises(BadPackage, match="other columns"):
        session.store.attach("s", package, "t")
    session.close()


def test_a_load_that_was_prepared_for_other_counts(tmp_path):
    """Its sums are left out, and its tuples are added one by one."""
    prepare(opened(), tmp_path / "p", table(800))
    session = opened(create=False)
    for sql in CREATE:
        other = sql.replace(" USING EXACT", " USING COUNT_MIN").replace(
            "items ON s (item)", "items ON s (item) USING EXACT"
        )
        session.execute(other)
    stream = session.stream("s")
    assert attach(stream, read_manifest(str(tmp_path / "p")), "t").accepted == 800
    assert check_stream(stream) == []
    found, truth = session.estimate("items", np.arange(300)), table(800)["item"].to_numpy()
    assert (found.lower == found.upper).all() and (found.value == np.bincount(truth, minlength=300)).all()
