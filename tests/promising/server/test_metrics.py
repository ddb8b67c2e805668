"""Metrics: each is on its page, each service has its own, and the endpoint answers."""

import http.client
import re
import socket
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from promising.errors import BadSettings
from promising.server.metrics import Metrics

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def endpoint():
    started = []

    def start(metrics, ready=lambda: True, listen="127.0.0.1:0"):
        started.append(metrics.endpoint(listen, ready))
        return started[-1]

    yield start
    for running in started:
        running.stop()


def get(port, path, method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def of_the_code():
    """Name, kind, labels and meaning of each metric of ours."""
    found = []
    for metric in Metrics().__dict__.values():
        for family in metric.describe() if hasattr(metric, "describe") else ():
            name = family.name + ("_total" if family.type == "counter" else "")
            labels = ", ".join(metric._labelnames)  # public in no other way before the first value
            found.append((name, family.type, labels, family.documentation))
    return found


def test_the_page_lists_every_metric_and_no_other():
    rows = re.findall(r"^`(promising_\w+)` \| (\w+) \| ([\w, `]*?) ?\| (.*?)$", PAGE.read_text(encoding="utf-8"), re.M)
    told = [(name, kind, labels.replace("`", ""), meaning) for name, kind, labels, meaning in rows]
    assert told == of_the_code()


def test_attributes_are_called_as_their_metrics():
    metrics = Metrics()
    names = {f"promising_{name}" for name in vars(metrics) if name != "registry"}
    assert names == {name for name, *_ in of_the_code()}


def test_each_service_counts_for_itself():
    first, second = Metrics(), Metrics()
    first.query_rows_total.inc(3)
    assert first.registry.get_sample_value("promising_query_rows_total") == 3
    assert second.registry.get_sample_value("promising_query_rows_total") == 0


def test_the_endpoint_tells_what_was_counted(endpoint):
    metrics = Metrics()
    metrics.rpcs_total.labels("/a/B", "OK").inc(2)
    metrics.rpc_seconds.labels("/a/B").observe(0.3)
    metrics.tuples.set_function(lambda: 41)
    status, text, headers = get(endpoint(metrics).port, "/metrics?x=1")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["promising_rpcs_total", "/a/B", "OK"] == 2
    assert samples["promising_rpc_seconds_count", "/a/B"] == 1
    assert samples["promising_tuples",] == 41
    assert samples["process_resident_memory_bytes",] > 0


def test_ready_follows_the_service_and_healthy_does_not(endpoint):
    state = {"ready": False}
    port = endpoint(Metrics(), lambda: state["ready"]).port
    assert get(port, "/-/ready")[:2] == (503, "not ready\n")
    assert get(port, "/-/healthy")[:2] == (200, "healthy\n")
    state["ready"] = True
    assert get(port, "/-/ready")[:2] == (200, "ready\n")


def test_other_pages_and_methods_are_refused(endpoint):
    port = endpoint(Metrics()).port
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics/../etc/passwd")[0] == 404
    assert get(port, "/metrics", "POST")[0] == 501


def test_a_fault_in_a_gauge_leaves_the_endpoint_up_and_stderr_empty(endpoint, capfd):
    metrics = Metrics()
    metrics.tuples.set_function(lambda: 1 // 0)
    port = endpoint(metrics).port
    with pytest.raises(http.client.RemoteDisconnected):
        get(port, "/metrics")
    assert get(port, "/-/healthy")[0] == 200
    assert "division" not in capfd.readouterr().err


def test_one_that_says_nothing_holds_up_nobody(endpoint):
    port = endpoint(Metrics()).port
    with socket.create_connection(("127.0.0.1", port)):
        assert get(port, "/-/healthy")[0] == 200


def test_a_taken_port_is_named_by_its_setting(endpoint):
    port = endpoint(Metrics()).port
    with pytest.raises(BadSettings, match=rf"^metrics_listen: 127\.0\.0\.1:{port}: "):
        Metrics().endpoint(f"127.0.0.1:{port}", lambda: True)


def test_stop_frees_the_port():
    running = Metrics().endpoint("127.0.0.1:0", lambda: True)
    running.stop()
    again = Metrics().endpoint(f"127.0.0.1:{running.port}", lambda: True)
    again.stop()
