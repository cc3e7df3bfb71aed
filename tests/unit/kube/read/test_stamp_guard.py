"""Whether an admission policy guards stamps: what is read of it, and how often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.ports import Runtime
from gangsched.kube.read.stamp_guard import EVERY_S, PATHS, RETRY_S, StampGuard
from gangsched.model.protocol import Message, StampsGuarded
from tests.unit.kube.fakes import Answer, FakeRequests, FakeTime, settle

POLICY: dict[str, Any] = {
    "metadata": {"creationTimestamp": "1970-01-01T00:01:00Z"},
    "spec": {"failurePolicy": "Fail", "matchConstraints": {}, "validations": []},
}
BINDING: dict[str, Any] = {
    "metadata": {"creationTimestamp": "1970-01-01T00:02:00Z"},
    "spec": {"policyName": "gangsched-stamp", "validationActions": ["Deny"]},
}


def merged(old: dict[str, Any], **new: Any) -> dict[str, Any]:
    """An object with other metadata or another spec."""
    return {key: {**value, **new.get(key, {})} for key, value in old.items()}


def answers(policy: Answer, binding: Answer) -> FakeRequests:
    """An API server with these two objects."""
    of = dict(zip(PATHS, (policy, binding), strict=True))
    return FakeRequests(lambda sent: of[sent.path])


CASES: dict[str, tuple[Answer, Answer, int | None]] = {
    "both": (POLICY, BINDING, 120),
    "no policy": (ApiFault(404, "NotFound", "no"), BINDING, None),
    "no binding": (POLICY, ApiFault(404, "NotFound", "no"), None),
    "no right": (ApiFault(403, "Forbidden", "no"), BINDING, None),
    "it only warns": (POLICY, merged(BINDING, spec={"validationActions": ["Warn", "Audit"]}), None),
    "it audits, too": (POLICY, merged(BINDING, spec={"validationActions": ["Audit", "Deny"]}), 120),
    "for some namespaces": (
        POLICY,
        merged(BINDING, spec={"matchResources": {"namespaceSelector": {}}}),
        None,
    ),
    "of another policy": (POLICY, merged(BINDING, spec={"policyName": "other"}), None),
    "it fails open": (merged(POLICY, spec={"failurePolicy": "Ignore"}), BINDING, None),
    "it is being deleted": (
        merged(POLICY, metadata={"deletionTimestamp": "1970-01-01T00:03:00Z"}),
        BINDING,
        None,
    ),
    "a page of a gateway": ({"metadata": "page"}, BINDING, None),
}


@pytest.mark.parametrize("case", CASES)
async def test_only_a_policy_that_denies_everywhere_guards(case: str) -> None:
    """B4: the stamp is trusted only where nobody else can write it."""
    policy, binding, since_s = CASES[case]
    guard = StampGuard(answers(policy, binding), lambda _: None, runtime=Runtime())
    assert await guard.guarded_since_s() == since_s


async def test_it_is_told_when_it_changes() -> None:
    """Once a minute it is read again; while the API server is away what was known holds."""
    clock = FakeTime()
    told: list[Message] = []
    now: list[Answer] = [POLICY]
    requests = FakeRequests(lambda sent: now[0] if sent.path == PATHS[0] else BINDING)
    guard = StampGuard(requests, told.append, runtime=Runtime(sleep=clock.sleep))
    task = asyncio.create_task(guard.run())
    await settle()
    expected: list[Message] = [StampsGuarded(120)]
    assert told == expected
    now[0] = Unreachable("No answer.")
    await clock.advance(EVERY_S)
    await clock.advance(RETRY_S)
    assert told == expected
    now[0] = ApiFault(404, "NotFound", "no")
    await clock.advance(RETRY_S)
    assert told == [*expected, StampsGuarded(None)]
    await clock.advance(EVERY_S)
    assert len(told) == 2
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
