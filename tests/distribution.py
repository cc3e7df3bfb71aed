"""`make release`: everything that a release publishes, in dist/, checked by installing from it.

    python -m tests.distribution build      # writes dist/ and checks it
    python -m tests.distribution check      # checks dist/ as it is

Invariant: install.yaml and the chart name the image in the archive beside them by its digest, and
SHA256SUMS names every file. It ends with 2 and one sentence where something does not fit. Nothing
is published here: the workflow `release` does that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from dataclasses import replace
from pathlib import Path

import yaml
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import ROOT, load_yaml
from control_plane.components import HELM
from control_plane.real.host import UnsuitableError, prepare
from control_plane.real.images import Image, Images, build, export

from gangsched import __version__
from tests.e2e.installing import CommandError, kubectl
from tests.packaging import CHART
from tests.release import DIST, ReleaseError, files, krew

UV = ROOT / ".cache" / "uv" / "bin" / "uv"
SUMS = "SHA256SUMS"
WHEEL = f"gangsched-{__version__}-py3-none-any.whl"
SDIST = f"gangsched-{__version__}.tar.gz"
PLUGIN_WHEEL = f"kubectl_gangsched-{__version__}-py3-none-any.whl"
PLUGIN_SDIST = f"kubectl_gangsched-{__version__}.tar.gz"
CEL_WHEEL = f"kubernetes_cel-{__version__}-py3-none-any.whl"
CEL_SDIST = f"kubernetes_cel-{__version__}.tar.gz"
ARCHIVE = f"gangsched-{__version__}.image.tar"
CHART_ARCHIVE = f"gangsched-{__version__}.tgz"
SBOM = "gangsched.cdx.json"
INSTALL = "install.yaml"
PLUGIN_ARCHIVE = f"kubectl-gangsched-{__version__}.tar.gz"
KREW = "krew.yaml"
PACKAGES = (WHEEL, SDIST, PLUGIN_WHEEL, PLUGIN_SDIST, CEL_WHEEL, CEL_SDIST)
PARTS = (*PACKAGES, ARCHIVE, CHART_ARCHIVE, SBOM, INSTALL, PLUGIN_ARCHIVE, KREW)


def say(text: str) -> None:
    """One line of progress."""
    print(f"release: {text}", flush=True)


def run(*argv: str | Path, cwd: Path = ROOT) -> str:
    """Standard output of a program. Raises ReleaseError with the last line of its errors."""
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise ReleaseError(
            f"{Path(argv[0]).name} {argv[1]} failed: {lines[-1] if lines else 'without a word'}"
        )
    return done.stdout


# --- build --------------------------------------------------------------------------------------


def repository() -> str:
    """Where the image is published, as the chart has it; IMAGE_REPOSITORY for a fork."""
    given = os.environ.get("IMAGE_REPOSITORY", "")
    return given or str(yaml.safe_load((CHART / "values.yaml").read_text())["image"]["repository"])


def build_all(folder: Path) -> None:
    """Write everything into an empty folder. Raises ReleaseError."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    say("wheels and sdists")
    for project in ("gangsched", "kubectl-gangsched", "kubernetes-cel"):
        # Each wheel is built from its sdist.
        run(UV, "build", "--quiet", "--package", project, "--out-dir", folder)
    (folder / ".gitignore").unlink(missing_ok=True)
    say("image")
    digest = build_image(folder / ARCHIVE)
    say("chart and install.yaml")
    files(f"{repository()}@{digest}", folder)
    krew(folder)
    say("SBOM")
    run("make", "--no-print-directory", "sbom", f"SBOM={folder / SBOM}")
    write_sums(folder)


def build_image(archive: Path) -> str:
    """Build the image by the Dockerfile and write it as an OCI archive; returns its digest."""
    try:
        prepare()
    except UnsuitableError as error:
        raise ReleaseError(f"The image cannot be built here: {error}") from None
    images: Images = build(say)
    return export(images.gangsched, archive)


def write_sums(folder: Path) -> None:
    """Write SHA256SUMS, which `sha256sum --check` reads."""
    lines = [f"{sha256(folder / name)}  {name}\n" for name in sorted(PARTS)]
    (folder / SUMS).write_text("".join(lines))


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# --- check --------------------------------------------------------------------------------------


def check_all(folder: Path) -> None:
    """Install from every part. Raises ReleaseError at the first that does not fit."""
    missing = [name for name in (*PARTS, SUMS) if not (folder / name).is_file()]
    if missing:
        raise ReleaseError(f"{folder} lacks {', '.join(missing)}: run `make release`.")
    say("checksums")
    run("sha256sum", "--check", "--strict", "--quiet", SUMS, cwd=folder)
    check_image(folder)
    check_sbom(folder)
    for name in (WHEEL, SDIST):
        check_package(folder, f"gangsched[scheduler] @ {(folder / name).as_uri()}", "gangsched")

    for name in (PLUGIN_WHEEL, PLUGIN_SDIST):
        check_package(
            folder, f"kubectl-gangsched @ {(folder / name).as_uri()}", "kubectl-gangsched"
        )
    check_installation(folder)


