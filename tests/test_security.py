"""SECURITY.md and what it rests on: files that are there, images by digest, an audit that does not
mistake silence.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.api.dialects import DIALECTS
from gangsched.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
STAMPS = "gangsched-stamp"
ACCOUNT = "system:serviceaccount:gangsched-system:gangsched"
DIGEST = "docker.io/library/python@sha256:" + "a" * 64


def documents(name: str) -> list[Any]:
    """The objects of a manifest."""
    return list(yaml.safe_load_all((ROOT / "manifests" / name).read_text()))


def test_security_names_what_is_there() -> None:
    """Every file, folder and make target that SECURITY.md names exists."""
    page = (ROOT / "SECURITY.md").read_text()
    paths = set(re.findall(r"`((?:tests|manifests)/[\w./-]+)`", page)) | set(
        re.findall(r"\]\(([\w./-]+)\)", page)
    )
    assert paths
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"`make ([a-z-]+)", page))
    assert {"audit", "sbom", "image-multiarch", "bench-memory"} <= targets
    assert [target for target in sorted(targets) if f"\n{target}: " not in makefile] == []


def test_every_policy_is_bound_and_about_our_account_only() -> None:
    """A policy without a binding does nothing, and one without the condition keeps kubelets from
    writing.

    All but one are for our account; that of stamps is for everybody else (B4).
    """
    found = documents("admission.yaml")
    policies = {
        body["metadata"]["name"]: body["spec"]
        for body in found
        if body["kind"] == "ValidatingAdmissionPolicy"
    }
    bindings = {
        body["spec"]["policyName"]: body["spec"]["validationActions"]
        for body in found
        if body["kind"] == "ValidatingAdmissionPolicyBinding"
    }
    assert bindings == {name: ["Deny"] for name in policies}
    for name, spec in policies.items():
        condition, *others = spec["matchConditions"]
        which = "!=" if name == STAMPS else "=="
        assert [each["name"] for each in others] == (["stamped"] if name == STAMPS else [])
        assert condition["expression"] == f'request.userInfo.username {which} "{ACCOUNT}"'
        assert spec["failurePolicy"] == "Fail"
    rules = policies[STAMPS]["matchConstraints"]["resourceRules"]
    created = [each["resources"] for each in rules if "CREATE" in each["operations"]]
    assert created == [["pods/binding", "bindings"]], (
        "all pods of the cluster would be looked at when they are created"
    )


def test_every_write_that_names_fields_has_a_policy() -> None:
    """What the roles let the daemon write or end is limited by a policy, but for statuses that are
    its own.
    """
    files = (
        "rbac.yaml",
        "rbac-preemption.yaml",
        "rbac-dialects.yaml",
        "rbac-owners.yaml",
        "rbac-owners-jobset.yaml",
        "rbac-owners-kuberay.yaml",
        "rbac-owners-kubeflow.yaml",
        "rbac-devices.yaml",
        "rbac-extended-resources.yaml",
        "rbac-provisioning.yaml",
        "visibility/rbac.yaml",
    )
    rules = [rule for file in files for body in documents(file) for rule in body.get("rules", ())]
    granted = {
        f"{group}/{resource}"
        for rule in rules
        if {"patch", "create", "update", "delete"} & set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    limited = {
        f"{group}/{resource}"
        for body in documents("admission.yaml")
        if body["kind"] == "ValidatingAdmissionPolicy" and body["metadata"]["name"] != STAMPS
        for rule in body["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    own = {f"{dialect.api_group}/{dialect.plural}/status" for dialect in DIALECTS.values()}
    beside = "resource.k8s.io/resourceclaims/binding"  # a right beside that to the status
    unseen = "authorization.k8s.io/subjectaccessreviews"  # API servers ask no policy about them
    assert granted - limited == own | {beside, unseen}
    assert limited <= granted


def test_the_policies_say_what_the_settings_are() -> None:
    """What the policies have to repeat of the settings is their defaults."""
    policies = {
        body["metadata"]["name"]: body["spec"]
        for body in documents("admission.yaml")
        if body["kind"] == "ValidatingAdmissionPolicy"
    }
    settings = Settings()
    variables = {
        each["name"]: each["expression"] for each in policies["gangsched-pod-status"]["variables"]
    }
    assert variables["served"] == str(list(settings.scheduler_names))
    assert variables["victims"] == repr(str(settings.preemption))
    lease, *_ = policies["gangsched-lease"]["validations"]
    where = f"request.namespace == '{settings.lease_namespace}'"
    assert lease["expression"] == f"{where} && object.metadata.name == '{settings.lease_name}'"


def test_the_network_policy_admits_the_health_port_only() -> None:
    """The port is the container's, by name, and the debug port is not among them."""
    (policy,) = documents("networkpolicy.yaml")
    spec = policy["spec"]
    assert [port["port"] for rule in spec["ingress"] for port in rule["ports"]] == ["http"]
    (deployment,) = documents("deployment.yaml")
    template = deployment["spec"]["template"]
    assert spec["podSelector"]["matchLabels"] == template["metadata"]["labels"]
    assert [port["name"] for port in template["spec"]["containers"][0]["ports"]] == ["http"]


