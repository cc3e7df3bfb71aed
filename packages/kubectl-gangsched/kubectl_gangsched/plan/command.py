"""`plan -f FILE`: a PlacementReview for each gang of the file, or else a local plan.

Invariant: nothing is created in the cluster. Each gang is evaluated by itself. If the API is not
served, a user who may list nodes and pods gets the same plan from a snapshot; the output says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gangsched.console import DONE
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault
from kubectl_gangsched.outputs import PlanOutput
from kubectl_gangsched.plan import manifests
from kubectl_gangsched.plan.answer import PlanAnswer, lines, of_review, printed_plan
from kubectl_gangsched.plan.manifests import ManifestGang
from kubectl_gangsched.session import FOUND, GANGS, CannotAnswer, Session
from kubectl_gangsched.terminal import Line, Output, write, write_value
from kubectl_gangsched.waiting import INSTALL

OURS = "gangsched"


def plan(session: Session, path: Path, minimum: int | None, output: Output) -> int:
    """Print whether each gang of the file would start; return 1 if one would not. Raises Fault and
    CannotAnswer.
    """
    gangs = manifests.gangs(manifests.read(path))
    for gang in gangs:
        gang.min_member = minimum if minimum is not None else gang.min_member

    answers, instead = _answers(session, gangs)
    notes = [note for gang in gangs for note in _notes(gang)]

    if output is not Output.TEXT:
        write_value(_printed(session, gangs, answers, instead), output)
    else:
        shown: list[Line | str] = []
        for gang, answer in zip(gangs, answers, strict=True):
            shown += [
                *([""] if shown else []),
                *lines(gang, gang.namespace or session.namespace, answer),
            ]

        shown += [line for note in notes for line in ("", f"Note: {note}")]
        write([*shown, *(["", f"This plan was made here: {instead}."] if instead else [])])

    if all(answer.fits for answer in answers):
        return DONE

    return FOUND


def plan_of(session: Session, text: str) -> PlanOutput:
    """The plan of a manifest. Raises Fault and CannotAnswer."""
    gangs = manifests.gangs(manifests.parsed(text, "The manifest"))
    answers, instead = _answers(session, gangs)
    return _printed(session, gangs, answers, instead)


def _printed(
    session: Session,
    gangs: list[ManifestGang],
    answers: list[PlanAnswer],
    instead: str,
) -> PlanOutput:
    printed = []
    for gang, answer in zip(gangs, answers, strict=True):
        namespace = gang.namespace or session.namespace
        printed.append(printed_plan(gang, namespace, answer))

    notes = [note for gang in gangs for note in _notes(gang)]
    return PlanOutput(gangs=printed, notes=notes, instead=instead)


def _answers(session: Session, gangs: list[ManifestGang]) -> tuple[list[PlanAnswer], str]:
    """The answers, and why they do not come from the API; "" if they do."""
    instead = _why_not_the_api(session)
    if not instead:
        return [_review(session, gang) for gang in gangs], ""

    from kubectl_gangsched.plan.local import plan_here, priorities
    from kubectl_gangsched.snapshot.take import take

    try:
        taken = take(session.client)
    except CannotAnswer as refusal:
        lacks = str(refusal).partition(", and a snapshot")[0]
        raise CannotAnswer(
            f"{instead[:1].upper()}{instead[1:]}, and to plan without it you need more rights"
            f" ({lacks}); {INSTALL}."
        ) from refusal

    values = priorities(session.client)
    return [
        plan_here(taken, gang, gang.namespace or session.namespace, values) for gang in gangs
    ], instead


def _why_not_the_api(session: Session) -> str:
    (served,) = session.client.gets([GANGS])
    if isinstance(served, dict):
        names = {resource.get("name") for resource in served.get("resources") or ()}
        if "placementreviews" in names:
            return ""

        return "this cluster's gangs API has no placement reviews"

    if isinstance(served, ApiFault) and served.status in {NOT_FOUND, FORBIDDEN}:
        return "this cluster does not serve placement reviews (visibility.gangsched.dev)"

    return f"the gangs API does not answer ({str(served).rstrip('.')})"


def _review(session: Session, gang: ManifestGang) -> PlanAnswer:
    settings: dict[str, Any] = {"name": gang.name}
    if gang.min_member is not None or not gang.declared:
        settings["min"] = gang.min_member if gang.min_member is not None else gang.pods

    body = {
        "apiVersion": "visibility.gangsched.dev/v1alpha1",
        "kind": "PlacementReview",
        "spec": {
            "gang": settings,
            "podSets": [
                {
                    "name": template_set.name,
                    "count": template_set.count,
                    "template": template_set.template,
                }
                for template_set in gang.pod_sets
            ],
        },
    }
    namespace = gang.namespace or session.namespace
    path = f"{GANGS}/namespaces/{quote(namespace, safe='')}/placementreviews"
    answer = of_review(session.client.json("POST", path, body)["status"])
    return _beside_itself(answer, f"gang {namespace}/{gang.name}")


def _beside_itself(answer: PlanAnswer, gang: str) -> PlanAnswer:
    """The answer about a gang that exists already, which the API gives under a name with an ending:
    in the user's words, with what that means.
    """
    ending = rf"(?<={re.escape(gang)})(-review)+(?![\w.-])"
    answer.message, times = re.subn(ending, "", answer.message)
    if times:
        answer.problems.append(f"{gang} exists already: this is planned as a second one beside it")

    return answer


def _notes(gang: ManifestGang) -> list[str]:
    """Reasons for which the scheduler will never look at the pods."""
    names = set()
    for template_set in gang.pod_sets:
        names.add(
            str(template_set.template.get("spec", {}).get("schedulerName") or "default-scheduler")
        )

    notes: list[str] = []
    for name in sorted(names - {OURS}):
        notes.append(
            f'pods of {gang.name} have schedulerName "{name}": gangsched schedules them only under'
            f' one of its own names, usually "{OURS}".'
        )

    return notes
