"""The chart as helm renders it: with its defaults the manifests, with each value what it says, and
no wrong value.
"""

from __future__ import annotations

import copy
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from control_plane.api import Object
from control_plane.applying import ROOT, load_yaml
from control_plane.components import HELM

from gangsched.configuration import load_settings
from gangsched.removed import REMOVED, was_removed
from gangsched.settings import SettingsError
from tests.packaging import CHART, INSTALL, kustomized
from tests.release import files

pytestmark = pytest.mark.e2e

DIGEST = "sha256:" + "0123456789abcdef" * 4
OF_HELM = {
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
}
OF_OURS = "app.kubernetes.io/name"
NAMED = tuple[str, str]


def helm(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Helm without a cluster."""
    return subprocess.run([HELM, *words], capture_output=True, text=True, timeout=60, check=False)


def rendered(
    *words: str, namespace: str = "gangsched-system", chart: Path = CHART
) -> dict[NAMED, Object]:
    """The chart's objects with these words of the command line, by kind and name."""
    done = helm("template", "gangsched", chart, "--namespace", namespace, *words)
    assert done.returncode == 0, done.stderr
    return by_name(load_yaml(done.stdout))


def by_name(documents: list[Object]) -> dict[NAMED, Object]:
    """Objects by kind and name, each once."""
    found = {(body["kind"], body["metadata"]["name"]): body for body in documents}
    assert len(found) == len(documents)
    return found


def without_marks(documents: dict[NAMED, Object]) -> dict[NAMED, Object]:
    """The objects without Helm's labels and the name that it gives to all, and without the checksum
    of the settings.
    """
    found = copy.deepcopy(documents)
    for body in found.values():
        metadata = body["metadata"]
        labels = {
            key: value
            for key, value in metadata.pop("labels", {}).items()
            if key not in {*OF_HELM, OF_OURS}
        }
        metadata |= {"labels": labels} if labels else {}
        if body["kind"] == "Deployment":
            body["spec"]["template"]["metadata"]["annotations"].pop("checksum/config", None)
    # kustomize doubles line breaks of folded texts, which are CEL expressions here.
    plain: list[Object] = json.loads(json.dumps(list(found.values())).replace("\\n\\n", "\\n"))
    return by_name(plain)


def test_the_defaults_are_the_manifests() -> None:
    """Every object of install.yaml but the namespace, the definition (Helm keeps it apart) and the
    settings' text.
    """
    chart, manifests = without_marks(rendered()), without_marks(by_name(load_yaml(INSTALL)))
    for apart in (
        ("Namespace", "gangsched-system"),
        ("CustomResourceDefinition", "podgroups.scheduling.x-k8s.io"),
    ):
        del manifests[apart]
    settings = ("ConfigMap", "gangsched")
    assert yaml.safe_load(chart.pop(settings)["data"]["config.yaml"]) == {
        "lease_namespace": "gangsched-system"
    }
    del manifests[settings]
    del chart["Job", "gangsched-test"]  # of `helm test`
    assert chart.keys() == manifests.keys()
    for name, body in manifests.items():
        assert chart[name] == body, name


def test_the_api_of_gangs_is_the_overlay() -> None:
    """Without `visibility.enabled` it is overlays/no-gangs-api; a certificate of others takes away
    what makes one.
    """
    chart = rendered()
    without = without_marks(rendered("--set", "visibility.enabled=false"))
    overlay = without_marks(by_name(load_yaml(kustomized(ROOT / "overlays" / "no-gangs-api"))))
    gone = chart.keys() - without.keys()
    assert gone == by_name(load_yaml(INSTALL)).keys() - overlay.keys()
    assert len(gone) > 5
    for body in (without, overlay):
        (container,) = body["Deployment", "gangsched"]["spec"]["template"]["spec"]["containers"]
        assert not container.pop("env", [])
    assert without["Deployment", "gangsched"] == overlay["Deployment", "gangsched"]
    words = ("--set", "visibility.certificateSecret=tls")
    issued = rendered(
        *words, "--set", "visibility.annotations.cert-manager\\.io/inject-ca-from=ns/tls"
    )
    gone = {(kind, "gangsched-visibility") for kind in ("Secret", "Role", "RoleBinding")}
    assert chart.keys() - issued.keys() == gone
    service = issued["APIService", "v1alpha1.visibility.gangsched.dev"]
    assert service["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "ns/tls"}
    spec = issued["Deployment", "gangsched"]["spec"]["template"]["spec"]
    variables = {each["name"]: each["value"] for each in spec["containers"][0]["env"]}
    (mount,) = [
        each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "certificate"
    ]
    assert variables["GANGSCHED_VISIBILITY_CERT_DIR"] == mount["mountPath"]
    assert {"name": "certificate", "secret": {"secretName": "tls"}} in spec["volumes"]


def test_the_linter_has_no_complaint() -> None:
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout
    assert "[ERROR]" not in done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout + done.stderr


def test_a_cluster_that_is_too_old_is_refused() -> None:
    """Without the admission policies the daemon's token could write more than the daemon does."""
    done = helm("template", "gangsched", CHART, "--kube-version", "1.29.9")
    assert done.returncode == 1
    assert (
        "chart requires kubeVersion: >=1.30.0-0 which is incompatible with Kubernetes v1.29.9"
        in done.stderr
    )


def test_another_namespace_is_everywhere() -> None:
    """Roles, policies and the Lease follow the release; nothing is left of the namespace that the
    manifests have.
    """
    objects = rendered(namespace="scheduling")
    assert "gangsched-system" not in yaml.safe_dump(list(objects.values()))
    policy = objects["ValidatingAdmissionPolicy", "gangsched-binding"]["spec"]
    assert (
        "system:serviceaccount:scheduling:gangsched" in policy["matchConditions"][0]["expression"]
    )


def test_the_settings_are_those_of_the_daemon(tmp_path: Path) -> None:
    """The ConfigMap is a file that the daemon reads, the Role names the Lease, and other settings
    are other pods.
    """
    words = (
        "settings.lease_name=mine",
        "settings.preemption=false",
        "settings.scheduler_names={a,b}",
    )
    fraction = ("--set-json", "settings.wait_time_s=90.5")  # --set makes a text of it
    objects = rendered(*(word for each in words for word in ("--set", each)), *fraction)
    config = tmp_path / "config.yaml"
    config.write_text(objects["ConfigMap", "gangsched"]["data"]["config.yaml"])
    settings = load_settings(config, {})
    assert (settings.lease_name, settings.preemption, settings.scheduler_names) == (
        "mine",
        "off",
        ("a", "b"),
    )
    assert (settings.wait_time_s, settings.lease_namespace) == (90.5, "gangsched-system")
    role = objects["Role", "gangsched-leader-election"]
    assert [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule] == [
        ["mine"]
    ]
    statuses, leases = (
        policy(objects, name) for name in ("gangsched-pod-status", "gangsched-lease")
    )
    variables = {each["name"]: each["expression"] for each in statuses["variables"]}
    assert (variables["served"], variables["victims"]) == ("['a', 'b']", "'own'")
    assert "object.metadata.name == 'mine'" in leases["validations"][0]["expression"]
    sums = [
        each["Deployment", "gangsched"]["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"
        ]
        for each in (objects, rendered())
    ]
    assert sums[0] != sums[1]


def test_labels_and_annotations_of_the_owner_are_added() -> None:
    """Common labels are on every object and pod, whatever file it is from, and replace none of the
    chart's own; the ServiceAccount, and only it, has the annotations.
    """
    words = ("--set", "commonLabels.team=ml", "--set", r"commonLabels.app\.kubernetes\.io/name=x")
    role = ("--set", r"serviceAccount.annotations.eks\.amazonaws\.com/role-arn=arn:1")
    monitoring = ("--set", "monitoring.rules=true", "--set", "monitoring.dashboard=true")
    plain = rendered(*monitoring)
    objects = rendered(*words, *role, *monitoring)
    assert objects.keys() == plain.keys()

    for name, body in objects.items():
        labels = plain[name]["metadata"]["labels"]
        assert body["metadata"]["labels"] == labels | {"team": "ml"}, name
        assert labels.keys() >= OF_HELM, name
        annotations = body["metadata"].get("annotations", {})
        assert ("eks.amazonaws.com/role-arn" in annotations) == (name[0] == "ServiceAccount"), name

    for name in (("Deployment", "gangsched"), ("Job", "gangsched-test")):
        pod = objects[name]["spec"]["template"]["metadata"]
        assert pod["labels"] == {OF_OURS: name[1], "team": "ml"}
    selector = objects["Deployment", "gangsched"]["spec"]["selector"]
    assert selector == {"matchLabels": {OF_OURS: "gangsched"}}


def test_helm_test_is_a_gang_of_the_image() -> None:
    """It asks the first scheduler name that is served, and may run where the replicas may."""
    words = ("--set", r"settings.scheduler_names=a\, b", "--set", "nodeSelector.pool=system")
    objects = rendered(*words)
    job = objects["Job", "gangsched-test"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "test"
    tested = job["spec"]["template"]["spec"]
    ours = objects["Deployment", "gangsched"]["spec"]["template"]["spec"]
    assert (tested["schedulerName"], tested["nodeSelector"]) == ("a", {"pool": "system"})
    for key in ("affinity", "tolerations", "securityContext", "nodeSelector"):
        assert tested[key] == ours[key]
    assert tested["containers"][0]["image"] == ours["containers"][0]["image"]


def policy(objects: dict[NAMED, Object], name: str) -> Object:
    """The spec of an admission policy."""
    spec: Object = objects["ValidatingAdmissionPolicy", name]["spec"]
    return spec


def test_the_policies_allow_what_other_settings_ask_for() -> None:
    """Scheduler names may be one text, and with `preemption: all` pods of any scheduler may be
    victims.
    """
    names = rendered("--set", r"settings.scheduler_names=a\, b", "--set", "settings.preemption=all")
    variables = {
        each["name"]: each["expression"]
        for each in policy(names, "gangsched-pod-status")["variables"]
    }
    assert (variables["served"], variables["victims"]) == ("['a', 'b']", "'all'")


def test_what_can_be_left_out_and_added() -> None:
    """Each switch takes away, or adds, the objects that it names and no others."""
    whole = rendered().keys()
    for word, gone in (
        (
            "admissionPolicy.enabled=false",
            {name for name in whole if name[0].startswith("ValidatingAdmission")},
        ),
        (
            "networkPolicy.enabled=false",
            {("NetworkPolicy", f"gangsched{of}") for of in ("", "-visibility")},
        ),
        ("priorityClass.create=false", {("PriorityClass", "gangsched")}),
        ("podDisruptionBudget.enabled=false", {("PodDisruptionBudget", "gangsched")}),
        ("replicas=1", {("PodDisruptionBudget", "gangsched")}),
        (
            "rbac.preemption=false",
            {name for name in whole if name[1].startswith("gangsched-preemption")},
        ),
        ("rbac.users=false", {name for name in whole if name[1].startswith("gangsched-podgroups")}),
    ):
        assert gone
        assert whole - rendered("--set", word).keys() == gone, word
    for value, role in (
        ("dialects", "dialects"),
        ("owners", "owners"),
        ("ownersJobset", "owners-jobset"),
        ("ownersKuberay", "owners-kuberay"),
        ("ownersKubeflow", "owners-kubeflow"),
    ):
        of_role = rendered("--set", f"rbac.{value}=true").keys() - whole
        assert of_role == {
            (kind, f"gangsched-{role}") for kind in ("ClusterRole", "ClusterRoleBinding")
        }
    monitoring = ("serviceMonitor", "rules", "dashboard")
    words = [word for each in monitoring for word in ("--set", f"monitoring.{each}=true")]
    added = rendered(*words, "--set", "monitoring.labels.release=prometheus")
    objects = {name: body for name, body in added.items() if name not in whole}
    assert objects.keys() == {
        ("ServiceMonitor", "gangsched"),
        ("PrometheusRule", "gangsched"),
        ("ConfigMap", "gangsched-dashboard"),
    }
    assert {body["metadata"]["labels"]["release"] for body in objects.values()} == {"prometheus"}
    (rules,) = load_yaml(ROOT / "manifests" / "monitoring" / "rules.yaml")
    assert objects["PrometheusRule", "gangsched"]["spec"] == rules["spec"]
    dashboard = (ROOT / "manifests" / "monitoring" / "dashboard.json").read_text()
    assert (
        objects["ConfigMap", "gangsched-dashboard"]["data"]["dashboard.json"].strip()
        == dashboard.strip()
    )


def test_a_pods_values_reach_the_pod() -> None:
    """Image by digest, resources, nodes and the environment; the network policy's API server."""
    words = {
        "image.repository": "example.com:5000/gangsched",
        "image.digest": DIGEST,
        "imagePullSecrets[0].name": "registry",
        "resources.limits.memory": "4Gi",
        "nodeSelector.pool": "system",
        "priorityClassName": "high",
        "podLabels.team": "ml",
        "podAnnotations.note": "x",
        "env[0].name": "HTTPS_PROXY",
        "env[0].value": "http://proxy",
        "networkPolicy.apiServerPorts": "{6443}",
        "networkPolicy.apiServer[0].ipBlock.cidr": "10.0.0.1/32",
    }
    objects = rendered(
        *(word for key, value in words.items() for word in ("--set", f"{key}={value}"))
    )
    template = objects["Deployment", "gangsched"]["spec"]["template"]
    spec, (container,) = template["spec"], template["spec"]["containers"]
    assert container["image"] == f"example.com:5000/gangsched@{DIGEST}"
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert container["resources"]["limits"] == {"memory": "4Gi"}
    assert container["resources"]["requests"] == {"cpu": "250m", "memory": "256Mi"}
    assert (spec["nodeSelector"], spec["priorityClassName"]) == ({"pool": "system"}, "high")
    assert container["env"] == [
        {"name": "GANGSCHED_VISIBILITY_PORT", "value": "8443"},
        {"name": "HTTPS_PROXY", "value": "http://proxy"},
    ]
    assert template["metadata"]["labels"] == {OF_OURS: "gangsched", "team": "ml"}
    assert template["metadata"]["annotations"]["note"] == "x"
    egress = objects["NetworkPolicy", "gangsched"]["spec"]["egress"][0]
    assert egress == {
        "ports": [{"port": 6443, "protocol": "TCP"}],
        "to": [{"ipBlock": {"cidr": "10.0.0.1/32"}}],
    }


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("replicas=0", "'/replicas': minimum: got 0, want 1"),
        ("replicas=two", "'/replicas': got string, want integer"),
        ("image.digest=latest", "'/image/digest': 'latest' does not match pattern"),
        ("image.repository=a/b:tag", "'/image/repository': 'a/b:tag' does not match pattern"),
        ("replica=2", "additional properties 'replica' not allowed"),
        ("settings.wait_times=3", "'/settings': additional properties 'wait_times' not allowed"),
        (
            "settings.health_port=9090",
            "'/settings': additional properties 'health_port' not allowed",
        ),
        ("settings.bind_connections=0", "'/settings/bind_connections': minimum: got 0, want 1"),
        (
            "settings.preempt_pdb=ignore",
            "'/settings/preempt_pdb': value must be one of 'respect', 'last_resort'",
        ),
        (
            "networkPolicy.apiServerPorts={99999}",
            "'/networkPolicy/apiServerPorts/0': maximum: got 99,999, want 65,535",
        ),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(word: str, said: str) -> None:
    """Where it is and what is expected, on one line; nothing is rendered."""
    done = helm("template", "gangsched", CHART, "--set", word)
    assert done.returncode == 1
    assert done.stdout == ""
    complaints = [line for line in done.stderr.splitlines() if line.startswith("- ")]
    assert len(complaints) == 1, done.stderr
    assert said in complaints[0]


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_removed_value_names_its_replacement(name: str) -> None:
    """One line, with what took its place."""
    done = helm("template", "gangsched", CHART, "--set", f"settings.{name}=1")
    complaints = [line for line in done.stderr.splitlines() if line.startswith("- ")]
    assert (done.returncode, done.stdout, len(complaints)) == (1, "", 1), done.stderr
    assert f"'/settings/{name}': value must be '{name} {was_removed(name)}'" in complaints[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bind_connections", 0),
        ("wait_time_s", 0),
        ("reservations", 65),
        ("log_level", "loud"),
        ("lease_name", "No"),
    ],
)
def test_the_daemon_and_the_schema_agree(tmp_path: Path, name: str, value: object) -> None:
    """What the daemon would refuse at its start is refused by Helm already."""
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({name: value}))
    with pytest.raises(SettingsError):
        load_settings(config, {})
    assert (
        f"/settings/{name}"
        in helm("template", "gangsched", CHART, "--set", f"settings.{name}={value}").stderr
    )


def test_the_files_of_a_release_have_the_image_by_digest(tmp_path: Path) -> None:
    """install.yaml and the archive of the chart name it, and are otherwise as they are here."""
    image = f"ghcr.io/owner/gangsched@{DIGEST}"
    files(image, tmp_path)
    key = ("Deployment", "gangsched")
    sent, here = by_name(load_yaml(tmp_path / "install.yaml")), by_name(load_yaml(INSTALL))
    assert sent[key]["spec"]["template"]["spec"]["containers"][0]["image"] == image
    del sent[key], here[key]
    assert sent == here
    (archive,) = tmp_path.glob("gangsched-*.tgz")
    assert (
        rendered(chart=archive)[key]["spec"]["template"]["spec"]["containers"][0]["image"] == image
    )
    with tarfile.open(archive) as packed:
        names = {name.removeprefix("gangsched/") for name in packed.getnames()}
    assert {
        "Chart.yaml",
        "values.schema.json",
        "crds/scheduling.x-k8s.io_podgroups.yaml",
        "files/rbac.yaml",
    } <= names
