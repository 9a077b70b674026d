"""That deploy/kubernetes/single.yaml agrees with itself, with the image, with the settings and with maintenance.yaml."""

import json
import re
import tomllib
from pathlib import PurePosixPath
from typing import Any

import yaml

from crewel.settings.table import declared
from tests.house.source import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
OBJECTS: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all((KUBERNETES / "single.yaml").read_text("utf-8"))
}
POD: dict[str, Any] = OBJECTS["StatefulSet"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
SETTINGS = tomllib.loads(OBJECTS["ConfigMap"]["data"]["crewel.toml"])
VARIABLES = {each["name"]: each.get("value") for each in CONTAINER["env"]}
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
OF_IMAGE = dict(re.findall(r"\b(CREWEL_\w+)=(\S+)", DOCKERFILE.rpartition("\nENV ")[2]))
"""The variables that the image sets."""


def flat() -> dict[str, Any]:
    """Return the settings of the file by their names."""
    return {f"{group}.{name}": value for group, names in SETTINGS.items() for name, value in names.items()}


def setting_of(variable: str) -> str:
    return variable.removeprefix("CREWEL_").replace("__", ".").lower()


def test_its_settings_exist_and_serve_others_with_a_policy() -> None:
    given = flat()
    assert set(given) <= set(declared())
    assert OF_IMAGE["CREWEL_HTTP__HOST"] == "0.0.0.0"
    assert given["security.policy"] == "jwt"
    assert given["http.public_url"] == "https://" + OBJECTS["Ingress"]["spec"]["rules"][0]["host"]
    assert {setting_of(name) for name in VARIABLES.keys() - {"CREWEL_TOKEN"}} <= set(declared())


def test_the_file_sets_nothing_that_image_or_pod_set() -> None:
    """The environment wins, and what the file says would have no effect."""
    assert not flat().keys() & {setting_of(name) for name in (*OF_IMAGE, *VARIABLES)}


def test_the_pod_runs_the_image_as_the_image_is_made() -> None:
    (user,) = set(re.findall(r"--uid (\d+)", DOCKERFILE))
    security = POD["securityContext"]
    assert {security[name] for name in ("runAsUser", "runAsGroup", "fsGroup")} == {int(user)}
    assert str(CONTAINER["ports"][0]["containerPort"]) == OF_IMAGE["CREWEL_HTTP__PORT"]
    assert 'ENTRYPOINT ["crewel"]' in DOCKERFILE
    assert CONTAINER["args"] == ["serve", "--config", "/etc/crewel/crewel.toml"]
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True


def test_each_file_and_directory_that_it_names_is_mounted() -> None:
    mounts = {each["mountPath"]: each["name"] for each in CONTAINER["volumeMounts"]}
    claims = [each["metadata"]["name"] for each in OBJECTS["StatefulSet"]["spec"]["volumeClaimTemplates"]]
    volumes = {each["name"]: each for each in POD["volumes"]}
    assert set(mounts.values()) == {*claims, *volumes}
    keys = volumes["secret"]["secret"]["items"]
    assert SETTINGS["security"]["jwt_keys"] in [f"/etc/crewel/secret/{each['path']}" for each in keys]


def test_the_data_directory_is_the_servers_own_and_not_the_root_of_a_volume() -> None:
    """That belongs to root: `crewel doctor`, `backup` and `restore` refuse it."""
    data_dir = PurePosixPath(VARIABLES["CREWEL_STORAGE__DATA_DIR"])
    mounts = {each["mountPath"]: each["name"] for each in CONTAINER["volumeMounts"]}
    (claim,) = OBJECTS["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert mounts[str(data_dir.parent)] == claim["metadata"]["name"]
    # The other policy opens the directory to the group at each start.
    assert POD["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"


def test_the_pod_for_maintenance_has_the_user_the_image_and_the_volume_of_the_server() -> None:
    pod = yaml.safe_load((KUBERNETES / "maintenance.yaml").read_text("utf-8"))
    (container,) = pod["spec"]["containers"]
    for name in ("securityContext", "automountServiceAccountToken"):
        assert pod["spec"][name] == POD[name]
    for name in ("securityContext", "image"):
        assert container[name] == CONTAINER[name]
    (variable,) = container["env"]
    assert VARIABLES[variable["name"]] == variable["value"]
    assert all(mount in CONTAINER["volumeMounts"] for mount in container["volumeMounts"])
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    server, (claim,) = OBJECTS["StatefulSet"], OBJECTS["StatefulSet"]["spec"]["volumeClaimTemplates"]
    claimed = f"{claim['metadata']['name']}-{server['metadata']['name']}-0"
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claimed
    assert volumes["settings"]["configMap"]["name"] == OBJECTS["ConfigMap"]["metadata"]["name"]
    assert "labels" not in pod["metadata"], "the Service would send it clients"
    guide = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text("utf-8")
    assert set(re.findall(r"kubectl exec (crewel-[a-z]+) ", guide)) == {pod["metadata"]["name"]}


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
