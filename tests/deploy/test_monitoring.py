"""Dashboard and alert rules ask only for what a running service exports, and Prometheus understands them."""

import itertools
import re
import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from promising.server.metrics import Metrics
from tests.deploy import monitoring
from tests.deploy.monitoring import DASHBOARD, RULES, RULES_TEST, SCRAPE_LABELS, SCRAPED, dashboard, panels

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing: Debian's package prometheus has it")


@pytest.fixture(scope="module")
def series():
    with monitoring.service() as address:
        yield monitoring.exported(address)


@pytest.fixture(params=["dashboard", "rules"])
def expressions(request):
    return (
        monitoring.dashboard_expressions()
        if request.param == "dashboard"
        else list(monitoring.rule_expressions().values())
    )


def promtool(*arguments: str) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_metric_is_exported_by_a_running_service(expressions, series):
    asked = set().union(*map(monitoring.names, expressions))
    assert len(asked) > 10
    assert asked - SCRAPED - set(series) == set()


def test_every_label_is_one_of_its_metric(expressions, series):
    asked = {pair for expression in expressions for pair in monitoring.labels(expression)}
    wrong = {
        (metric, label)
        for metric, label in asked
        if metric not in SCRAPED and label not in SCRAPE_LABELS and label not in series[metric]
    }
    assert wrong == set()


def test_a_metric_or_label_that_is_not_there_is_found():
    """The tests above can fail."""
    expression = 'sum by (le, kind) (rate(promising_rpcs_total{code="promising_x", method!~"a"}[5m])) > promising_gone'
    assert monitoring.names(expression) == {"promising_rpcs_total", "promising_gone"}
    found = {label for _, label in monitoring.labels(expression)}
    assert found == {"code", "method", "le", "kind"}


def test_the_dashboard_shows_every_metric_of_the_service():
    shown = set().union(*map(monitoring.names, monitoring.dashboard_expressions()))
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in shown}
    assert {f"promising_{name}" for name in vars(Metrics()) if name != "registry"} <= shown


def test_panels_have_a_place_a_title_and_the_chosen_data_source():
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert panel["title"]
        assert place["x"] + place["w"] <= 24
        columns, lines = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
        cells = set(itertools.product(columns, lines))
        assert not cells & taken, f"{panel['title']} lies over another panel"
        taken |= cells
    for panel in panels():
        assert {asked["datasource"]["uid"] for asked in (panel, *panel["targets"])} == {"${datasource}"}
    assert [variable["name"] for variable in dashboard()["templating"]["list"]] == ["datasource", "instance"]


def test_every_alert_has_severity_summary_and_advice():
    text = RULES.read_text(encoding="utf-8")
    alerts = text.split("- alert: ")[1:]
    for alert in alerts:
        assert re.search(r"labels: \{severity: (critical|warning|info)\}", alert), alert
        assert "summary: " in alert, alert
        assert "description: " in alert, alert


def test_every_alert_is_tested():
    tested = set(re.findall(r'alertname="(\w+)"', RULES_TEST.read_text(encoding="utf-8")))
    assert tested == set(monitoring.rule_expressions())


def test_no_file_names_a_host():
    for path in Path(DASHBOARD).parent.iterdir():
        text = path.read_text(encoding="utf-8")
        assert set(re.findall(r"\w+://[\w.:]+", text)) <= {"http://127.0.0.1:9464"}, path


@needs_promtool
@pytest.mark.deep("needs promtool")
def test_prometheus_reads_the_rules_and_they_alert_as_they_should():
    assert "12 rules found" in promtool("check", "rules", str(RULES))
    assert "SUCCESS" in promtool("test", "rules", str(RULES_TEST))


@needs_promtool
@pytest.mark.deep("needs promtool")
def test_prometheus_parses_every_expression_of_the_dashboard(tmp_path):
    rules = "groups:\n- name: dashboard\n  rules:\n"
    for number, expression in enumerate(monitoring.dashboard_expressions()):
        rules += f"  - record: panel:{number}\n    expr: |-\n      {expression}\n"
    (tmp_path / "rules.yaml").write_text(rules)
    assert f"{len(monitoring.dashboard_expressions())} rules found" in promtool(
        "check", "rules", str(tmp_path / "rules.yaml")
    )


@needs_promtool
@pytest.mark.deep("needs promtool")
def test_prometheus_accepts_what_the_service_exports():
    """Its linter: types, help texts and names."""
    with monitoring.service() as address, urlopen(address) as response:
        text = response.read()
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr  # 3: hints on names only
