"""`make support-matrix`: gangsched on each supported release of Kubernetes, as a table in
docs/install.md.

    python -m tests.support_matrix 1.35 1.36      # those that are built: `make control-plane
    VERSION=1.35`

Invariant: every cell is what a real API server of that release answered: install.yaml is applied
and rolled out, a gang starts, one that lacks room is refused whole and says why, one of higher
priority preempts, and the admission policies type-check without a warning. Exit code 1 if a cell is
not "yes".
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from control_plane import ControlPlane, ControlPlaneError, components
from control_plane.api import Api, ApiError, Object
from control_plane.applying import ROOT, apply_manifests
from control_plane.components import APISERVER, KCM, SCHEDULER
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.objects import create_all, gang, node
from control_plane.pods import refusal

from tests.e2e.installing import CommandError, kubectl

RELEASES = ("1.32", "1.33", "1.34", "1.35", "1.36", "1.37")
DEFAULT = "1.36"
"""The release of the gate, whose binaries lie apart from the others."""
PAGE = ROOT / "docs" / "install.md"
PODS = "/api/v1/namespaces/default/pods"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
WITHIN_S = 30.0
READY_WITHIN_S = 60.0


class FailedError(Exception):
    """What a release did not do, in one sentence."""


@dataclass(frozen=True)
class Row:
    """The answers of a release, by check: "yes", or what happened instead."""

    version: str
    cells: tuple[str, ...]


def binaries_of(release: str) -> str:
    """The name of the release's binaries: nothing for the release of the gate."""
    return "" if release == DEFAULT else release


def built(release: str) -> bool:
    """Whether its control plane is there."""
    names = (APISERVER, KCM, SCHEDULER)
    return all(components.binary(name, binaries_of(release)).exists() for name in names)


# --- the checks ---------------------------------------------------------------------------------


def installs(plane: ControlPlane, _: Api) -> None:
    """install.yaml is accepted as a whole, and its Deployment is rolled out."""
    kubectl(plane, "apply", "--server-side", "-f", ROOT / "manifests" / "install.yaml")
    kubectl(
        plane, "-n", "gangsched-system", "rollout", "status", "deploy/gangsched", "--timeout=60s"
    )
    # kwok plays its pods: the daemon that schedules is started as a process.
    kubectl(plane, "-n", "gangsched-system", "scale", "deploy/gangsched", "--replicas=0")


def policies_type_check(_: ControlPlane, api: Api) -> None:
    """The controller has checked every expression against the types of this release, and warns of
    none.
    """
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        policies = [
            each
            for each in api.list(POLICIES).items
            if each["metadata"]["name"].startswith("gangsched")
        ]
        unchecked = [each for each in policies if "typeChecking" not in each.get("status", {})]
        if policies and not unchecked:
            break
        if time.monotonic() > deadline_s:
            raise FailedError(f"{len(unchecked)} of {len(policies)} policies are not checked")
        time.sleep(0.2)
    warnings = [
        f"{each['metadata']['name']}: {warning['fieldRef']}"
        for each in policies
        for warning in each["status"]["typeChecking"].get("expressionWarnings", ())
    ]
    if warnings:
        raise FailedError("; ".join(warnings))


def a_gang_starts(_: ControlPlane, api: Api) -> None:
    """Four pods of 4 GPUs on two nodes of 8."""
    create_all(api, gang("low", members=4, gpus=4))
    await_pods(api, lambda pods: bound(pods, "low") == 4, "a gang of 4 pods is bound")


def a_gang_is_refused(_: ControlPlane, api: Api) -> None:
    """No pod of a gang starts while one of them lacks room, and each says why."""
    create_all(api, gang("late", members=2, gpus=1))

    def told(pods: list[Object]) -> bool:
        waiting = [pod for pod in pods if pod["metadata"]["name"].startswith("late-")]
        return len(waiting) == 2 and all("needs 2 pods" in refusal(pod)[1] for pod in waiting)

    await_pods(api, told, "both pods of a gang say what it lacks")


def a_gang_preempts(_: ControlPlane, api: Api) -> None:
    """A gang of higher priority stops the first one, whole."""
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 1000,
    }
    create_all(
        api, [priority, *gang("high", members=2, gpus=8, spec={"priorityClassName": "high"})]
    )
    await_pods(
        api,
        lambda pods: bound(pods, "high") == 2 and not bound(pods, "low"),
        "a gang preempts another one, whole",
    )


