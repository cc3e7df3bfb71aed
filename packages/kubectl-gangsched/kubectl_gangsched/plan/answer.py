"""Whether a gang would start now, from the API or from a local plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangsched.model.reasons import Reason
from gangsched.model.text import counted
from kubectl_gangsched.from_api import domains
from kubectl_gangsched.outputs import PrintedAssignment, PrintedKind, PrintedPlan
from kubectl_gangsched.plan.manifests import ManifestGang
from kubectl_gangsched.story import DomainStory, in_domains, printed_domains
from kubectl_gangsched.terminal import Cell, Line, columns, sentence


@dataclass(slots=True)
class PlanAnswer:
    """The answer for one gang. `nodes` are kinds of nodes with their number, `assignments` (pod
    set, node, pods), and `domains` the best domains of required levels.

    `fits` is also true if other pods would be evicted first; the message then says so.
    """

    fits: bool
    reason: str
    message: str
    nodes: list[tuple[str, int]] = field(default_factory=list)
    assignments: list[tuple[str, str, int]] = field(default_factory=list)
    preempts: list[str] = field(default_factory=list)
    suggestions: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    domains: list[DomainStory] = field(default_factory=list)


def of_review(status: Mapping[str, Any]) -> PlanAnswer:
    """Result of a PlacementReview."""
    nodes = []
    for entry in status.get("nodes") or ():
        number = int(entry.get("count") or 0)
        nodes.append((str(entry.get("kind")), number))

    assignments = []
    for entry in status.get("assignments") or ():
        number = int(entry.get("count") or 0)
        assignments.append((str(entry.get("podSet")), str(entry.get("node")), number))

    return PlanAnswer(
        fits=bool(status.get("fits")),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        nodes=nodes,
        assignments=assignments,
        preempts=[_preempted(entry) for entry in status.get("preempts") or ()],
        suggestions=[str(entry) for entry in status.get("suggestions") or ()],
        problems=[str(entry) for entry in status.get("problems") or ()],
        domains=domains(status),
    )


def printed_plan(wanted: ManifestGang, namespace: str, answer: PlanAnswer) -> PrintedPlan:
    """The answer for `-o json`."""
    kinds = []
    for kind, number in answer.nodes:
        kinds.append(PrintedKind(kind=kind, count=number))

    assignments = []
    for pod_set, node, number in answer.assignments:
        assignments.append(PrintedAssignment(pod_set=pod_set, node=node, count=number))

    return PrintedPlan(
        gang=wanted.name,
        namespace=namespace,
        pods=wanted.pods,
        fits=answer.fits,
        reason=answer.reason,
        message=answer.message,
        nodes=kinds,
        assignments=assignments,
        preempts=answer.preempts,
        suggestions=answer.suggestions,
        problems=answer.problems,
        domains=printed_domains(answer.domains),
    )


def lines(wanted: ManifestGang, namespace: str, answer: PlanAnswer) -> list[Line | str]:
    """The answer as text; its first line is yes or no."""
    headline = sentence(_headline(wanted, namespace, answer))
    style = "bold green" if answer.fits else "bold yellow"
    printed: list[Line | str] = [[Cell(headline, style)]]

    printed += [f"  {number} × {kind}" for kind, number in answer.nodes]
    printed += [f"  It would have {victim} evicted." for victim in answer.preempts]
    printed += [f"  What would help: {sentence(suggestion)}" for suggestion in answer.suggestions]
    printed += [f"  Problem: {sentence(problem)}" for problem in answer.problems]

    if answer.fits and answer.message and answer.reason == Reason.PREEMPTING:
        printed.append(f"  {sentence(answer.message)}")

    printed += in_domains(answer.domains)
    if answer.assignments:
        rows = [(pod_set, node, str(number)) for pod_set, node, number in answer.assignments]
        header = ("PODS OF", "NODE", "NUMBER")
        printed.append("")
        printed += columns(header, rows)

    return printed


def _headline(wanted: ManifestGang, namespace: str, answer: PlanAnswer) -> str:
    pods = counted(wanted.pods, "pod")
    name = f"{namespace}/{wanted.name}, as one gang of {pods},"
    if wanted.declared:
        name = f"Gang {namespace}/{wanted.name}"

    if not answer.fits:
        return f"No: {name} would not start now: {answer.message}"

    when = "now"
    if answer.reason == Reason.PREEMPTING:
        when = "once others are evicted for it"

    # Without kinds of nodes, each node is named by an assignment.
    nodes = sum(number for _, number in answer.nodes)
    if not nodes:
        nodes = len({node for _, node, _ in answer.assignments})

    where = f", its {pods} on {counted(nodes, 'node')}" if nodes else ""
    return f"Yes: {name} would start {when}{where}"


def _preempted(victim: Mapping[str, Any]) -> str:
    name = ""
    if victim.get("name"):
        name = f" {victim.get('namespace')}/{victim['name']}"

    number = int(victim.get("count") or 1)
    return f"{victim.get('kind')}{name} ({counted(number, 'pod')})"
