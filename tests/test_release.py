"""The workflows and what they run: every action is pinned, every make target is there, a tag is the
version.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched import __version__
from tests.packaging import CHART, ROOT, SCHEMA, settings_schema
from tests.release import (
    ReleaseError,
    check,
    krew,
    main,
    notes,
    repository_address,
    versions,
    with_image,
)

WORKFLOWS = {path.stem: path for path in (ROOT / ".github" / "workflows").glob("*.yml")}
DIGEST = "sha256:" + "a" * 64


def workflow(name: str) -> dict[Any, Any]:
    """A workflow; YAML reads its key `on` as True."""
    body: dict[Any, Any] = yaml.safe_load(WORKFLOWS[name].read_text())
    return body


def steps(name: str) -> list[dict[str, Any]]:
    """The steps of all jobs of a workflow."""
    return [step for job in workflow(name)["jobs"].values() for step in job.get("steps", ())]


def commands(name: str) -> str:
    """What a workflow runs, as one text."""
    return "\n".join(step["run"] for step in steps(name) if "run" in step)


def test_there_is_a_workflow_for_tests_images_and_releases() -> None:
    assert set(WORKFLOWS) == {"test", "image", "release"}
    assert workflow("test")[True].keys() == {"push", "pull_request", "workflow_call"}
    assert workflow("release")[True] == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_pinned_by_commit(name: str) -> None:
    """A tag may be another commit tomorrow. Local workflows are those that are there."""
    lines = re.findall(r"(?m)^ *(?:- )?uses: (.*)$", WORKFLOWS[name].read_text())
    assert lines
    for line in lines:
        if line.startswith("./"):
            assert (ROOT / line).is_file(), line
        else:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_version() -> None:
    lines = {
        line
        for path in WORKFLOWS.values()
        for line in re.findall(r"uses: (\S+@.*)", path.read_text())
    }
    assert len({line.partition("@")[0] for line in lines}) == len(lines)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_it_runs_is_there_and_takes_no_text_from_outside(name: str) -> None:
    """Every make target exists; names of branches and tags come by the environment, so that no
    shell runs them.
    """
    makefile = (ROOT / "Makefile").read_text()
    called = [
        word
        for line in re.findall(r"(?m)\bmake ([^\n|;&]+)", commands(name))
        for word in line.split()
        if re.fullmatch(r"[a-z][a-z0-9-]*", word)
    ]
    assert called
    assert [target for target in called if f"\n{target}: " not in makefile] == []
    assert "${{" not in commands(name)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_rights_are_given_by_job(name: str) -> None:
    """A workflow may read; a job that pushes, signs or releases says so. No job runs for hours."""
    body = workflow(name)
    assert body["permissions"] == {"contents": "read"}
    for job in body["jobs"].values():
        assert job["permissions"]["contents"] in {"read", "write"} if "permissions" in job else True
        assert "uses" in job or job["timeout-minutes"] <= 90
    assert all(
        step["with"]["persist-credentials"] is False
        for step in steps(name)
        if "checkout" in step.get("uses", "")
    )


def test_the_gate_runs_on_every_python_that_is_supported() -> None:
    """Those that pyproject.toml names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    jobs = workflow("test")["jobs"]
    assert [
        jobs[name]["strategy"]["matrix"]["python"] for name in ("unit", "e2e", "real-node")
    ] == [named] * 3


def test_the_jobs_run_what_make_test_runs() -> None:
    """Each part of `make test` is in one job, so that a part which fails fast is answered fast, and
    none is dropped.
    """
    makefile = (ROOT / "Makefile").read_text()
    [parts] = re.findall(r"^test: ([a-z0-9 -]+?) ##", makefile, re.MULTILINE)
    ran = re.findall(r"^make ([a-z0-9 -]+)$", commands("test"), re.MULTILINE)
    targets = [target for line in ran for target in line.split()]
    assert sorted(targets) == sorted(parts.split())


def test_a_release_is_tested_signed_and_named_by_digest() -> None:
    """Nothing is pushed before the tests; what is signed is a digest; the SBOM is attached to the
    image.
    """
    jobs = workflow("release")["jobs"]
    assert jobs["image"]["needs"] == ["version", "test"]
    assert jobs["publish"]["needs"] == ["version", "image"]
    assert workflow("image")[True]["workflow_call"]["outputs"]["image"]["value"].endswith(
        "jobs.image.outputs.image }}"
    )
    ran = commands("image")
    assert 'cosign sign --yes --recursive "$IMAGE"' in ran
    assert (
        'cosign attest --yes --type cyclonedx --predicate dist/gangsched.cdx.json "$IMAGE"' in ran
    )
    assert "image=$repository@$(jq -er '.\"containerimage.digest\"' dist/image.json)" in ran
    pushes = [
        step
        for step in steps("image")
        if "login" in step.get("uses", "") or "cosign" in step.get("run", "")
    ]
    assert len(pushes) == 2
    assert all(step["if"] == "env.TAG != ''" for step in pushes)


