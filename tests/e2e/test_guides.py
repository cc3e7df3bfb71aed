"""The guides and the README run: every command is typed in the playground, and says what the page
shows.

Invariant: a line `$ …` is a command, `> …` after it goes on with it, and what follows is its
output. `…` stands for anything, and amounts of space are all alike. Commands that only look are
repeated until they show it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import ROOT, load_yaml
from control_plane.components import HELM

from demo.playground import lines_to_paste, playground
from tests.e2e.conftest import PODS, delete_all
from tests.e2e.installing import CommandError, run

pytestmark = pytest.mark.e2e

WITHIN_S = 60.0
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
README = ROOT / "README.md"
LOOKS = re.compile(r"kubectl (get|gangsched why) (?!.*\|)")
"""Nothing is changed by it, so it may be repeated."""
IN_THE_PLAYGROUND = re.compile(r"kubectl (?!apply --server-side|-n gangsched-system)")


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
            more = next(
                (n for n, line in enumerate(lines[1:], 1) if not re.match(r"> ?", line)), len(lines)
            )
            command = "\n".join(
                [lines[0], *(line.removeprefix(">").removeprefix(" ") for line in lines[1:more])]
            )
            found.append(Typed(command, "\n".join(lines[more:])))
    return found


def shows(output: str, wanted: str) -> bool:
    """Whether an output is what a page has."""
    parts = [re.escape(" ".join(part.split())) for part in wanted.split("…")]
    return re.fullmatch(r"\s*.*?\s*".join(parts), " ".join(output.split())) is not None


@pytest.fixture(scope="module")
def place() -> Iterator[ControlPlane]:
    """`make playground`."""
    with playground() as (plane, _):
        yield plane


@pytest.fixture
def cluster(place: ControlPlane) -> Iterator[ControlPlane]:
    """The same, in which a test leaves nothing but the nodes."""
    yield place
    api = Api.of(place)
    delete_all(
        api,
        "/apis/batch/v1/jobs",
        "/apis/apps/v1/statefulsets",
        PODS,
        "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
        *(
            f"/apis/resource.k8s.io/v1/{each}"
            for each in ("resourceclaimtemplates", "resourceslices", "deviceclasses")
        ),
    )
    api.close()


def type_into(plane: ControlPlane, command: str) -> str:
    """Standard output of a command, after the playground's two lines in the same shell. Raises
    CommandError.
    """
    done = subprocess.run(
        ["bash", "-c", "\n".join([*lines_to_paste(plane), "set -e", command])],
        cwd=ROOT,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(plane.workdir / "home"),
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=150.0,
        check=False,
    )
    if done.returncode:
        raise CommandError(done.stderr.strip())
    return done.stdout


def _printed(plane: ControlPlane, command: str) -> str:
    """What a command prints; the error of one that only looks, which is too early then, as well:
    kubectl refuses to sort pods by node while none has one.
    """
    try:
        return type_into(plane, command)
    except CommandError as error:
        if not LOOKS.match(command):
            raise
        return str(error)


def type_all(plane: ControlPlane, page: Path, commands: re.Pattern[str] = re.compile("")) -> None:
    """Type these commands of a page in their order, and compare what they print where the page
    shows it.
    """
    for each in typed(page):
        if not commands.match(each.command):
            continue
        deadline_s = time.monotonic() + WITHIN_S
        while not shows(output := _printed(plane, each.command), each.output) and each.output:
            assert LOOKS.match(each.command), f"$ {each.command}\n{output}"
            assert time.monotonic() < deadline_s, (
                f"$ {each.command}\n{output}\nis not\n{each.output}"
            )
            time.sleep(0.2)


@pytest.mark.parametrize(
    "page", [page for page in GUIDES if typed(page)], ids=lambda page: page.stem
)
def test_what_a_guide_says_to_type_says_what_it_shows(page: Path, cluster: ControlPlane) -> None:
    """Each command in its order, with its output."""
    type_all(cluster, page)


def test_the_readme_runs_in_the_playground(cluster: ControlPlane) -> None:
    """Its first gang waits, says why and starts, as printed; its YAML is the file that it names."""
    type_all(cluster, README, IN_THE_PLAYGROUND)
    (block,) = re.findall(r"(?ms)^```yaml\n(.*?)^```", README.read_text())
    assert load_yaml(block) == load_yaml(ROOT / "examples" / "large-job.yaml")


def test_doctor_finds_nothing_in_the_playground(place: ControlPlane) -> None:
    """A new user who asks whether all is well is not sent to repair what is not broken."""
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        try:
            said = type_into(place, "kubectl gangsched doctor")
            break
        except CommandError:  # its Deployment is rolled out
            assert time.monotonic() < deadline_s, type_into(
                place, "kubectl gangsched doctor || true"
            )
            time.sleep(0.5)
    assert said.startswith("Nothing is found.")


def test_what_the_chart_prints_and_tests_starts(cluster: ControlPlane, tmp_path: Path) -> None:
    """The commands of NOTES.txt start the first gang, and the pods of `helm test` start as one."""
    chart = tmp_path / "gangsched"
    shutil.copytree(ROOT / "charts" / "gangsched", chart)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    document = "kind: Notes\nmetadata: {name: notes}\ntext: |\n" + textwrap.indent(notes, "  ")
    (chart / "templates" / "notes.yaml").write_text(document)
    rendered = run(cluster, HELM, "template", "gangsched", chart, "--namespace", "default")
    (text,) = (body["text"] for body in load_yaml(rendered) if body["kind"] == "Notes")
    assert "\nhelm test gangsched --namespace default\n" in text

    apply, rest = text[text.index("kubectl apply") :].split("\nEOF\n")
    look, delete = rest.splitlines()
    type_into(cluster, f"{apply}\nEOF")
    until_shows(cluster, look, "NAME MIN PHASE REASON BOUND AGE first 2 Running Scheduled 2 …")
    type_into(cluster, delete)

    (job,) = (body for body in load_yaml(rendered) if body["kind"] == "Job")
    # kwok ends pods that say when; the image would end at once.
    job["spec"]["template"]["metadata"]["annotations"]["gangsched.dev/run-seconds"] = "0"
    api = Api.of(cluster)
    make.create_all(api, [job])
    api.close()
    done = "custom-columns=DONE:.status.succeeded"
    until_shows(cluster, f"kubectl get job gangsched-test -o {done}", "DONE 2")


def until_shows(plane: ControlPlane, command: str, wanted: str) -> None:
    """Repeat a command until it shows this."""
    deadline_s = time.monotonic() + WITHIN_S
    while not shows(output := type_into(plane, command), wanted):
        assert time.monotonic() < deadline_s, output
        time.sleep(0.2)


def test_the_readme_installs() -> None:
    """Its commands outside the playground are those of make, and those that install on a cluster of
    one node.
    """
    elsewhere = [
        each.command.partition("  ")[0]
        for each in typed(README)
        if not IN_THE_PLAYGROUND.match(each.command)
    ]
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    clone, demo, place, *install = elsewhere
    assert clone == f"git clone {address} && cd gangsched"
    assert (demo, place) == ("make demo", "make playground")  # tests/e2e/test_demo.py runs both
    assert len(install) == 2
    with ControlPlane(kcm=True, kwok=True, scheduler=True) as plane:
        api = Api.of(plane)
        make.create_all(api, [make.node("cpu-1", gpus=0)])
        for command in install:
            run(plane, "bash", "-c", command)
        api.close()


def test_an_output_that_differs_is_seen(place: ControlPlane) -> None:
    """The comparison is of whole outputs, and a command that fails fails the page."""
    assert shows("NAME  AGE\nbert  3s\n", "NAME AGE\nbert …")
    assert not shows("NAME  AGE\nbert  3s\nother 4s x", "NAME AGE\nbert 3s")
    assert not shows("3 of 4 are bound", "4 of 4 are bound")
    with pytest.raises(CommandError):
        type_into(place, "kubectl get pg nobody")


def test_guides_that_show_commands_are_found() -> None:
    """A page whose blocks are written in another way would pass unseen."""
    assert {page.stem for page in GUIDES if typed(page)} == {
        "first-gang",
        "beside-others",
        "devices",
    }
