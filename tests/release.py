"""A release: whether a tag is the version of everything, and its files, which name the image by digest.

    python -m tests.release check v0.1.0
    python -m tests.release files ghcr.io/owner/gangsched@sha256:…

Invariant: a file of a release names no image by tag. It ends with 2 and one sentence where something does not fit.
Nothing is pushed here.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from control_plane.components import HELM

from gangsched import __version__
from tests.packaging import CHART, INSTALL, ROOT

DIST = ROOT / "dist"
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
        "charts/gangsched/Chart.yaml (version)": chart["version"],
        "charts/gangsched/Chart.yaml (appVersion)": chart["appVersion"],
        "manifests/kustomization.yaml": image["newTag"],
    }


def check(tag: str, *, changelog: str) -> None:
    """Raise ReleaseError unless `tag` is vX.Y.Z of every file, and the changelog has a section of it."""
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
    """Write install.yaml and the chart's archive into `folder`, for this image by digest. Raises ReleaseError."""
    found = BY_DIGEST.match(image)
    if found is None:
        raise ReleaseError(f"The image {image!r} is not given by digest: IMAGE=repository@sha256:…")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "install.yaml").write_text(with_image(INSTALL.read_text(), image))
    with tempfile.TemporaryDirectory() as temporary:
        chart = Path(temporary) / "gangsched"
        shutil.copytree(CHART, chart)
        values = (chart / "values.yaml").read_text()
        for pattern, value in ((r"(?m)^  repository: .*$", found[1]), (r'(?m)^  digest: ""$', found[2])):
            values, count = re.subn(pattern, f"{pattern.split(': ')[0].removeprefix('(?m)^')}: {value}", values)
            if count != 1:
                raise ReleaseError(f"values.yaml has {count} lines {pattern} and not one.")
        (chart / "values.yaml").write_text(values)
        argv = [str(HELM), "package", str(chart), "--destination", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise ReleaseError(f"The chart is not packaged: {done.stderr.strip()}")


def main(words: list[str]) -> int:
    """The command line; returns the exit code."""
    try:
        match words:
            case ["check", tag]:
                check(tag, changelog=(ROOT / "CHANGELOG.md").read_text())
            case ["files", image]:
                files(image, DIST)
            case _:
                raise ReleaseError("Give `check vX.Y.Z` or `files repository@sha256:…`.")
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
