"""A command's view of the cluster: client, namespace, and errors as one sentence."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, SERVER_ERROR, UNAUTHORIZED, ApiFault, Fault
from gangsched.kube.http.plain_credentials import access
from gangsched.kubectl.terminal import clean

DONE, FOUND, CANNOT, BUG, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes: it is so; the answer is no, or something was found; there is no answer; a bug; ctrl-C."""

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
TRACEBACK = "GANGSCHED_TRACEBACK"

_cannot = re.compile(
    r'User "(?P<user>.*?)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)" in API group "(?P<group>[^"]*)"'
)


class CannotAnswer(Exception):  # noqa: N818  (a sentence for the user, no error of ours)
    """The command cannot answer; `str()` is one sentence that says why."""


class Session:
    """One API server, as the kubeconfig's user; `namespace` is the one that the command inspects."""

    def __init__(
        self, namespace: str | None = None, kubeconfig: Path | None = None, context: str | None = None
    ) -> None:
        """Sends no request. Raises Misconfigured."""
        self.client = BlockingClient(access(kubeconfig, context))
        self.namespace = namespace or self.client.access.namespace


def guarded(work: Callable[[], int]) -> int:
    """The exit code of `work`; exceptions become one sentence on stderr."""
    try:
        return work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # whoever read it wants no more
        return DONE
    except (CannotAnswer, Fault) as error:
        text, code = told(error) if isinstance(error, Fault) else str(error), CANNOT
    except msgspec.MsgspecError as error:
        text, code = f"An answer of the API server is not understood: {error}.", CANNOT
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        text = f"a bug: {type(error).__name__}: {error}; please report it with what {TRACEBACK}=1 prints"
        code = BUG
    sys.stderr.write(f"kubectl-gangsched: {clean(text)}\n")
    return code


def told(fault: Fault) -> str:
    """Describe a fault in one sentence, which names the missing permission if the API server refused the request."""
    if not isinstance(fault, ApiFault):
        return str(fault)
    if fault.status == UNAUTHORIZED:
        return "The API server does not accept the credentials of your kubeconfig: log in again."
    if fault.status == FORBIDDEN:
        return f"{lacking(fault)}."
    return f"The API server refused: {fault}"


def lacking(fault: ApiFault) -> str:
    """The permission that is missing according to a refusal, without a full stop."""
    found = _cannot.search(fault.message)
    if found is None:
        return f"You may not do this: {str(fault).rstrip('.')}"
    group = f" in {found['group']}" if found["group"] else ""
    scope = re.search(r'in the namespace "([^"]*)"', fault.message)
    where = f" in namespace {scope[1]}" if scope else " in the whole cluster"
    return f"You (user {found['user']}) may not {found['verb']} {found['resource']}{group}{where}"


def is_unserved(fault: Fault) -> bool:
    """Whether the fault means that the gangs API itself, and not an object, is missing or unreachable."""
    if not isinstance(fault, ApiFault):
        return False
    return fault.status >= SERVER_ERROR or (
        # A missing object is named in quotes; a missing API is "the server could not find the requested resource".
        fault.status == NOT_FOUND and not (fault.is_status and '"' in fault.message)
    )


def serves_gangs(session: Session) -> bool:
    """Whether the gangs API exists. An answer 403 does not prove it, because the API server checks permissions
    first.
    """
    (found,) = session.client.gets([GANGS])
    return not (isinstance(found, ApiFault) and found.status == NOT_FOUND)
