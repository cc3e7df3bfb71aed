"""kubectl and helm against a control plane, what the manual says to type, and what an install
leaves there.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.applying import ROOT
from control_plane.components import BIN

COMES_AND_GOES = {"events", "leases", "endpoints", "endpointslices", "componentstatuses"}
"""Resources of which others make objects at any time."""
SERVERS_OWN = ("resourceVersion", "managedFields")


class CommandError(Exception):
    """A command failed; `str()` is what it wrote to stderr."""


def run(plane: ControlPlane, *words: str | Path, within_s: float = 150.0) -> str:
    """Standard output of kubectl or helm, as the administrator and at the top of the checkout;
    raises CommandError.
    """
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={
            "KUBECONFIG": str(plane.kubeconfig),
            "HOME": str(plane.workdir / "home"),
            "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
        },
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    if done.returncode:
        raise CommandError(done.stderr.strip())
    return done.stdout


def kubectl(plane: ControlPlane, *words: str | Path) -> str:
    """Standard output of kubectl; raises CommandError."""
    return run(plane, BIN / "kubectl", *words)


def commands(heading: str) -> list[list[str]]:
    """What docs/install.md says to type under a heading: the lines of each of its blocks."""
    section = (
        (ROOT / "docs" / "install.md")
        .read_text()
        .split(f"\n## {heading}\n", 1)[1]
        .split("\n## ", 1)[0]
    )
    blocks = re.findall(r"(?ms)^```console\n(.*?)^```", section)
    return [
        [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ")]
        for block in blocks
    ]


def type_in(plane: ControlPlane, lines: Iterable[str]) -> None:
    """Run each line in a shell; raises CommandError at the first that fails."""
    for line in lines:
        run(plane, "bash", "-c", line)


def forget_discovery(plane: ControlPlane) -> None:
    """kubectl remembers for six hours which resources there are."""
    shutil.rmtree(plane.workdir / "home" / ".kube" / "cache", ignore_errors=True)


def everything(api: Api) -> set[str]:
    """The path of every object that the API server has, by its preferred versions; not of our own
    API's.
    """
    groups = [
        group for group in api.get("/apis")["groups"] if group["name"] != "visibility.gangsched.dev"
    ]
    roots = ["/api/v1"] + [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
    found: set[str] = set()
    for root in roots:
        for resource in api.get(root)["resources"]:
            if "list" not in resource["verbs"] or resource["name"] in COMES_AND_GOES:
                continue
            for item in api.list(f"{root}/{resource['name']}").items:
                metadata = item["metadata"]
                inside = f"namespaces/{metadata['namespace']}/" if metadata.get("namespace") else ""
                found.add(f"{root}/{inside}{resource['name']}/{metadata['name']}")
    return found


def wanted(api: Api, documents: Iterable[Object]) -> dict[str, Object]:
    """Each of these objects as the API server has it, without its status and what counts writes of
    the status.
    """
    found: dict[str, Object] = {}
    for body in documents:
        path = f"{api.path_of(body)}/{body['metadata']['name']}"
        stored = api.get(path)
        stored.pop("status", None)
        stored["metadata"] = {
            key: value for key, value in stored["metadata"].items() if key not in SERVERS_OWN
        }
        found[path] = stored
    return found
