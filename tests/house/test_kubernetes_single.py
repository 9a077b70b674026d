"""That deploy/kubernetes/single.yaml agrees with itself, with the image and with the settings."""

import json
import re
import tomllib
from typing import Any

import yaml

from crewel.settings.table import declared
from tests.house.source import ROOT

OBJECTS: dict[str, dict[str, Any]] = {
    each["kind"]: each
    for each in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "single.yaml").read_text("utf-8"))
}
POD: dict[str, Any] = OBJECTS["StatefulSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
SETTINGS = tomllib.loads(OBJECTS["ConfigMap"]["data"]["crewel.toml"])
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


def flat() -> dict[str, Any]:
    """Return the settings of the file by their names."""
    return {f"{group}.{name}": value for group, names in SETTINGS.items() for name, value in names.items()}


def test_its_settings_exist_and_serve_others_with_a_policy() -> None:
    given = flat()
    assert set(given) <= set(declared())
    assert given["http.host"] == "0.0.0.0"
    assert given["security.policy"] == "jwt"
    assert given["http.public_url"] == "https://" + OBJECTS["Ingress"]["spec"]["rules"][0]["host"]
    variables = {each["name"] for each in CONTAINER["env"]} - {"CREWEL_TOKEN"}
    assert {name.removeprefix("CREWEL_").replace("__", ".").lower() for name in variables} <= set(declared())


def test_the_pod_runs_the_image_as_the_image_is_made() -> None:
    (user,) = set(re.findall(r"--uid (\d+)", DOCKERFILE))
    security = POD["securityContext"]
    assert {security[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}
    assert CONTAINER["ports"][0]["containerPort"] == SETTINGS["http"]["port"] == 8080
    assert 'ENTRYPOINT ["crewel"]' in DOCKERFILE
    assert CONTAINER["args"] == ["serve", "--config", "/etc/crewel/crewel.toml"]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True


def test_each_file_and_directory_that_it_names_is_mounted() -> None:
    mounts = {each["mountPath"]: each["name"] for each in CONTAINER["volumeMounts"]}
    claims = [each["metadata"]["name"] for each in OBJECTS["StatefulSet"]["spec"]["volumeClaimTemplates"]]
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert set(mounts.values()) == {*claims, *volumes}
    assert mounts[SETTINGS["storage"]["data_dir"]] in claims
    keys = volumes["secret"]["secret"]["items"]
    assert SETTINGS["security"]["jwt_keys"] in [f"/etc/crewel/secret/{each['path']}" for each in keys]


def test_a_store_that_is_away_takes_no_clients_and_restarts_nothing() -> None:
    paths = {name: CONTAINER[name]["httpGet"]["path"] for name in ("livenessProbe", "readinessProbe", "startupProbe")}
    assert paths == {
        "livenessProbe": "/health/live",
        "readinessProbe": "/health/ready",
        "startupProbe": "/health/live",
    }
    assert json.loads(re.findall(r"HEALTHCHECK.*?CMD (\[.*?\])$", DOCKERFILE, re.DOTALL | re.MULTILINE)[-1])[-1].count(
        "/health/live"
    )


def test_the_selectors_find_the_pod() -> None:
    labels = OBJECTS["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert OBJECTS["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert OBJECTS["Service"]["spec"]["selector"] == labels
    assert OBJECTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels


def test_the_ingress_waits_longer_than_a_held_connect_and_shows_nothing_of_operators() -> None:
    held_ms = declared()["bayeux.timeout_ms"].default
    annotations = OBJECTS["Ingress"]["metadata"]["annotations"]
    assert int(annotations["nginx.ingress.kubernetes.io/proxy-read-timeout"]) * 1000 > held_ms
    paths = {path["path"] for rule in OBJECTS["Ingress"]["spec"]["rules"] for path in rule["http"]["paths"]}
    assert paths == {"/cometd", "/extensions"}
