"""The program as its users have it: processes, pipes, signals, terminals."""

import json
import re
import signal
import socket
from contextlib import contextmanager

import pyarrow as pa
import pytest

import promising
from tests.promising.cli.running import PATIENCE, Serving, Terminal, finished, program
from tests.promising.server.certificates import Authority

PAIRS = 60_000  # tuples of one key in each of two streams: their join has so many squared


@pytest.fixture(scope="module")
def wide(stores):
    """A join that nobody waits for: every tuple of `left` with every tuple of `right`."""
    rows = pa.table({"ts": pa.array(range(PAIRS), pa.timestamp("us")), "k": pa.array([7] * PAIRS, pa.int64())})
    with promising.connect(stores) as session:
        for name in ("left_side", "right_side"):
            session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
            session.ingest(name, rows)
    return "SELECT a.k, b.ts FROM left_side a, right_side b WHERE a.k = b.k"


@contextmanager
def serving(tmp_path, *flags):
    server = Serving(tmp_path / "log", *flags)
    try:
        yield server.target()
    finally:
        assert server.stop() == 0


def test_a_first_quarter_of_an_hour(stores, tmp_path):
    """From a file to an answer, every step a process of its own, with nothing but the target in common."""
    env = {"PROMISING_TARGET": stores}
    (tmp_path / "sales.csv").write_text(
        "sold_at,item,price\n" + "".join(f"2024-05-01 12:{n // 60:02}:{n % 60:02},{n % 7},{n}\n" for n in range(900))
    )
    made = finished("ingest", str(tmp_path / "sales.csv"), "--stream", "shop", "--create", "--time", "sold_at", **env)
    assert made.code == 0, made
    assert made.out.startswith("900 tuples into shop in ")
    summed = finished("create-summary", "by_item", "--on", "shop", "--key", "item", "--granularity", "1m", **env)
    assert summed.out.startswith("summary by_item created on shop (item): at most ")
    assert summed.out.endswith(" MB of sketches, 15 bytes a tuple, 200 a key\n")
    asked = finished("query", "SELECT item, count(*) AS n FROM shop GROUP BY item ORDER BY item", "-o", "csv", **env)
    assert [line.split(",")[1] for line in asked.out.splitlines()[1:]] == ["129"] * 4 + ["128"] * 3
    piped = finished("sql", "-o", "json", input="SELECT max(price) AS dearest FROM shop;", **env)
    assert json.loads(piped.out) == {"dearest": 899}
    assert piped.err.startswith("1 row, complete")
    drawn = finished("describe", "by_item", **env)
    assert "by_item on item: 900 tuples" in drawn.out
    region = re.search(r"promising story (\S+)", drawn.out)
    assert region is not None
    assert finished("story", region[1], **env).code == 0
    assert "shop" in finished("status", **env).out


# --- serve -------------------------------------------------------------------------------------------------------


@pytest.mark.deep("starts many processes")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--listen", "nonsense"), "listen (flag): write host:port"),
        (("--listen", "0.0.0.0:0"), "which other machines can reach"),
        (("--set", "limits.max_querys=3"), "did you mean limits.max_queries?"),
        (("--config", "nowhere.toml"), "nowhere.toml: the settings cannot be read"),
        (("--tls-certificate", "x.pem"), "TLS needs both"),
        (("--log-level", "loud"), "log_level (flag)"),
        (("--max-budget", "2h"), "limits.max_budget_seconds (flag)"),
    ],
)
def test_settings_that_cannot_be_end_with_2(flags, said):
    ended = finished("serve", *flags)
    assert ended.code == 2
    assert ended.err.startswith("error: ")
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.deep("starts many processes")
def test_a_port_that_is_taken_is_told(stores):
    ended = finished("serve", "--listen", stores)
    assert ended.code == 2
    assert ended.err == f"error: listen: {stores} is taken, or no address of this machine\n"