def test_a_tag_is_the_version_of_every_file() -> None:
    """A tag that is not, or one without a section in the changelog, is refused in one sentence."""
    (version,) = set(versions().values())
    check(f"v{version}", changelog=f"# Changelog\n\n## [{version}] - 2026-12-01\n")
    for tag, changelog, why in (
        (f"v{version}", "## [Unreleased]", f"CHANGELOG.md has no section [{version}]."),
        (
            "v9.9.9",
            "",
            f"The tag v9.9.9 is not the version of gangsched/__init__.py, which is {version}.",
        ),
        ("nightly", "", "The tag 'nightly' is none of a release, which is vX.Y.Z."),
        (version, "", f"The tag {version!r} is none of a release, which is vX.Y.Z."),
    ):
        with pytest.raises(ReleaseError) as caught:
            check(tag, changelog=changelog)
        assert str(caught.value) == why


def test_a_release_names_its_image_by_digest_only(capsys: pytest.CaptureFixture[str]) -> None:
    image = f"ghcr.io/owner/gangsched@{DIGEST}"
    assert f"          image: {image}\n" in with_image(
        "kind: Deployment\n          image: ghcr.io/a/b:0.1.0\n", image
    )
    with pytest.raises(ReleaseError, match="names 2 images"):
        with_image("  image: a\n  image: b\n", image)
    assert main(["files", "ghcr.io/owner/gangsched:0.1.0"]) == 2
    assert "by digest" in capsys.readouterr().err
    assert main([]) == 2


def test_the_notes_of_a_release_are_its_section_of_the_changelog() -> None:
    """Without its neighbours, and with links that work outside the repository."""
    changelog = (
        "# Changelog\n\n## [Unreleased]\n\nc\n\n## [0.2.0] - 2027-01-01\n\nb [x](docs/x.md#y)\n\n##"
        " [0.1.0]\n\na\n"
    )
    assert notes("v0.1.0", changelog) == "a\n"
    assert notes("v0.2.0", changelog) == f"b [x]({repository_address()}/blob/v0.2.0/docs/x.md#y)\n"
    with pytest.raises(ReleaseError, match="no section"):
        notes("v0.1", changelog)


def test_krew_installs_the_archive_of_the_release(tmp_path: Path) -> None:
    """The manifest names the archive's checksum and files; two archives of one version
    are equal.
    """
    krew(tmp_path)
    (archive,) = tmp_path.glob("*.tar.gz")
    body = yaml.safe_load((tmp_path / "krew.yaml").read_text())
    (platform,) = body["spec"]["platforms"]
    assert body["spec"]["version"] == f"v{__version__}"
    assert platform["uri"].endswith(f"/releases/download/v{__version__}/{archive.name}")
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as tar:
        assert {each["from"] for each in platform["files"]} == set(tar.getnames())
        assert tar.getmember(platform["bin"]).mode == 0o755
    assert "@" not in (tmp_path / "krew.yaml").read_text()
    krew(tmp_path / "..")
    assert (tmp_path / ".." / archive.name).read_bytes() == archive.read_bytes()


def test_a_release_is_published_where_it_says() -> None:
    """PyPI trusts the workflow (no token), the notes are those of the changelog, and the packages
    are attached.
    """
    job = workflow("release")["jobs"]["pypi"]
    assert job["needs"] == ["version", "publish"]
    assert job["permissions"] == {"contents": "read", "id-token": "write"}
    assert "uv publish --trusted-publishing always dist/*.whl dist/*.tar.gz" in commands("release")
    assert 'make --silent release-notes TAG="$TAG"' in commands("release")


def test_the_schema_of_the_charts_settings_is_that_of_the_daemon() -> None:
    """With its bounds, and without what the chart itself decides."""
    properties = settings_schema()["properties"]
    assert properties["bind_connections"] == {
        "description": "Maximum number of bind requests in flight.",
        "type": "integer",
        "minimum": 1,
        "maximum": 256,
    }
    assert "health_port" not in properties


def test_every_value_of_the_chart_is_in_its_schema() -> None:
    """And every property of the schema has a default, but for what a parent chart shares."""
    values, schema = (
        yaml.safe_load((CHART / "values.yaml").read_text()),
        json.loads(SCHEMA.read_text()),
    )
    assert values.keys() == schema["properties"].keys() - {"global"}
    assert not schema["additionalProperties"]
    for name, body in schema["properties"].items():
        if name not in {"global", "settings", "resources"} and "properties" in body:
            assert values[name].keys() == body["properties"].keys(), name
