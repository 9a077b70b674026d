"""That the files of `deploy/` and of the profiles `cluster` and `cells` say what Crewel understands, and name what there is."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from crewel.cli.serve import serve
from crewel.settings import Settings, load
from crewel.settings.table import declared
from tests.house.source import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
KUBERNETES: dict[str, Any] = {
    each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "cluster.yaml").read_text("utf-8"))
}
POD: dict[str, Any] = KUBERNETES["Deployment"]["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
BALANCER = (DEPLOY / "compose" / "haproxy.cfg").read_text("utf-8")
OPTIONS = {f"--{name.replace('_', '-')}" for name in inspect.signature(serve).parameters} | {"--set"}
SECRETS = {"storage-url": "redis+sentinel://one,two,three/crewel", "admin-token": "x" * 32}


def of_kubernetes() -> Settings:
    """The settings of a pod, with what the secret could be."""
    variables = {}
    for each in CONTAINER["env"]:
        source = each.get("valueFrom", {})
        secret = source.get("secretKeyRef", {}).get("key")
        variables[each["name"]] = each.get("value") or SECRETS.get(secret, "name-of-the-pod")
    return load("/dev/null", environ=variables)


def sections(text: str) -> dict[str, list[tuple[str, str]]]:
    """The assignments of a unit, by section; a name may come twice."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in text.splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            found[match[1]] = rows = []
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            rows.append((name, value))
    return found


@pytest.mark.parametrize("name", ["node-a", "node-b"])
def test_the_nodes_of_compose_share_a_store_that_fails_over(name: str) -> None:
    service = COMPOSE["services"][name]
    settings = load("/dev/null", environ=service["environment"])
    assert settings.cluster.enabled
    assert settings.node.name == name[-1]
    assert settings.cluster.advertise == name
    assert settings.storage.replicas == 1
    location = settings.storage.location
    assert location is not None
    assert {host for host, _ in location.hosts} == {each for each in service["depends_on"] if "sentinel" in each}
    watched = (DEPLOY / "compose" / "sentinel.sh").read_text("utf-8")
    assert f"sentinel monitor {location.service} " in watched


def test_the_balancer_of_compose_knows_all_nodes() -> None:
    servers = set(re.findall(r"^ +server \w+ ([\w-]+):8080$", BALANCER, re.MULTILINE))
    assert servers == set(COMPOSE["services"]["balancer"]["depends_on"])
    assert servers == {name for name in COMPOSE["services"] if name.startswith("node-")}
    settings = load("/dev/null", environ=COMPOSE["services"]["node-a"]["environment"])
    seconds = [int(each) for each in re.findall(r"timeout (?:client|server) (\d+)s", BALANCER)]
    assert all(each > settings.bayeux.timeout_ms / 1000 for each in seconds)
    assert len(seconds) == 2
    assert COMPOSE["services"]["balancer"]["ports"] == ["127.0.0.1:8090:8080"]


def test_the_balancer_of_cells_knows_all_cells() -> None:
    text = (DEPLOY / "compose" / "cells.cfg").read_text("utf-8")
    lines = (DEPLOY / "compose" / "cells.map").read_text("utf-8").splitlines()
    services = COMPOSE["services"]
    cells = {name.removeprefix("cell-"): services[name] for name in services if name.startswith("cell-")}
    assert len(cells) > 1
    assert set(re.findall(r"^backend (\w+)$", text, re.MULTILINE)) == set(cells)
    assert dict(re.findall(r"^ +server (\w+) cell-(\w+):8080$", text, re.MULTILINE)) == {each: each for each in cells}
    assert {line.split()[1] for line in lines if not line.startswith("#")} == set(cells)
    assert set(services["cells"]["depends_on"]) == {f"cell-{each}" for each in cells}
    for cell, service in cells.items():
        settings = load("/dev/null", environ=service["environment"])
        assert f"{cell} {cell}" in lines, "its path is not in the list"
        assert (settings.bayeux.path, settings.bayeux.cookie_path) == (f"/{cell}/cometd", f"/{cell}")
        assert not settings.cluster.enabled
        assert settings.storage.url is None, "cells share no store"
        assert service["volumes"] == [f"cell-{cell}:/data"]