@pytest.mark.deep("starts many processes")
def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path, monkeypatch):
    (tmp_path / "promising.toml").write_text("drain_seconds = 3\n[limits]\nmax_rows = 7\nmax_keys = 7\n")
    monkeypatch.setenv("PROMISING_LIMITS__MAX_KEYS", "8")
    monkeypatch.setenv("PROMISING_LIMITS__MAX_ROWS", "8")
    with serving(tmp_path, "--set", "limits.max_rows=9") as target:
        told = finished("config", "show", "--running", "-o", "json", PROMISING_TARGET=target)
    found = {row["setting"]: row["value"] for row in map(json.loads, told.out.splitlines())}
    assert (found["drain_seconds"], found["limits.max_keys"], found["limits.max_rows"]) == ("2.0", "8", "9")


@pytest.mark.deep("starts many processes")
def test_ctrl_c_ends_the_service_too(tmp_path):
    server = Serving(tmp_path / "log")
    server.target()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(PATIENCE) == 0
    assert '"stopped"' in server.log.read_text()


# --- exit codes --------------------------------------------------------------------------------------------------


def test_no_service_ends_with_3_and_says_what_to_do():
    ended = finished("status", "--target", "127.0.0.1:1")
    assert ended.code == 3
    assert ended.err.splitlines() == [
        "error: no service at 127.0.0.1:1 (Connection refused)",
        "Start one with `promising serve`, or name the one you mean with --target HOST:PORT.",
    ]


def test_an_answer_that_does_not_come_in_time_ends_with_3():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection and never says a word
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = finished("status", "--timeout", "50ms", PROMISING_TARGET=target)
    assert ended.code == 3
    assert "--timeout" in ended.err


@pytest.mark.deep("starts many processes")
def test_those_who_are_not_allowed_end_with_4(tmp_path):
    tokens = tmp_path / "tokens.db"
    secrets = {}
    for role in ("admin", "query"):
        secrets[role] = finished("token", "create", role, "--role", role, "--tokens", str(tokens)).out.strip()
    (tmp_path / "admin.token").write_text(secrets["admin"] + "\n")
    columns = ("--column", "ts TIMESTAMP", "--time", "ts")
    with serving(tmp_path, "--tokens", str(tokens)) as target:
        env = {"PROMISING_TARGET": target}
        nobody = finished("status", **env)
        assert nobody.code == 4
        assert nobody.err.splitlines()[-1].startswith("Give a token: --token-file FILE, or PROMISING_TOKEN")
        assert finished("status", PROMISING_TOKEN="prm_made_up", **env).code == 4
        query = {**env, "PROMISING_TOKEN": secrets["query"]}
        assert finished("status", **query).code == 0
        refused = finished("create-stream", "s", *columns, **query)
        assert refused.code == 4
        assert "promising token create" in refused.err
        assert "Only the role admin may see which queries run" in finished("top", "--once", **query).out
        admin = finished("create-stream", "s", *columns, "--token-file", str(tmp_path / "admin.token"), **env)
        assert admin.code == 0
        assert finished("token", "revoke", "query", "--tokens", str(tokens)).code == 0
        assert finished("status", **query).code == 4


@pytest.mark.deep("starts many processes")
def test_tls_needs_somebody_to_trust(tmp_path):
    authority = Authority(tmp_path)
    server = authority.server()
    flags = ("--tls-certificate", str(server.certificate), "--tls-key", str(server.key))
    with serving(tmp_path, *flags) as target:
        there = target.replace("127.0.0.1", "localhost")
        assert finished("status", "--target", there, "--ca", str(authority.certificate)).code == 0
        plain = finished("status", "--target", there)
        assert plain.code == 3
        stranger = finished("status", "--target", f"grpcs://{there}")
        assert stranger.code == 3
        assert "--ca" in stranger.err


# --- Ctrl-C ------------------------------------------------------------------------------------------------------


