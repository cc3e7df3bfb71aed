"""Planted bugs in gangs of owners: their minimum, their identity, and who asks (semantics O1 to
O8).
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from gangsched.model.owners import OwnerGangs
from gangsched.state import owner_trees
from gangsched.state.owner_gangs import WhyPlain
from tests.mutants.mutant import bug

OWNERS = "unit/state/test_owner_gangs.py"
KINDS = "unit/kube/read/test_owner_kinds.py"
REGISTER = "state.owner_gangs:OwnerGangRegister"


@bug("O3", "kube.read.resources:JOBS", KINDS)
def the_parallelism_of_a_job_is_its_minimum_for_ever(jobs: Any) -> Any:
    def always(wire: Any) -> Any:
        parallelism = wire.spec.parallelism
        return msgspec.structs.replace(
            jobs.convert(wire), minimum=1 if parallelism is None else parallelism
        )

    planted = copy.copy(jobs)
    planted.convert = always
    return planted


@bug("O4", f"{REGISTER}._update", OWNERS)
def the_first_minimum_of_an_owner_is_kept(update: Any) -> Any:
    def once(self: Any, owner: Any, now_s: float) -> None:
        asked = self._asked.get(f"{owner.namespace}/{owner.uid}")
        if asked is None or asked.owner is None:
            update(self, owner, now_s)

    return once


@bug("O2", f"{REGISTER}._ask", OWNERS)
def an_owner_is_known_by_its_name_instead_of_its_uid(ask: Any) -> Any:
    def by_name(self: Any, pod: Any, ref: Any, now_s: float) -> Any:
        uid = self._uid_of.get(f"{pod.namespace}/{ref.kind}.{ref.name}")
        return ask(self, pod, ref, now_s) if uid is None else self._asked[uid]

    return by_name


@bug("O4", "state.gangs:GangRecord.succeeded", OWNERS)
def members_that_have_succeeded_count_twice(_: Any) -> Any:
    return property(lambda self: self.start.succeeded)


@bug("O8", f"{REGISTER}.drop", OWNERS)
def an_owner_that_is_deleted_is_forgotten_with_its_minimum(drop: Any) -> Any:
    def forget(self: Any, kind: Any, uid: str) -> None:
        drop(self, kind, uid)
        for asked in self._of_kind(kind):
            if asked.uid.endswith(f"/{uid}"):
                asked.owner = None
                self._judge(asked, 0.0)

    return forget


@bug("O7", f"{REGISTER}.miss", OWNERS)
def a_right_that_is_taken_away_ends_all_gangs_of_owners(miss: Any) -> Any:
    def forget(self: Any, kind: Any, now_s: float) -> None:
        for asked in self._of_kind(kind):
            asked.owner = None
        miss(self, kind, now_s)

    return forget


@bug("O8", f"{REGISTER}._plain_because", OWNERS)
def pods_start_alone_while_their_owners_are_listed(because: Any) -> Any:
    def at_once(self: Any, asked: Any, now_s: float) -> Any:
        return WhyPlain.UNKNOWN if asked.owner is None else because(self, asked, now_s)

    return at_once


@bug("O1", "api.keys:asks_for_owner", OWNERS)
def every_owner_is_a_gang_unasked(asks: Any) -> Any:
    return lambda stated, owner_gangs: (
        asks(stated, owner_gangs) or (owner_gangs is OwnerGangs.ASKED)
    )


@bug("O6", f"{REGISTER}._report_plain", OWNERS)
def an_owner_is_told_with_each_of_its_pods(report: Any) -> Any:
    def again(self: Any, asked: Any, pod: Any) -> None:
        asked.told_reasons.clear()
        report(self, asked, pod)

    return again


@bug("O3", f"{REGISTER}._report_plain", OWNERS)
def an_owner_is_told_one_reason_for_ever(report: Any) -> Any:
    def once(self: Any, asked: Any, pod: Any) -> None:
        if not asked.told_reasons:
            report(self, asked, pod)

    return once


TREES = "unit/state/test_owner_trees.py"


@bug("O3", "state.owner_trees:OwnerTrees.place", TREES)
def each_job_of_a_job_set_starts_by_itself(place: Any) -> Any:
    def alone(self: Any, job: Any, now_s: float) -> Any:
        return place(self, job, now_s)._replace(parent="")

    return alone


@bug("O8", "state.owner_trees:OwnerTrees.place", TREES)
def jobs_do_not_wait_for_their_job_set(place: Any) -> Any:
    def at_once(self: Any, job: Any, now_s: float) -> Any:
        return place(self, job, now_s)._replace(waits="")

    return at_once


@bug("O4", "state.owner_trees:_left_of", TREES)
def jobs_that_are_done_are_waited_for(left: Any) -> Any:
    return lambda part, done: part.jobs


@bug("O5", "state.owner_trees:_has_parent", TREES)
def jobs_with_a_domain_each_are_children_of_the_others(has_parent: Any) -> Any:
    return lambda tree, part: owner_trees._parent_name(tree, part) in tree.declared


@bug("O2", "state.owner_trees:OwnerTrees.metadata_of_owner", TREES)
def what_a_job_set_says_is_lost_without_a_tree(metadata: Any) -> Any:
    return lambda self, job: ()


@bug("O6", "state.owner_trees:OwnerTrees._lacks_jobs", TREES)
def a_job_set_is_never_late(lacks: Any) -> Any:
    return lambda self, tree: False


@bug("O7", "kube.read.reflector:Reflector._is_taken_away", "unit/kube/read/test_reflector.py")
def a_permission_that_is_gone_is_noticed_after_five_watches(is_taken: Any) -> Any:
    return lambda self, fault: False


@bug("O2", "state.owner_trees:OwnerTrees._add", TREES)
def a_job_set_that_is_created_again_joins_the_tree_of_the_one_before(add: Any) -> Any:
    def by_name(self: Any, namespace: str, ref: Any, now_s: float) -> Any:
        self._id_of.clear()
        return add(self, namespace, ref, now_s)

    return by_name


@bug("O2", "state.owner_trees:OwnerTrees._is_taken", TREES)
def a_job_set_named_as_a_stage_of_another_one_shares_its_tree(is_taken: Any) -> Any:
    return lambda self, parent: False


@bug("O2", f"{REGISTER}.is_of_owner", TREES)
def whoever_names_the_tree_of_a_job_set_joins_it(is_of_owner: Any) -> Any:
    return lambda self, gang: gang in self._uid_of


@bug("O3", "state.owner_gangs:_is_member", TREES)
def the_launcher_of_an_mpi_job_is_a_gang_of_its_own(is_member: Any) -> Any:
    return lambda job: False


@bug("O2", "kube.read.decode:controller_kind", KINDS)
def a_job_of_another_api_group_is_a_job(kind_of: Any) -> Any:
    return lambda api_version, kind: kind


@bug("O1", "kube.read.owner_asks:OwnerAsks._take_namespace", "unit/kube/read/test_owner_asks.py")
def a_namespace_that_asks_later_has_its_pods_as_they_were(take: Any) -> Any:
    def silently(self: Any, namespace: Any) -> None:
        take(self, namespace)
        self.pods_again.clear()

    return silently