def test_the_pods_have_settings_that_there_are() -> None:
    settings = of_kubernetes()
    assert settings.cluster.enabled
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert settings.cluster.listen == f"$(POD_IP):{ports['nodes']}"
    assert settings.security.policy == "jwt"
    mounts = {each["mountPath"]: each["name"] for each in CONTAINER["volumeMounts"]}
    assert settings.security.jwt_keys is not None
    assert settings.security.jwt_keys.rpartition("/")[0] in mounts
    assert {each["name"] for each in POD["spec"]["volumes"]} == set(mounts.values())
    data_dir = PurePosixPath(settings.storage.data_dir)
    assert str(data_dir.parent) in mounts, (
        "the root of a volume belongs to another user, and `crewel doctor` refuses it"
    )


def test_the_objects_of_kubernetes_select_the_pods() -> None:
    labels = POD["metadata"]["labels"]
    assert KUBERNETES["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert KUBERNETES["Service"]["spec"]["selector"] == labels
    assert KUBERNETES["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert KUBERNETES["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    (port,) = KUBERNETES["Service"]["spec"]["ports"]
    assert port["targetPort"] in {each["name"] for each in CONTAINER["ports"]}
    (rule,) = KUBERNETES["Ingress"]["spec"]["rules"]
    paths = {each["path"]: each["backend"]["service"] for each in rule["http"]["paths"]}
    service = {"name": KUBERNETES["Service"]["metadata"]["name"], "port": {"name": port["name"]}}
    assert paths == {"/cometd": service, "/extensions": service}  # and nothing that is for operators
    assert of_kubernetes().http.public_url == f"https://{rule['host']}"


def test_a_pod_has_time_to_end() -> None:
    (_, seconds) = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert POD["spec"]["terminationGracePeriodSeconds"] > int(seconds) + 45
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == "/health/live"


@pytest.mark.parametrize("unit", UNITS, ids=lambda each: each.name)
def test_a_unit_starts_what_there_is(unit: Any) -> None:
    found = sections(unit.read_text("utf-8"))
    service = dict(found["Service"])
    program, command, *words = shlex.split(service["ExecStart"])
    assert (program, command) == ("/opt/crewel/bin/crewel", "serve")
    assert {word for word in words if word.startswith("--")} <= OPTIONS
    variables = " ".join(value for name, value in found["Service"] if name == "Environment")
    names = {each.partition("=")[0].removeprefix("CREWEL_").replace("__", ".").lower() for each in variables.split()}
    assert names <= set(declared())
    assert service["KillMode"] == "mixed"
    assert ("ExecReload" in service) == ("--workers" in words)
    assert f"/{service['StateDirectory']}" in service["WorkingDirectory"]
    assert service["Restart"] == "always"
    assert service["User"] == "crewel", "the guide creates this user, and its commands run as it"
    assert dict(found["Unit"])["StartLimitIntervalSec"] == "0"


def test_the_key_of_a_unit_with_the_shared_settings_is_a_credential_of_that_unit() -> None:
    units = [unit for unit in UNITS if "--config /etc/crewel/crewel.toml" in unit.read_text("utf-8")]
    assert len(units) == 2
    for unit in units:
        (guide,) = re.findall(r"docs/[\w/-]+\.md", unit.read_text("utf-8"))
        page = (ROOT / guide).read_text("utf-8")
        assert set(re.findall(r"/run/credentials/([\w-]+)\.service/", page)) == {unit.stem}
        assert "`LoadCredential=jwt.secret:/etc/crewel/jwt.secret`" in page


def test_the_guide_shows_the_unit_as_it_is() -> None:
    guide = (ROOT / "docs" / "how-to" / "deploying.md").read_text("utf-8")
    (shown,) = re.findall(r"```ini\n(.*?)```", guide, re.DOTALL)
    unit = (DEPLOY / "systemd" / "crewel.service").read_text("utf-8")
    assert shown == unit.partition("\n")[2]
    assert f"useradd --system --home-dir {dict(sections(unit)['Service'])['WorkingDirectory']} " in guide
