"""The guides run: every command of docs/guides is typed, and says what the page shows.

Invariant: a line `$ …` is a command, `> …` after it goes on with it, and what follows is its output. `…` stands for
anything, and amounts of space are all alike. Commands that only look are repeated until they show it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import ROOT
from control_plane.daemon import Daemon

from tests.e2e.conftest import PODS, delete_all
from tests.e2e.installing import CommandError, run

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True, "kwok": True}
WITHIN_S = 60.0
READY_WITHIN_S = 120.0
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
LOOKS = re.compile(r"kubectl get (?!.*\|)")
"""Nothing is changed by it, so it may be repeated."""


@dataclass(frozen=True)
class Typed:
    """A command and what it is to print."""

    command: str
    output: str


def typed(page: Path) -> list[Typed]:
    """What a page says to type, in its order."""
    found = []
    for block in re.findall(r"(?ms)^```console\n(.*?)^```", page.read_text()):
        for part in re.split(r"(?m)^\$ ", block)[1:]:
            lines = part.splitlines()
            more = next((n for n, line in enumerate(lines[1:], 1) if not re.match(r"> ?", line)), len(lines))
            command = "\n".join([lines[0], *(line.removeprefix(">").removeprefix(" ") for line in lines[1:more])])
            found.append(Typed(command, "\n".join(lines[more:])))
    return found


def shows(output: str, wanted: str) -> bool:
    """Whether an output is what a page has."""
    parts = [re.escape(" ".join(part.split())) for part in wanted.split("…")]
    return re.fullmatch(r"\s*.*?\s*".join(parts), " ".join(output.split())) is not None


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Two nodes of 8 GPUs, and the daemon, which allocates devices."""
    api = Api.of(plane)
    make.create_all(api, [make.node("gpu-1"), make.node("gpu-2")])
    with Daemon(plane, ready_timeout_s=READY_WITHIN_S, extra_args=("--devices", "all")):
        yield plane
    delete_all(
        api,
        "/apis/batch/v1/jobs",
        "/apis/apps/v1/statefulsets",
        PODS,
        "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
        *(f"/apis/resource.k8s.io/v1/{each}" for each in ("resourceclaimtemplates", "resourceslices", "deviceclasses")),
        "/api/v1/nodes",
    )
    api.close()


@pytest.mark.parametrize("page", [page for page in GUIDES if typed(page)], ids=lambda page: page.stem)
def test_what_a_guide_says_to_type_says_what_it_shows(page: Path, cluster: ControlPlane) -> None:
    """Each command in its order, with its output."""
    for each in typed(page):
        deadline_s = time.monotonic() + WITHIN_S
        while not shows(output := run(cluster, "bash", "-c", each.command), each.output):
            assert LOOKS.match(each.command), f"$ {each.command}\n{output}"
            assert time.monotonic() < deadline_s, f"$ {each.command}\n{output}\nis not\n{each.output}"
            time.sleep(0.2)


def test_an_output_that_differs_is_seen(plane: ControlPlane) -> None:
    """The comparison is of whole outputs, and a command that fails fails the page."""
    assert shows("NAME  AGE\nbert  3s\n", "NAME AGE\nbert …")
    assert not shows("NAME  AGE\nbert  3s\nother 4s x", "NAME AGE\nbert 3s")
    assert not shows("3 of 4 are bound", "4 of 4 are bound")
    with pytest.raises(CommandError):
        run(plane, "bash", "-c", "kubectl get pg nobody")


def test_guides_that_show_commands_are_found() -> None:
    """A page whose blocks are written in another way would pass unseen."""
    assert {page.stem for page in GUIDES if typed(page)} == {"first-gang", "operators", "beside-others", "devices"}