@pytest.mark.deep("starts many processes")
def test_ctrl_c_ends_a_query_with_the_rows_there_are(wide, stores):
    with program("query", wide, "-o", "csv", PROMISING_TARGET=stores) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == '"k","ts"\n'
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()  # `communicate` leaves out what was read ahead
        process.wait(PATIENCE)
    assert process.returncode == 130
    assert f"{len(out.splitlines()):,} rows, cancelled after " in err
    assert "promising query --output csv --resume " in err
    assert "Traceback" not in err


@pytest.mark.deep("starts many processes")
def test_a_reader_that_goes_away_is_no_fault(wide, stores):
    with program("query", wide, "-o", "csv", PROMISING_TARGET=stores) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) != 0
        assert "Traceback" not in process.stderr.read()


@pytest.mark.deep("starts many processes")
@pytest.mark.parametrize("way", ["file", "pipe"])
def test_an_error_early_in_a_long_file_ends_cleanly(way, stores, tmp_path):
    """Nothing still reads when the program ends."""
    text = "ts,k\n" + "2024-05-01,7\n" * 1_000_000
    (tmp_path / "long.csv").write_text(text)
    words = ("ingest", str(tmp_path / "long.csv") if way == "file" else "-", "--format", "csv", "--stream", "tight")
    with promising.connect(stores) as session:
        session.execute(
            "CREATE STREAM IF NOT EXISTS tight (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts OPTIONS (max_tuples = 1000)"
        )
    with program(*words, PROMISING_TARGET=stores) as process:
        _, err = process.communicate(text if way == "pipe" else None, timeout=PATIENCE)
    assert process.returncode == 1
    assert "tuples do not fit" in err
    assert "Fatal" not in err
    assert "Traceback" not in err


# --- on a terminal -----------------------------------------------------------------------------------------------


def test_the_shell_on_a_terminal(wide, stores, tmp_path):
    with Terminal("sql", PROMISING_TARGET=stores, XDG_STATE_HOME=str(tmp_path)) as terminal:
        terminal.until("promising>")
        terminal.press("SELECT count(*) AS many\r")
        terminal.until(r"\.\.\.")
        terminal.press("FROM store1;\r")
        terminal.until(r"(?s)4000.*1 row, complete")
        terminal.press(wide + ";\r")
        terminal.until(r"\ds CPU|us CPU|ms CPU")  # its meter
        terminal.press("\x03")
        terminal.until(r"(?s)more rows.*cancelled after")
        terminal.press("\\q\r")
        assert terminal.end() == 0


@pytest.mark.deep("starts many processes")
def test_a_query_shows_its_coverage_while_it_runs(wide, stores):
    with Terminal("query", wide, "--budget", "300ms", "--limit-shown", "3", PROMISING_TARGET=stores) as terminal:
        terminal.until(r"(?s)[░▒█]+.*%")
        terminal.until(r"(?s)\.\.\. [\d,]+ more rows.*cut by its budget")
        assert terminal.end() == 0


@pytest.mark.parametrize("wish", [{}, {"NO_COLOR": "1"}])
def test_no_colour_if_that_is_wished(wish, stores):
    with Terminal("query", "SELECT nix FROM store1", PROMISING_TARGET=stores, **wish) as terminal:
        seen = terminal.until("no column")
        assert terminal.end() == 1
    assert bool(re.search(r"\x1b\[[\d;]*3\d", seen)) is not bool(wish)


def test_top_until_q(stores):
    with Terminal("top", "--every", "100ms", PROMISING_TARGET=stores) as terminal:
        terminal.until(r"tuples/s")
        terminal.press("xq")
        assert terminal.end() == 0


def test_bytes_are_refused_on_a_terminal(stores):
    with Terminal("query", "SELECT 1 FROM store1", "--output", "arrow", PROMISING_TARGET=stores) as terminal:
        terminal.until("writes bytes")
        assert terminal.end() == 2
