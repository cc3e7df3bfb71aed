"""Answers that are asked for one by one: a gang's detail, the health, and what would help.

Invariant: each is asked of the API server with the permissions of the user, so that it has nothing
that a command would not show.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from gangsched.kube.http.faults import NOT_FOUND, ApiFault, Fault
from kubectl_gangsched import from_api, from_pods
from kubectl_gangsched.advice import helps, next_of, not_created
from kubectl_gangsched.history import history_of
from kubectl_gangsched.outputs import HistoryOutput, PlanOutput
from kubectl_gangsched.page.document import Detail, Health, PageDomain, PageEvent
from kubectl_gangsched.page.from_snapshot import detail
from kubectl_gangsched.page.live.feed import Feed
from kubectl_gangsched.page.rows import seconds
from kubectl_gangsched.plan.command import plan_of
from kubectl_gangsched.session import CannotAnswer, Session
from kubectl_gangsched.snapshot.pages import health_of
from kubectl_gangsched.target import GANG, Target, is_name
from kubectl_gangsched.terminal import clean, sentence

HEALTH_S = 30.0
"""How long the findings are kept: they cost fifty requests."""


class Helps(msgspec.Struct, rename="camel"):
    """What would let a gang start now, and who holds what it lacks."""

    suggestions: list[str]
    holders: str


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    gang: str = ""
    manifest: str = ""


_question = msgspec.json.Decoder(_Question)


class Questions:
    """Asks as one user."""

    def __init__(self, session: Session, feed: Feed) -> None:
        """Nothing is asked yet."""
        self._session = session
        self._feed = feed
        self._health: tuple[float, Health] | None = None

    def detail(self, key: str) -> Detail:
        """The detail of a gang by its id. Raises Fault and CannotAnswer."""
        session, name = self._named(key)
        with self._feed.lock:
            found = detail(self._feed.cluster, key, time.time())

        if found.source == from_api.SOURCE:
            self._complete(session, name, found)

        found.not_created = clean(sentence(self._not_created(session, name)))
        try:
            _put_events(found, history_of(session, Target(GANG, name)))
        except (CannotAnswer, Fault) as refusal:
            found.events_from = clean(str(refusal))

        return found

    def health(self) -> Health:
        """The findings of `doctor`, a while old at most. Raises Fault."""
        now_s = time.monotonic()
        if self._health is None or now_s > self._health[0] + HEALTH_S:
            self._health = now_s, health_of(self._session)

        return self._health[1]

    def ask(self, body: bytes) -> Helps | PlanOutput:
        """The answer to a question of the page. Raises Fault and CannotAnswer."""
        try:
            question = _question.decode(body)
        except msgspec.MsgspecError as error:
            raise CannotAnswer(f"The question is not understood: {error}.") from error

        if bool(question.gang) == bool(question.manifest):
            raise CannotAnswer("A question has either a gang or a manifest.")

        if question.manifest:
            return plan_of(self._session, question.manifest)

        session, name = self._named(question.gang)
        suggestions, holders = helps(session, session.namespace, name)
        return Helps([clean(sentence(text)) for text in suggestions], clean(sentence(holders)))

    def _named(self, key: str) -> tuple[Session, str]:
        """The session for the namespace of a gang, and its name."""
        namespace, _, name = key.partition("/")
        if not is_name(name):
            raise CannotAnswer(f'"{clean(key)}" is not the id of a gang.')

        return self._session.within(namespace), name

    def _complete(self, session: Session, name: str, found: Detail) -> None:
        """Add what a GET of the gang shows and a list does not: its domains."""
        try:
            story = from_api.gang_named(session.client, session.namespace, name)
        except ApiFault as fault:
            if fault.status == NOT_FOUND:
                return

            raise

        found.next = clean(sentence(next_of(story)))
        found.domains = []
        for domain in story.domains:
            refuted_by = clean(domain.refuted_by)
            found.domains.append(
                PageDomain(clean(domain.domain), domain.holds, domain.lacks, refuted_by)
            )

    def _not_created(self, session: Session, name: str) -> str:
        with self._feed.lock:
            cluster = self._feed.cluster
            key = f"{session.namespace}/{name}"
            pods = cluster.members.of(key)
            body = cluster.pod_groups.get(key)

        story = from_pods.gang_story(key, pods, body, time.time())
        if story.min_member is None or story.total >= story.min_member:
            return ""

        return not_created(session, story)


def _put_events(found: Detail, history: HistoryOutput) -> None:
    found.events_from = "the leader" if not history.instead else f"Events: {history.instead}"
    found.events_since_s = seconds(history.complete_since)
    for entry in history.entries:
        at_s = seconds(entry.last_time)
        if at_s is None:
            continue

        event = PageEvent(at_s, clean(entry.what), times=entry.times, message=clean(entry.message))
        if entry.times > 1:
            event.first_s = seconds(entry.first_time)

        found.events.append(event)


def encoded(answer: Any) -> bytes:
    """An answer as JSON."""
    return msgspec.json.encode(answer)