CHECKS: dict[str, Callable[[ControlPlane, Api], None]] = {
    "`install.yaml`": installs,
    "policies": policies_type_check,
    "a gang": a_gang_starts,
    "a refusal": a_gang_is_refused,
    "a preemption": a_gang_preempts,
}


def bound(pods: Iterable[Object], name: str) -> int:
    """How many pods of a gang have a node."""
    return sum(
        "nodeName" in pod["spec"] for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")
    )


def await_pods(api: Api, look: Callable[[list[Object]], bool], what: str) -> None:
    """Wait until the pods look so. Raises FailedError."""
    with Following(api, PODS) as pods:
        try:
            pods.wait_for(lambda items: look(list(items.values())), within_s=WITHIN_S)
        except TimeoutError:
            raise FailedError(f"not within {WITHIN_S:g} s: {what}") from None


# --- a release, and the table -------------------------------------------------------------------


def row_of(release: str) -> Row:
    """Play all checks on a control plane of this release."""
    with ControlPlane(kcm=True, kwok=True, scheduler=True, release=binaries_of(release)) as plane:
        api = Api.of(plane)
        version = str(api.get("/version")["gitVersion"]).removeprefix("v")
        create_all(api, [node("cpu-1", gpus=0)])
        cells = [cell_of(check, plane, api) for check in (installs, policies_type_check)]

        api.delete("/api/v1/nodes/cpu-1")
        create_all(api, [node("gpu-1"), node("gpu-2")])
        apply_manifests(api, crds=False)
        with Daemon(plane, ready_timeout_s=READY_WITHIN_S):
            cells += [
                cell_of(check, plane, api)
                for check in (a_gang_starts, a_gang_is_refused, a_gang_preempts)
            ]
        api.close()
    return Row(version, tuple(cells))


def cell_of(check: Callable[[ControlPlane, Api], None], plane: ControlPlane, api: Api) -> str:
    """ "yes", or why not."""
    try:
        check(plane, api)
    except (FailedError, CommandError, ApiError) as error:
        return f"no: {error}".splitlines()[0]
    return "yes"


def table(rows: Iterable[Row]) -> str:
    """The rows as Markdown."""
    lines = [f"| Kubernetes | {' | '.join(CHECKS)} |", f"|{'---|' * (len(CHECKS) + 1)}"]
    lines += [f"| {row.version} | {' | '.join(row.cells)} |" for row in rows]
    return "\n".join(lines) + "\n"


def write(rows: list[Row]) -> None:
    """Replace the rows of these minors in the table of docs/install.md."""
    text = PAGE.read_text()
    pattern = re.compile(rf"(?m)^{re.escape(table([]))}((?:\|.*\n)*)")
    found = pattern.search(text)
    if found is None:
        raise FailedError(f"{PAGE} has no table that begins with {table([]).splitlines()[0]}")
    old = [re.split(r" *\| *", line.strip("| ")) for line in found[1].splitlines()]
    kept = {minor(cells[0]): Row(cells[0], tuple(cells[1:])) for cells in old}
    kept |= {minor(row.version): row for row in rows}
    PAGE.write_text(text.replace(found[0], table(kept[each] for each in sorted(kept))))


def minor(version: str) -> tuple[int, ...]:
    """1.36 of 1.36.3, as numbers."""
    return tuple(int(part) for part in version.split(".")[:2])


def main(asked: list[str]) -> int:
    """The command line; returns the exit code."""
    rows = []
    for release in asked or RELEASES:
        if not built(release):
            print(
                f"support-matrix: {release} is not built: make control-plane VERSION={release}",
                file=sys.stderr,
            )
            continue
        try:
            row = row_of(release)
        except ControlPlaneError as error:
            print(f"support-matrix: {release}: {error}", file=sys.stderr)
            return 1
        rows.append(row)
        print(f"support-matrix: {row.version}: {', '.join(row.cells)}", flush=True)
    write(rows)
    print(table(rows), end="")
    return 0 if rows and all(cell == "yes" for row in rows for cell in row.cells) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