def make(*words: str, path: str) -> subprocess.CompletedProcess[str]:
    """A make target, with these programs first."""
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run(
        ["make", "--no-print-directory", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def program(folder: Path, name: str, script: str) -> Path:
    """A shell script that stands in for a program."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/usr/bin/env bash\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("target", "base"),
    [
        ("image", ""),
        ("image", "python"),
        ("image", "python@sha256:abc"),
        ("image", "registry:5000/python"),
        ("image", DIGEST + " x"),
        ("image-multiarch", "python:3.13-slim"),
    ],
)
def test_an_image_that_is_pushed_is_built_from_a_digest_only(
    tmp_path: Path, target: str, base: str
) -> None:
    """A tag may be another image tomorrow, and no tag at all is whatever was newest."""
    program(tmp_path, "docker", "echo built")
    done = make(target, f"BASE={base}", path=str(tmp_path))
    assert (done.returncode, "built" in done.stdout) == (2, False)
    assert "by digest" in done.stderr


@pytest.mark.parametrize("base", [DIGEST, "python:3.13-slim", "registry:5000/team/python:3.13"])
def test_both_stages_of_the_image_have_the_base_that_is_given(tmp_path: Path, base: str) -> None:
    """A digest, or the tag of a base that is there, reaches the build, and no stage names an image
    of its own.
    """
    program(tmp_path, "docker", 'echo "$@"')
    done = make("image", f"BASE={base}", "IMAGE=gangsched:test", path=str(tmp_path))
    assert f"build --build-arg BASE={base} --tag gangsched:test ." in done.stdout
    froms = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert froms == ["${BASE}", "${BASE}"]


@pytest.mark.parametrize(
    ("says", "code", "ends"),
    [
        ("No known vulnerabilities found", 0, 0),
        ("Found 1 known vulnerability in 1 package\naiohttp 3.0 CVE-1", 1, 1),
        ("aiohttp: Dependency not found on PyPI and could not be audited", 1, 2),
        ("ConnectionError: pypi.org", 1, 2),
    ],
)
def test_an_audit_that_could_not_look_says_so(
    tmp_path: Path, says: str, code: int, ends: int
) -> None:
    """No answer is not "no vulnerabilities": one sentence and exit code 2. pip-audit is told to be
    strict.
    """
    uv = program(
        tmp_path,
        "uv",
        f'[ "$1" = export ] && exit\necho "$@" >"{tmp_path}/asked"\necho "{says}"\nexit {code}',
    )
    done = subprocess.run(
        [ROOT / "hack/audit.sh", uv], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == ends
    assert "--strict" in (tmp_path / "asked").read_text()
    assert (
        says in done.stdout
        if ends < 2
        else done.stderr.startswith("The dependencies cannot be looked up")
    )
    assert len(done.stderr.splitlines()) == (ends == 2)


def test_what_is_in_the_image_is_listed(tmp_path: Path) -> None:
    """`make sbom` writes CycloneDX with every dependency of the image and none of development."""
    out = tmp_path / "sbom.json"
    done = make("sbom", f"SBOM={out}", path=str(tmp_path))
    assert done.returncode == 0, done.stderr
    listed = {each["name"] for each in json.loads(out.read_text())["components"]}
    assert {"aiohttp", "kopf", "numpy", "uvloop", "structlog"} <= listed
    assert listed.isdisjoint({"pytest", "mypy", "hypothesis"})


def test_patterns_of_policies_are_single_literals() -> None:
    """The API server compiles a literal pattern once, and one that is put together each time: 44 KB
    for every bind.
    """
    text = (ROOT / "manifests" / "admission.yaml").read_text()
    patterns = re.findall(r"\.matches\(\s*('[^']*')(.)", text)
    assert len(patterns) == text.count(".matches(")
    assert {after for _, after in patterns} == {")"}
