"""The files for Kubernetes, KEDA, Prometheus and Grafana: valid by their own schemas, and about metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser
import pytest
import yaml
from typer.testing import CliRunner

from bus.types import Plane
from workers.cli import app
from workers.observing.prometheus import Metrics

ROOT = Path(__file__).parent.parent
KUBERNETES, MONITORING = ROOT / "examples" / "kubernetes", ROOT / "examples" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "evalbus.json"


def documents(path: Path) -> list[dict[str, Any]]:
    """All of a YAML file."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


KUSTOMIZATION = documents(KUBERNETES / "kustomization.yaml")[0]
MANIFESTS = [one for name in KUSTOMIZATION["resources"] for one in documents(KUBERNETES / name)]
ROLES = ("planner", "worker", "scorer")


def names_in_use() -> set[str]:
    """What the roles' metrics are called on their page."""
    found = set()
    for family in Metrics("worker", Plane.LIVE).registry.collect():
        found |= {family.name, f"{family.name}_total", f"{family.name}_bucket", f"{family.name}_count"}
    return found


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_a_manifest_is_one_by_the_schema(manifest: dict[str, Any]) -> None:
    """Of the newest Kubernetes that is known, and strictly: no field that nothing reads."""
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_kustomize_names_every_file() -> None:
    """A manifest that nobody applies would be out of date without a word; KEDA's is for those who have KEDA."""
    there = {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml", "keda.yaml"}
    assert set(KUSTOMIZATION["resources"]) == there


@pytest.mark.parametrize("role", ROLES)
def test_a_role_is_started_as_its_command_wants(role: str) -> None:
    """Each option is one that the command has; the pod runs as nobody in particular and can write to no image."""
    (deployment,) = [one for one in MANIFESTS if one["kind"] == "Deployment" and one["metadata"]["name"] == role]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name, *options = container["args"]
    known = set(re.findall(r"--[a-z-]+", CliRunner().invoke(app, [name, "--help"]).output))
    assert {word for word in options if word.startswith("--")} <= known
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    (port,) = container["ports"]
    assert options[options.index("--metrics") + 1] == f"0.0.0.0:{port['containerPort']}"


def test_the_scaler_asks_for_a_metric_that_exists() -> None:
    """KEDA's own kind has no schema here: what it must have is looked at by hand."""
    (scaler,) = documents(KUBERNETES / "keda.yaml")
    assert (scaler["apiVersion"], scaler["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    spec = scaler["spec"]
    assert spec["scaleTargetRef"]["name"] == "worker"
    assert 0 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    (trigger,) = spec["triggers"]
    assert set(trigger["metadata"]) == {"serverAddress", "query", "threshold"}
    assert metrics_of(trigger["metadata"]["query"]) <= names_in_use()


def test_compose_files_are_ones_by_the_schema() -> None:
    """By the published one of the format."""
    for path in (ROOT / "compose.yaml", MONITORING / "compose.yaml"):
        checked = subprocess.run(
            [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert checked.returncode == 0, checked.stdout


def metrics_of(query: str) -> set[str]:
    """The metrics that a query names; it fails when the query is none."""
    parsed = promql_parser.parse(query)
    return {
        str(one) for one in re.findall(r"[a-z_:][a-z0-9_:]*", str(parsed)) if one.startswith(("evalbus_", "process_"))
    }


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard and of the alerts, with where it stands."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            # Grafana fills its variables in before Prometheus reads the query.
            yield panel["title"], re.sub(r"\$\{?(\w+)\}?", r"\1", target["expr"])
    for group in documents(MONITORING / "alerts.yml")[0]["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


def test_every_query_is_one_and_asks_for_metrics_that_exist() -> None:
    """A metric that is renamed would leave a panel empty, and an alert silent."""
    process = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    for title, query in queries():
        assert (found := metrics_of(query)), title
        assert found <= names_in_use() | process, title


def test_the_dashboard_shows_no_pass_rate() -> None:
    """An open batch has none, and a closed one has it in its snapshot."""
    text = DASHBOARD.read_text()
    assert "pass_rate" not in text
    ids = [panel["id"] for panel in json.loads(text)["panels"]]
    assert len(ids) == len(set(ids))
    places = [tuple(panel["gridPos"].values()) for panel in json.loads(text)["panels"]]
    assert len(places) == len(set(places))
