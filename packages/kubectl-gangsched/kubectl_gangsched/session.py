"""A command's view of the cluster: client, namespace, and errors as one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from gangsched.console import CANNOT, ended, lacks_scheduler
from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import (
    FORBIDDEN,
    NOT_FOUND,
    SERVER_ERROR,
    UNAUTHORIZED,
    ApiFault,
    Fault,
)
from gangsched.kube.http.plain_credentials import NO_OVERRIDES, Access, Overrides, access
from gangsched.snapshots.file import SnapshotError
from kubectl_gangsched.terminal import clean, sentence

FOUND = 1
BUG = 3
"""Exit codes beside those of `console`: the answer is no, or something was found; a bug."""

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
TRACEBACK = "GANGSCHED_TRACEBACK"
LOCAL = "kubectl-gangsched[local]"
"""The plugin with the libraries of the scheduler."""

_namespace = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_cannot = re.compile(
    r'User "(?P<user>.*?)" cannot (?P<verb>[\w:-]+) resource "(?P<resource>[^"]*)" in API group'
    r' "(?P<group>[^"]*)"'
)


class CannotAnswer(Exception):  # noqa: N818  (a sentence for the user, no error of ours)
    """The command cannot answer; `str()` is one sentence that says why."""


class Session:
    """One API server, as the kubeconfig's user; `namespace` is the one that the
    command inspects.
    """

    def __init__(
        self,
        namespace: str | None = None,
        kubeconfig: Path | None = None,
        overrides: Overrides = NO_OVERRIDES,
        *,
        within_s: float | None = None,
    ) -> None:
        """Sends no request; `within_s` limits each one (`BlockingClient`). Raises Misconfigured and
        CannotAnswer.
        """
        own = access(kubeconfig, overrides)
        self.client = BlockingClient(own, within_s=within_s)
        # Of the same context, whichever is the current one by then.
        if own.context:
            overrides = replace(overrides, context=own.context)

        self._read = partial(access, kubeconfig, overrides)
        self.namespace = namespace or self.client.access.namespace
        if not _namespace.fullmatch(self.namespace):
            raise CannotAnswer(f'"{self.namespace}" cannot be the name of a namespace.')

    def read_again(self) -> Access:
        """The credentials as they are by now: tokens expire. Raises Misconfigured."""
        return self._read()

    def within(self, namespace: str) -> Session:
        """The same server and user, for another namespace. Raises CannotAnswer."""
        other = copy(self)
        other.namespace = namespace
        if not _namespace.fullmatch(namespace):
            raise CannotAnswer(f'"{namespace}" cannot be the name of a namespace.')

        return other


def guarded(work: Callable[[], int]) -> int:
    """The exit code of `work`; exceptions become one sentence on stderr."""
    return ended("kubectl-gangsched", work, _explained)


def _explained(error: Exception) -> tuple[str, int] | None:
    """The sentence and exit code of an exception; None for a bug that is to be seen as
    a traceback.
    """
    if isinstance(error, CannotAnswer | SnapshotError | Fault):
        return clean(told(error) if isinstance(error, Fault) else str(error)), CANNOT
    if isinstance(error, msgspec.MsgspecError):
        return clean(f"An answer of the API server is not understood: {error}."), CANNOT
    if os.environ.get(TRACEBACK) and not lacks_scheduler(error, LOCAL):
        return None

    return explained(error)


def explained(error: Exception) -> tuple[str, int]:
    """The sentence and exit code of an exception that no user and no server has caused."""
    if lacks := lacks_scheduler(error, LOCAL):
        return lacks, CANNOT

    text = (
        f"a bug: {type(error).__name__}: {error}; please report it with what {TRACEBACK}=1 prints"
    )
    return clean(text), BUG


def told(fault: Fault) -> str:
    """Describe a fault in one sentence, which names the missing permission if the API server
    refused the request.
    """
    if not isinstance(fault, ApiFault):
        return str(fault)
    if fault.status == UNAUTHORIZED:
        return "The API server does not accept the credentials of your kubeconfig: log in again."
    if fault.status == FORBIDDEN:
        return f"{lacking(fault)}."

    return sentence(f"The API server refused: {fault}")


def lacking(fault: ApiFault) -> str:
    """The permission that is missing according to a refusal, without a full stop."""
    match = _cannot.search(fault.message)
    if match is None:
        return f"You may not do this: {str(fault).rstrip('.')}"

    group = f" in {match['group']}" if match["group"] else ""
    scope = re.search(r'in the namespace "([^"]*)"', fault.message)
    where = f" in namespace {scope[1]}" if scope else " in the whole cluster"

    return f"You (user {match['user']}) may not {match['verb']} {match['resource']}{group}{where}"


def is_unserved(fault: Fault) -> bool:
    """Whether the fault means that the gangs API itself, and not an object, is missing or
    unreachable.
    """
    if not isinstance(fault, ApiFault):
        return False

    return fault.status >= SERVER_ERROR or (
        # A missing object is named in quotes; a missing API is "the server could not find the
        # requested resource".
        fault.status == NOT_FOUND and not (fault.is_status and '"' in fault.message)
    )


def serves_gangs(session: Session) -> bool:
    """Whether the gangs API exists. An answer 403 does not prove it, because the API server checks
    permissions first.
    """
    (served,) = session.client.gets([GANGS])
    return not (isinstance(served, ApiFault) and served.status == NOT_FOUND)
