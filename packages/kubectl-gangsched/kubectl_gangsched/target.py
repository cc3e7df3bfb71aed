"""What a user named: a gang, a pod, or the owner of pods, whose own name users know best.

Invariant: nothing is guessed. An owner whose pods are in several gangs is answered with the names
of these gangs.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gangsched.api import keys
from gangsched.api.gang_identity import gang_id
from gangsched.kube.http.faults import Fault
from gangsched.model.objects import Pod
from gangsched.model.text import counted
from kubectl_gangsched import from_pods
from kubectl_gangsched.session import CannotAnswer, Session

GANG: Final = "gang"
POD: Final = "pod"
WORDS: Final = {
    **dict.fromkeys(("gang", "gangs", "podgroup", "podgroups", "pg"), GANG),
    **dict.fromkeys(("pod", "pods", "po"), POD),
}
"""What stands before the slash, as kubectl has it; all other words are kinds of owners."""
SHORT: Final = {
    "sts": "statefulset",
    "rs": "replicaset",
    "ds": "daemonset",
    "rc": "replicationcontroller",
}
"""kubectl's short names of owners."""
NAMES_SHOWN: Final = 5
_kind = re.compile(r"[A-Za-z][A-Za-z0-9.-]*")


class Target(NamedTuple):
    """`kind` is `GANG`, `POD`, an owner's kind in lower case, or "" if only a name was given."""

    kind: str
    name: str


class Owned(NamedTuple):
    """What an owner's pods are: members of this gang, or plain, as this pod is; "" for neither."""

    gang: str
    pod: str


def parsed(target: str) -> Target:
    """NAME, pod/NAME, gang/NAME or KIND/NAME. Raises CannotAnswer."""
    word, slash, name = target.partition("/")
    if not slash and is_name(target):
        return Target("", target)

    if not is_name(name) or not _kind.fullmatch(word):
        raise CannotAnswer(
            f'"{target}" is not understood: give NAME, pod/NAME, gang/NAME or the owner of pods,'
            " such as job/NAME, and the namespace with -n."
        )

    # A kind may have its API group, as in `jobs.batch`.
    kind = word.lower().partition(".")[0]
    return Target(WORDS.get(kind, SHORT.get(kind, kind.removesuffix("s"))), name)


def is_name(text: str) -> bool:
    """Whether a request can name it: the others would ask for a list, or for another path."""
    return text not in {"", ".", ".."} and text.isprintable()


def owned(session: Session, target: Target) -> Owned:
    """What the pods are that the target controls, of any kind if it has none. Raises Fault, and
    CannotAnswer if they are several gangs.
    """
    pods = [
        pod for pod in from_pods.listed(session.client, session.namespace) if _controls(target, pod)
    ]
    gangs = sorted({ref.id.partition("/")[2] for pod in pods if (ref := gang_id(pod)) is not None})
    if len(gangs) > 1:
        shown = ", ".join(gangs[:NAMES_SHOWN]) + (", …" if len(gangs) > NAMES_SHOWN else "")
        raise CannotAnswer(
            f"The pods of {target.name} are {counted(len(gangs), 'gang')}: name one of {shown}."
        )

    if gangs:
        return Owned(gangs[0], "")

    # One that waits says more than one that runs.
    pods.sort(key=lambda pod: (bool(pod.node_name), pod.creation_s, pod.name))
    return Owned("", pods[0].name if pods else "")


def _controls(target: Target, pod: Pod) -> bool:
    """Whether it is the pod's controller, or the JobSet of the pod's Job."""
    kind = pod.controller_kind.lower().partition(".")[0]
    if pod.owner == target.name and target.kind in {"", kind}:
        return True

    of_set = pod.labels.get(keys.JOBSET_NAME) == target.name
    return of_set and target.kind in {"", "jobset"}


def not_there(session: Session, target: Target) -> str:
    """The sentence for a name that does not exist, with similar ones."""
    name = target.name
    what = {GANG: f"gang {name}", POD: f"pod {name}", "": f"gang or pod {name}"}
    where = f"in namespace {session.namespace}"
    try:
        near = from_pods.similar(session.client, session.namespace, name)
    except Fault:
        near = []

    ask = (
        f"; did you mean {' or '.join(near)}?" if near else "; another namespace is asked with -n."
    )
    if target.kind not in what:
        return f"There is no pod of {target.kind} {name} {where}{ask}"

    return f"There is no {what[target.kind]} {where}{ask}"
