"""What the dashboard and the alert rules ask, and what a service exports."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

import promising
from promising.settings import Settings
from promising.testing.service import running
from tests.docs.pages import ROOT, free_port

RULES = ROOT / "deploy" / "prometheus-rules.yaml"
RULES_TEST = ROOT / "deploy" / "prometheus-rules-test.yaml"
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
# Added by Prometheus when it scrapes.
SCRAPED = {"up"}
SCRAPE_LABELS = {"instance", "job"}
NAME = re.compile(r"\b(?:(?:promising|process)_\w+|up)\b")
SELECTED = re.compile(r"([a-z_]+)\{([^}]*)\}")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")

Panel = dict[str, Any]
Series = dict[str, set[str]]


def dashboard() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return read


def panels() -> list[Panel]:
    """The panels that ask something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def dashboard_expressions() -> list[str]:
    """With values in place of Grafana's variables."""
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m").replace("$instance", ".*") for text in asked]


def rule_expressions(path: Path = RULES) -> dict[str, str]:
    """The expression of each alert; a folded one (`>-`) in one line."""
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"- alert: (\w+)\n +expr: (?:>-\n((?: {10}.*\n)+)|(.*)\n)", text)
    assert len(found) == text.count("- alert:"), "an alert without an expression"
    return {name: " ".join((folded or line).split()) for name, folded, line in found}


def names(expression: str) -> set[str]:
    """The metrics of an expression."""
    return set(NAME.findall(re.sub(r'"[^"]*"', '""', expression)))


def labels(expression: str) -> Iterator[tuple[str, str]]:
    """Each metric of an expression with each label that is selected or grouped by."""
    grouped = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",")}
    for metric, selectors in SELECTED.findall(expression):
        yield from ((metric, label) for label in {*LABEL.findall(re.sub(r'"[^"]*"', '""', selectors)), *grouped})


@contextmanager
def service() -> Iterator[str]:
    """Address of the metrics of a service in which every kind of call has happened."""
    listen = f"127.0.0.1:{free_port()}"
    with running(Settings(listen="127.0.0.1:0", metrics_listen=listen)) as target, promising.connect(target) as session:
        session.execute("CREATE STREAM s (ts TIMESTAMP, item INT) TIMESTAMP BY ts")
        session.ingest("s", {"ts": [1, 2], "item": [7, 7]})
        session.query("SELECT item FROM s").run()
        yield f"http://{listen}/metrics"


def exported(address: str) -> Series:
    """Names of all series, each with its labels."""
    with urlopen(address) as response:
        text = response.read().decode()
    series: Series = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series.setdefault(sample.name, set()).update(sample.labels)
    return series
