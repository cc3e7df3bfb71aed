"""SubjectAccessReviews: asked once in ten seconds, and never guessed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gangsched.visibility.access.authorization import AT_ONCE, MOST, Attributes, Authorizer
from gangsched.visibility.access.front_proxy import User
from gangsched.visibility.ports import ApiAnswer, Json
from gangsched.visibility.statuses import RequestRefused

ALICE = User("alice", "7", ("team",), (("scope", ("a",)),))
LIST = Attributes("list", "gangs", "ns")


class Cluster:
    """Answers reviews; `asked` are their specs."""

    def __init__(self, answer: ApiAnswer) -> None:
        self.answer, self.now_s = answer, 0.0
        self.asked: list[Json] = []
        self.authorizer = Authorizer(self, lambda: self.now_s)

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        assert body is not None
        self.asked.append(body["spec"])
        return self.answer


def answered(**status: Any) -> ApiAnswer:
    """A review as stored."""
    return ApiAnswer(201, {"status": status})


async def test_an_answer_is_remembered_for_ten_seconds() -> None:
    """Allowed and denied alike; another name, verb or user is another question."""
    for allowed in (True, False):
        cluster = Cluster(answered(allowed=allowed))
        for now_s in (0.0, 9.9):
            cluster.now_s = now_s
            assert await cluster.authorizer.allows(ALICE, LIST) is allowed
        assert len(cluster.asked) == 1
        cluster.now_s = 10.1
        await cluster.authorizer.allows(ALICE, LIST)
        await cluster.authorizer.allows(ALICE, LIST._replace(namespace="other"))
        await cluster.authorizer.allows(User("bob"), LIST)
        assert len(cluster.asked) == 4


async def test_the_review_says_who_wants_what() -> None:
    """The user as the front proxy named it, and the resource or the path."""
    cluster = Cluster(answered(allowed=True))
    await cluster.authorizer.check(ALICE, LIST)
    await cluster.authorizer.check(ALICE, Attributes("get", path="/apis"))
    who = {"user": "alice", "groups": ["team"], "uid": "7", "extra": {"scope": ["a"]}}
    what = {
        "verb": "list",
        "resource": "gangs",
        "namespace": "ns",
        "group": "visibility.gangsched.dev",
    }
    assert cluster.asked == [
        {**who, "resourceAttributes": {**what, "version": "v1alpha1"}},
        {**who, "nonResourceAttributes": {"path": "/apis", "verb": "get"}},
    ]


async def test_a_refusal_is_worded_as_by_the_api_server() -> None:
    """403, reason Forbidden."""
    with pytest.raises(RequestRefused) as refused:
        await Cluster(answered(allowed=False)).authorizer.check(ALICE, LIST)
    text = (
        'User "alice" cannot list resource "gangs" in API group "visibility.gangsched.dev" in the'
        ' namespace "ns"'
    )
    assert str(refused.value) == f"gangs.visibility.gangsched.dev is forbidden: {text}"
    assert refused.value.body()["reason"] == "Forbidden"


@pytest.mark.parametrize(
    "answer",
    [ApiAnswer(0), ApiAnswer(403), ApiAnswer(500, "x"), ApiAnswer(201, {}), ApiAnswer(201, [])],
)
async def test_what_cannot_be_asked_is_refused_and_asked_again(answer: ApiAnswer) -> None:
    """500; and the failure is not remembered."""
    cluster = Cluster(answer)
    for number in (1, 2):
        with pytest.raises(RequestRefused) as refused:
            await cluster.authorizer.check(ALICE, LIST)
        assert refused.value.code == 500
        assert len(cluster.asked) == number


async def test_an_explicit_denial_and_odd_values_deny() -> None:
    """`denied` wins over `allowed`, and only true is true."""
    for status in ({"allowed": True, "denied": True}, {"allowed": "true"}, {}):
        assert not await Cluster(answered(**status)).authorizer.allows(ALICE, LIST)


async def test_masters_are_not_asked_about_and_memory_is_bounded() -> None:
    """The API server comes as system:masters; thousands of questions are forgotten, the oldest
    first.
    """
    cluster = Cluster(answered(allowed=True))
    assert await cluster.authorizer.allows(User("proxy", groups=("system:masters",)), LIST)
    assert cluster.asked == []
    for number in range(MOST + 1):
        await cluster.authorizer.allows(ALICE, LIST._replace(name=str(number)))
    await cluster.authorizer.allows(ALICE, LIST._replace(name="0"))
    assert len(cluster.asked) == MOST + 2


class Slow(Cluster):
    """Answers once `goes_on` is set; `most` were asked at once."""

    def __init__(self) -> None:
        super().__init__(answered(allowed=True))
        self.goes_on = asyncio.Event()
        self.under_way = self.most = self.broken_off = 0

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        finally:
            self.under_way -= 1
        return await super().__call__(method, path, body)


async def test_one_question_is_asked_once_and_not_broken_off() -> None:
    """Of many who want to know the same one asks, and who gives up leaves the answer to the others,
    and to be known.
    """
    cluster = Slow()
    same = [asyncio.create_task(cluster.authorizer.allows(ALICE, LIST)) for _ in range(20)]
    await asyncio.sleep(0)
    same[0].cancel()
    await asyncio.sleep(0)
    cluster.goes_on.set()
    assert await asyncio.gather(*same[1:]) == [True] * 19
    assert (len(cluster.asked), cluster.broken_off) == (1, 0)


async def test_few_questions_are_asked_at_once() -> None:
    """However many names somebody thinks of."""
    cluster = Slow()
    many = [
        asyncio.create_task(cluster.authorizer.allows(ALICE, LIST._replace(name=str(number))))
        for number in range(100)
    ]
    for _ in range(5):  # each begins, and asks if it may
        await asyncio.sleep(0)
    cluster.goes_on.set()
    assert await asyncio.gather(*many) == [True] * 100
    assert cluster.most == AT_ONCE
