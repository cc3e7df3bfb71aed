"""StampGuard: whether an admission policy lets only gangsched write stamps (semantics B4).

Invariant: the answer is yes only for a policy that was read, that denies, covers every object and
fails closed. Its exceptions are not examined, because only administrators may write
ValidatingAdmissionPolicies. If the policy is missing or may not be read, stamps are unguarded.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault, Fault
from gangsched.kube.ports import RestClient, Runtime, Sink
from gangsched.kube.read.decode import seconds
from gangsched.model.protocol import StampsGuarded

POLICY = "gangsched-stamp"
ROOT = "/apis/admissionregistration.k8s.io/v1"
PATHS = (
    f"{ROOT}/validatingadmissionpolicies/{POLICY}",
    f"{ROOT}/validatingadmissionpolicybindings/{POLICY}",
)
EVERY_S = 60.0
RETRY_S = 5.0


class _StampedMeta(msgspec.Struct, rename="camel"):
    creation_timestamp: str = ""
    deletion_timestamp: str = ""


class _StampedSpec(msgspec.Struct, rename="camel"):
    policy_name: str = ""
    failure_policy: str = "Fail"
    validation_actions: tuple[str, ...] = ()
    param_ref: Mapping[str, object] | None = None
    match_resources: Mapping[str, object] | None = None


class _Object(msgspec.Struct):
    metadata: _StampedMeta = msgspec.field(default_factory=_StampedMeta)
    spec: _StampedSpec = msgspec.field(default_factory=_StampedSpec)


class StampGuard:
    """Reports its result once, and again on changes; `run` never returns."""

    def __init__(self, client: RestClient, sink: Sink, *, runtime: Runtime) -> None:
        self._client = client
        self._sink = sink
        self._runtime = runtime

        # -1 differs from every answer, so the first one is always sent.
        self._told: int | None = -1  # no answer yet
        #: The API server was asked once, and its answer, if it gave one, was reported.
        self.is_asked = False

    async def run(self) -> None:
        """Check once a minute; more often while the API server does not answer."""
        while True:
            try:
                since_s = await self.guarded_since_s()
            except Fault:
                self.is_asked = True
                await self._runtime.sleep(RETRY_S)
                continue

            if since_s != self._told:
                self._told = since_s
                self._sink(StampsGuarded(since_s))

            self.is_asked = True
            await self._runtime.sleep(EVERY_S)

    async def guarded_since_s(self) -> int | None:
        """Wall second since which both the policy and its binding exist; None if stamps are not
        guarded.

        Raises Fault if that cannot be determined now.
        """
        answers = [await self._get(path) for path in PATHS]
        policy, binding = answers
        if (
            policy is None
            or binding is None
            or any(guard.metadata.deletion_timestamp for guard in (policy, binding))
        ):
            return None

        is_denied = binding.spec.policy_name == POLICY and "Deny" in binding.spec.validation_actions
        is_whole = binding.spec.match_resources is None and binding.spec.param_ref is None
        if not (is_denied and is_whole and policy.spec.failure_policy == "Fail"):
            return None

        # The later of both: only since then has any write been checked.
        return max(seconds(guard.metadata.creation_timestamp) for guard in (policy, binding))

    async def _get(self, path: str) -> _Object | None:
        try:
            return msgspec.json.decode(await self._client.request("GET", path), type=_Object)
        except ApiFault as fault:
            if fault.status in {FORBIDDEN, NOT_FOUND}:
                return None

            raise
        except msgspec.DecodeError:
            return None
