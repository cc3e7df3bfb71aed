"""`doctor`: runs the checks and reports findings and skipped checks."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangsched import __version__
from gangsched.api.keys import SIGS, VOLCANO, X_K8S
from gangsched.console import DONE
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod
from gangsched.model.text import counted
from kubectl_gangsched.doctor import autoscalers, leader, nodes, provisioning, rights, services
from kubectl_gangsched.doctor import pods as of_pods
from kubectl_gangsched.doctor.finding import Finding
from kubectl_gangsched.doctor.unrenewed import Place
from kubectl_gangsched.from_pods import pods_at
from kubectl_gangsched.outputs import DoctorOutput, PrintedFinding
from kubectl_gangsched.session import FOUND, Session, lacking
from kubectl_gangsched.terminal import Cell, Line, Output, facts, write, write_value

FACTS = {
    "API server": "apiServer",
    "kubectl gangsched": "kubectlGangsched",
    "Scheduler": "scheduler",
    "Scheduler names": "schedulerNames",
    "Leader": "leader",
}
"""Titles of facts, and their names in JSON."""


@dataclass(slots=True)
class Report:
    """Findings of the checks. `unchecked` maps each skipped check to the reason, `facts` each title
    to a value.
    """

    findings: list[Finding] = field(default_factory=list)
    unchecked: dict[str, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)

    def look(self, what: str, check: Callable[[], Iterable[Finding]]) -> None:
        """Run a check and add its findings; if a permission is missing, the check counts as
        skipped.
        """
        try:
            self.findings += check()
        except ApiFault as fault:
            if fault.status not in {FORBIDDEN, NOT_FOUND}:
                raise

            self.unchecked[what] = lacking(fault) if fault.status == FORBIDDEN else str(fault)


def doctor(session: Session, system: str, account: str, output: Output) -> int:
    """Run all checks that permissions allow; return the exit code. Raises Fault."""
    report = examine(session.client, system, account)
    if output is not Output.TEXT:
        findings = [PrintedFinding(**finding._asdict()) for finding in report.findings]
        facts_of = {FACTS[title]: value for title, value in report.facts.items()}
        write_value(
            DoctorOutput(facts=facts_of, findings=findings, not_checked=report.unchecked),
            output,
        )
    else:
        write(_told(report))

    return FOUND if report.findings else DONE


def examine(client: BlockingClient, system: str, account: str) -> Report:
    """Run all checks. Raises Fault if the API server does not answer or rejects the credentials."""
    report = Report()
    version = client.get("/version")
    report.facts["API server"] = str(version.get("gitVersion"))
    report.facts["kubectl gangsched"] = __version__

    # The defaults, for a user who may not read the Deployment.
    ours = {"gangsched"}
    policies = [GpuPolicy()]
    elected = [("gangsched", False)]
    settings: list[Mapping[str, Any]] = []

    def scheduler() -> tuple[Finding, ...]:
        installed = services.scheduler(client)
        if installed.where:
            places = ", ".join(installed.where)
            versions = ", ".join(filter(None, installed.versions))
            report.facts["Scheduler"] = f"{places} ({versions or 'no tag'})"
            report.facts["Scheduler names"] = ", ".join(installed.names)

        ours.update(installed.names)
        policies.append(installed.policy)
        elected.append(installed.lease)
        if installed.settings is not None:
            settings.append(installed.settings)

        return installed.findings

    report.look("the scheduler's Deployment", scheduler)
    lease_name, is_expected = elected[-1]
    report.look(
        "the Lease",
        lambda: _led(
            report,
            client,
            Place(system, lease_name, account),
            is_expected=is_expected,
        ),
    )
    report.look("Events of all namespaces", lambda: leader.rivals(client))
    serving: list[str] = []

    def definitions() -> Iterator[Finding]:
        serving.extend(services.serving_gangs(client))
        return services.definitions(serving)

    report.look("definitions of PodGroups", definitions)
    report.look("the scheduler's rights", lambda: rights.lacking(client, system, account, serving))
    if settings:
        report.look(
            "the setting provisioning",
            lambda: provisioning.unmatched(client, system, account, settings[-1]),
        )

    report.look("owners of definitions", lambda: services.without_status(client, serving))
    report.look("APIServices", lambda: services.unavailable(client.items(services.API_SERVICES)))
    everything: list[Pod] = []

    def read_pods() -> tuple[Finding, ...]:
        everything.extend(pods_at(client, "/api/v1/pods"))
        return ()

    report.look("pods of all namespaces", read_pods)
    report.look("nodes", lambda: nodes.lost(client, everything))
    if everything:
        # Without a Deployment (a daemon outside the cluster), the stamps of its binds show which
        # names it serves.
        ours |= {pod.scheduler_name for pod in everything if pod.permitted is not None}
        _look_at_pods(report, client, everything, ours)
        report.findings += of_pods.shared_nodes(everything, ours, policies[-1])
        report.look("PodGroups of all namespaces", lambda: _missing(client, everything, serving))
        report.look(
            "the scheduler's rights to read owners",
            lambda: rights.lacking_for_owners(client, system, account, everything),
        )
        report.look(
            "nodes and PodDisruptionBudgets of all namespaces",
            lambda: autoscalers.breakable(client, everything),
        )

    return report


def _led(
    report: Report,
    client: BlockingClient,
    place: Place,
    *,
    is_expected: bool,
) -> Sequence[Finding]:
    """Whether nobody leads; who leads is a fact."""
    lease = leader.read(client, place.namespace, place.lease)
    findings = list(leader.unled(client, place, lease, is_expected=is_expected))
    is_led = not any(finding.check == leader.CHECK for finding in findings)

    if lease is not None and is_led:
        report.facts["Leader"] = lease.holder

    return findings


def _look_at_pods(
    report: Report,
    client: BlockingClient,
    pods: Sequence[Pod],
    ours: Collection[str],
) -> None:
    """Add what is said, or not said, about waiting pods."""
    report.look("pods without a word", lambda: _unserved(client, pods, ours))
    # A dead leader is named already, and is why.
    if not any(finding.check in {leader.CHECK, "scheduler"} for finding in report.findings):
        leads = report.facts.get("Leader", "")
        report.findings += of_pods.unreported(pods, ours, leads, _now_s(client))

    report.findings += of_pods.refused(pods)


def _now_s(client: BlockingClient) -> float:
    """The time, by the clock that has written the ages of pods if it is known."""
    return client.answered_s or time.time()


def _unserved(
    client: BlockingClient,
    pods: Sequence[Pod],
    ours: Collection[str],
) -> Iterator[Finding]:
    """Findings about schedulers that do not run. Pods that were just created are read again, since
    a scheduler needs a moment for its first word.
    """
    served = of_pods.served(pods, ours)
    waiting_pods = [pod for pod in of_pods.silent(pods) if pod.scheduler_name not in served]
    now_s = _now_s(client)

    if any(now_s - pod.creation_s < of_pods.QUIET_S for pod in waiting_pods):
        time.sleep(of_pods.QUIET_S)
        names = {pod.scheduler_name for pod in waiting_pods}
        pods_later = [pod for name in sorted(names) for pod in _of_scheduler(client, name)]

        served |= of_pods.served(pods_later, ())
        uids = {pod.uid for pod in waiting_pods}
        waiting_pods = [
            pod
            for pod in of_pods.silent(pods_later)
            if pod.uid in uids and pod.scheduler_name not in served
        ]

    yield from of_pods.unserved(waiting_pods, served)


def _of_scheduler(client: BlockingClient, name: str) -> Iterator[Pod]:
    """The pods with this schedulerName. Raises Fault."""
    value = re.sub(r"([\\,=])", r"\\\1", name)
    return pods_at(client, "/api/v1/pods", fieldSelector=f"spec.schedulerName={value}")


def _missing(client: BlockingClient, pods: list[Pod], serving: list[str]) -> Iterator[Finding]:
    existing = {X_K8S: set[str](), SIGS: set[str]()}
    for api_group, version in ((X_K8S, "v1alpha1"), (SIGS, "v1alpha1"), (VOLCANO, "v1beta1")):
        if api_group in serving:
            missing = (
                item["metadata"] for item in client.items(f"/apis/{api_group}/{version}/podgroups")
            )
            existing[api_group] = {
                f"{metadata['namespace']}/{metadata['name']}" for metadata in missing
            }

    return of_pods.missing_pod_groups(pods, existing)


def _told(report: Report) -> list[Line | str]:
    number = len(report.findings)
    first = f"{counted(number, 'finding')}." if number else "Nothing is found."
    lines: list[Line | str] = [
        [Cell(first, "bold red" if number else "bold green")],
        "",
        *facts(report.facts),
    ]

    for finding in report.findings:
        lines += [
            "",
            [Cell(f"{finding.check}: ", "bold yellow"), finding.sentence],
            f"  To do: {finding.todo}",
        ]

    if report.unchecked:
        lines += [
            "",
            "Not checked:",
            *(f"  {what}: {why}" for what, why in report.unchecked.items()),
        ]

    return lines
