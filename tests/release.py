"""A release: whether a tag is the version of everything, and its files, which name the image by
digest.

    python -m tests.release check v0.1.0
    python -m tests.release files ghcr.io/owner/gangsched@sha256:…
    python -m tests.release notes v0.1.0

Invariant: a file of a release names no image by tag. It ends with 2 and one sentence where
something does not fit. Nothing is pushed here.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

import yaml
from control_plane.components import HELM

from gangsched import __version__
from tests.packaging import CHART, INSTALL, ROOT

DIST = ROOT / "dist"
KREW = ROOT / "hack" / "krew"
BY_DIGEST = re.compile(r"^([^@\s]+)@(sha256:[0-9a-f]{64})$")


class ReleaseError(Exception):
    """What does not fit, in one sentence."""


def versions() -> dict[str, str]:
    """The version by the file that states it."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    kustomization = yaml.safe_load((ROOT / "manifests" / "kustomization.yaml").read_text())
    (image,) = kustomization["images"]
    return {
        "gangsched/__init__.py": __version__,
        **_of_projects(),
        "charts/gangsched/Chart.yaml (version)": chart["version"],
        "charts/gangsched/Chart.yaml (appVersion)": chart["appVersion"],
        "manifests/kustomization.yaml": image["newTag"],
    }


def _of_projects() -> dict[str, str]:
    """The versions of the packages beside gangsched, and those that one asks of another."""
    stated = {}
    for path in (ROOT / "pyproject.toml", *sorted(ROOT.glob("packages/*/pyproject.toml"))):
        project = tomllib.loads(path.read_text())["project"]
        file = str(path.relative_to(ROOT))
        if "version" in project:
            stated[file] = project["version"]

        for dependency in project["dependencies"]:
            name, _, version = dependency.partition("==")
            if version:
                stated[f"{file} ({name})"] = version

    return stated


def check(tag: str, *, changelog: str) -> None:
    """Raise ReleaseError unless `tag` is vX.Y.Z of every file, and the changelog has a section of
    it.
    """
    version = tag.removeprefix("v")
    if f"v{version}" != tag or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"The tag {tag!r} is none of a release, which is vX.Y.Z.")
    for file, stated in versions().items():
        if stated != version:
            raise ReleaseError(f"The tag {tag} is not the version of {file}, which is {stated}.")
    if f"\n## [{version}]" not in changelog:
        raise ReleaseError(f"CHANGELOG.md has no section [{version}].")


def with_image(text: str, image: str) -> str:
    """install.yaml with this image. Raises ReleaseError unless it names one image of ours."""
    changed, count = re.subn(r"(?m)^( +image: )\S+$", rf"\g<1>{image}", text)
    if count != 1:
        raise ReleaseError(f"install.yaml names {count} images and not one.")
    return changed


def files(image: str, folder: Path) -> None:
    """Write install.yaml and the chart's archive into `folder`, for this image by digest. Raises
    ReleaseError.
    """
    found = BY_DIGEST.match(image)
    if found is None:
        raise ReleaseError(f"The image {image!r} is not given by digest: IMAGE=repository@sha256:…")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "install.yaml").write_text(with_image(INSTALL.read_text(), image))
    with tempfile.TemporaryDirectory() as temporary:
        chart = Path(temporary) / "gangsched"
        shutil.copytree(CHART, chart)
        values = (chart / "values.yaml").read_text()
        for pattern, value in (
            (r"(?m)^  repository: .*$", found[1]),
            (r'(?m)^  digest: ""$', found[2]),
        ):
            values, count = re.subn(
                pattern, f"{pattern.split(': ')[0].removeprefix('(?m)^')}: {value}", values
            )
            if count != 1:
                raise ReleaseError(f"values.yaml has {count} lines {pattern} and not one.")
        (chart / "values.yaml").write_text(values)
        argv = [str(HELM), "package", str(chart), "--destination", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise ReleaseError(f"The chart is not packaged: {done.stderr.strip()}")


def notes(tag: str, changelog: str) -> str:
    """The section of the changelog for a tag. Raises ReleaseError if there is none."""
    version = re.escape(tag.removeprefix("v"))
    found = re.search(rf"(?ms)^## \[{version}\][^\n]*\n(.*?)(?=^## |\Z)", changelog)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section [{tag.removeprefix('v')}].")
    # Links into the repository, as they are read from outside.
    address = f"{repository_address()}/blob/{tag}"
    return re.sub(r"\]\((?!https?:)([^)]+)\)", rf"]({address}/\1)", found[1]).strip() + "\n"


def repository_address() -> str:
    """Where the repository is, as pyproject.toml says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["urls"]["Repository"])


def krew(folder: Path) -> None:
    """Write the plugin's archive for krew and its manifest, which names the archive's checksum."""
    archive = folder / f"kubectl-gangsched-{__version__}.tar.gz"
    script = (KREW / "kubectl-gangsched").read_text().replace("@VERSION@", __version__)
    members = {"kubectl-gangsched": script.encode(), "LICENSE": (ROOT / "LICENSE").read_bytes()}
    # Equal bytes whenever it is made: no times, no names of users.
    with (
        archive.open("wb") as file,
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755 if content.startswith(b"#!") else 0o644
            tar.addfile(member, io.BytesIO(content))

    manifest = (KREW / "gangsched.yaml").read_text()
    values = {
        "@VERSION@": __version__,
        "@REPOSITORY@": repository_address(),
        "@SHA256@": hashlib.sha256(archive.read_bytes()).hexdigest(),
    }
    for placeholder, value in values.items():
        manifest = manifest.replace(placeholder, value)
    (folder / "krew.yaml").write_text(manifest)


def main(words: list[str]) -> int:
    """The command line; returns the exit code."""
    try:
        match words:
            case ["check", tag]:
                check(tag, changelog=(ROOT / "CHANGELOG.md").read_text())
            case ["files", image]:
                files(image, DIST)
                krew(DIST)
            case ["notes", tag]:
                print(notes(tag, (ROOT / "CHANGELOG.md").read_text()), end="")
            case _:
                raise ReleaseError(
                    "Give `check vX.Y.Z`, `notes vX.Y.Z` or `files repository@sha256:…`."
                )
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