def image_of(folder: Path) -> str:
    """The image that install.yaml names, by digest. Raises ReleaseError if there is not exactly
    one.
    """
    found = set(
        re.findall(r"(?m)^ +image: (\S+@sha256:[0-9a-f]{64})$", (folder / INSTALL).read_text())
    )
    if len(found) != 1:
        raise ReleaseError(f"{INSTALL} names {len(found)} images by digest and not one.")
    return str(found.pop())


def digest_of(archive: Path) -> str:
    """The digest of the one image of an OCI archive."""
    with tarfile.open(archive) as tar:
        index = tar.extractfile("index.json")
        assert index is not None
        (manifest,) = json.load(index)["manifests"]
    return str(manifest["digest"])


def images_of(folder: Path, built: Images) -> Images:
    """The images of a cluster with gangsched's from the archive, by the reference that install.yaml
    names.
    """
    return replace(built, gangsched=Image(image_of(folder), folder / ARCHIVE))


def check_image(folder: Path) -> None:
    """install.yaml and the chart name the image of the archive."""
    say("the image's digest")
    image, digest = image_of(folder), digest_of(folder / ARCHIVE)
    if not image.endswith(f"@{digest}"):
        raise ReleaseError(f"{INSTALL} names {image}, but {ARCHIVE} has {digest}.")
    rendered = run(
        HELM, "template", "gangsched", folder / CHART_ARCHIVE, "--namespace", "gangsched-system"
    )
    if f'image: "{image}"' not in rendered:
        raise ReleaseError(f"{CHART_ARCHIVE} does not render the image {image}.")


def check_sbom(folder: Path) -> None:
    """The SBOM names the dependencies that the wheel asks for."""
    named = {part["name"] for part in json.loads((folder / SBOM).read_text())["components"]}
    asked = {"aiohttp", "kopf", "kubernetes-asyncio", "numpy", "uvloop"}
    if asked - named:
        raise ReleaseError(f"{SBOM} lacks {', '.join(sorted(asked - named))}.")


def check_package(folder: Path, requirement: str, command: str) -> None:
    """Install a wheel or sdist into an environment of its own, with the packages beside it, and run
    its command.
    """
    say(f"installing {requirement.rpartition('/')[2]}")
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary) / "venv"
        venv.create(place)
        python = place / "bin" / "python"
        found = ("--quiet", "--find-links", folder, "--python", python)
        run(UV, "pip", "install", *found, requirement)

        said = run(place / "bin" / command, "version", cwd=Path(temporary))
        if __version__ not in said:
            raise ReleaseError(
                f"{command} of {requirement} prints {said.strip()!r}, not {__version__}."
            )


def check_installation(folder: Path) -> None:
    """Apply install.yaml, and a server-side diff of the chart: both install the same Deployment."""
    say("installing install.yaml on a control plane")
    with ControlPlane(kcm=True, kwok=True, scheduler=True) as plane:
        api = Api.of(plane)
        make.create_all(api, [make.node("cpu-1", gpus=0)])
        api.close()
        try:
            kubectl(plane, "apply", "--server-side", "-f", folder / INSTALL)
            words = ("rollout", "status", "deploy/gangsched", "--timeout=90s")
            kubectl(plane, "-n", "gangsched-system", *words)
        except CommandError as error:
            raise ReleaseError(f"{INSTALL} does not install: {error}") from None
    rendered = run(
        HELM, "template", "gangsched", folder / CHART_ARCHIVE, "--namespace", "gangsched-system"
    )
    deployments = [
        [
            body["spec"]["template"]["spec"]["containers"][0]["image"]
            for body in bodies
            if body["kind"] == "Deployment"
        ]
        for bodies in (load_yaml(folder / INSTALL), load_yaml(rendered))
    ]
    if deployments[0] != deployments[1]:
        raise ReleaseError(
            f"{INSTALL} and {CHART_ARCHIVE} install {deployments[0]} and {deployments[1]}."
        )


def main(words: list[str]) -> int:
    """The command line; returns the exit code."""
    try:
        match words:
            case ["build"]:
                build_all(DIST)
                check_all(DIST)
            case ["check"]:
                check_all(DIST)
            case _:
                raise ReleaseError("Give `build` or `check`.")
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 2
    for name in sorted(PARTS):
        say(f"{(DIST / name).stat().st_size / 1e6:8.2f} MB  {DIST.name}/{name}")
    say(f"checked; {image_of(DIST)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
