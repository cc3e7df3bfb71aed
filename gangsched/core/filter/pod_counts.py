"""Pod counts by topology domain, including the members that this plan placed.

Invariant: counts start from the snapshot's pods and include every move of the ledger exactly once;
undoing a move restores every count. Moves are applied to a count only when it is read, so a plan
whose pods have no inter-pod terms has no cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from gangsched.core.filter.count_cache import CountCache
from gangsched.core.filter.existing_terms import ExistingTerms, TermsByKind
from gangsched.core.filter.label_keys import LabelKeys
from gangsched.core.filter.replica_counts import ReplicaCounts, SpreadCost
from gangsched.core.filter.term_columns import Kind
from gangsched.core.work import Work
from gangsched.model.inter_pod import PodTerm, selects
from gangsched.model.objects import NOTHING, Pod, Shape
from gangsched.model.pods_by_node import (
    Addressee,
    Label,
    OwnedBy,
    PodsByNode,
    Question,
    ResolvedTerm,
    Selected,
    TermsAbout,
)
from gangsched.model.snapshot import Bools, Codes, Ints, NodeTable
from gangsched.model.term_index import TermEntry, TermOwner, entries_of

FEW_TERMS = 100
"""Terms of existing pods that are compared with a pod one by one; more are read as columns."""
FEW_OWNERS = 1_000
"""Owners of terms that came in a plan, likewise."""

Alike: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
"""The namespace and the labels of a pod."""
Eligible: TypeAlias = tuple[Shape, int]
"""Names the nodes that a spread constraint looks at: (shape, index of the constraint)."""


@dataclass(slots=True)
class DomainCounts:
    """`counts[domain]`: matching pods on eligible nodes, with the ledger's first `seen` moves
    applied.

    `codes[node]` is the node's domain, -1 if it has none; the last entry of `counts` is for nodes
    without a domain and stays 0. `exists[domain]`: the domain has an eligible node.
    """

    counts: Ints
    codes: Codes
    eligible: Bools | None
    exists: Bools
    seen: int = 0

    def by_node(self) -> Ints:
        """`by_node[node]`: the count of the node's domain, 0 if it has none."""
        found: Ints = self.counts[self.codes]
        return found

    def add(self, pods: int, node: int) -> None:
        """Count `pods` additional pods on `node`."""
        code = self.codes[node]
        if code >= 0 and (self.eligible is None or self.eligible[node]):
            self.counts[code] += pods


class PodCounts:
    """Pods per topology domain, including the moves of this plan."""

    def __init__(
        self,
        table: NodeTable,
        pods_by_node: PodsByNode,
        work: Work | None = None,
        cache: CountCache | None = None,
    ) -> None:
        self.table = table
        self._cache = CountCache() if cache is None else cache
        self._work = Work() if work is None else work
        self._pods_by_node = pods_by_node

        # Owners of the snapshot may have pods that this plan has not counted, see `may_be_there`.
        self._terms = pods_by_node.terms
        # Those that came in this plan, in a dict as an ordered set: `ExistingTerms.seen` is a
        # position in it, so entries are only ever appended.
        self._term_owners: dict[TermOwner, None] = {}

        # by owner its pods that came in this plan, less those that went again
        self._placed = Counter[TermOwner]()
        # Labels that terms of those who came in this plan read.
        self._label_keys = set[str]()

        # A log that each count reads from where it stopped: counts that nobody asks for again cost
        # nothing.
        self._moves: list[tuple[Sequence[Pod], Sequence[int], int]] = []
        self._counts: dict[tuple[Question, str, Eligible | None], DomainCounts] = {}
        self._resolved: dict[tuple[PodTerm, str], ResolvedTerm] = {}
        #: By uid of the pod, and by its namespace and labels.
        self._existing: dict[str, ExistingTerms | None] = {}
        self._existing_alike: dict[Alike, ExistingTerms | None] = {}

        # Where they are very many: by pod as they see it; the kinds that came in this plan, in a
        # dict as an ordered set; and by question, what was counted of an owner.
        self._by_addressee: dict[Addressee, TermsByKind] = {}
        self._kinds: dict[Kind, None] = {}
        self._of_owner: dict[TermsAbout, dict[TermOwner, int]] = {}
        self._namespace_labels: dict[str, frozenset[Label] | None] = {}

        self._replicas = ReplicaCounts(table, pods_by_node.peers)

    def move(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
        sign: int,
    ) -> None:
        """Add `pods[i]`, all of one shape, to the counts of node `nodes[i]` (+1), or subtract them
        (-1).
        """
        self._moves.append((pods, nodes, sign))
        shape = pods[0].shape
        if shape.constraints.has_terms:
            namespaces = {pod.namespace: None for pod in pods}
            self._note_owners((shape, namespace) for namespace in namespaces)
            self._count_owners(pods, sign)

    def come(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
    ) -> None:
        """Add `pods[i]`, of any shapes, to the counts of node `nodes[i]`."""
        self._moves.append((pods, nodes, 1))
        owners: dict[tuple[Shape, str], None] = {}

        for pod in pods:
            if pod.shape.constraints.has_terms:
                owners[(pod.shape, pod.namespace)] = None

        self._note_owners(owners)
        self._count_owners(pods, 1)

    def _note_owners(self, owners: Iterable[TermOwner]) -> None:
        """Remember owners that came in this plan, and the labels that their terms read."""
        for owner in owners:
            if owner in self._terms.owners or owner in self._term_owners:
                continue

            self._term_owners[owner] = None
            shape, _ = owner
            self._label_keys |= shape.constraints.keys
            for entry in entries_of(owner):
                self._kinds[entry.term.topology_key, entry.is_required] = None

    def _count_owners(self, pods: Sequence[Pod], sign: int) -> None:
        if self.has_terms:
            for pod in pods:
                if pod.shape.constraints.has_terms:
                    self._placed[pod.shape, pod.namespace] += sign

    def may_be_there(self, owned: Question) -> bool:
        """Whether a node may have pods of a term owner. False if the snapshot has none and this
        plan removed all that it placed.

        A round that is rolled back leaves many such owners behind. Counting each of them for each
        pod would take most of the next round.
        """
        if not isinstance(owned, OwnedBy) or self._placed[owned.owner] > 0:
            return True

        return owned.owner in self._terms.owners

    @property
    def versions(self) -> Ints:
        """`versions[node]`: the version of the snapshot's pods on the node."""
        return self._pods_by_node.versions

    @property
    def read(self) -> int:
        """Columns of pods that plans have read so far."""
        return self._cache.read

    def anti_affinity_keys(self) -> frozenset[str]:
        """Topology keys of all required anti-affinity terms of existing pods; only those that nodes
        have.
        """
        keys = set(self._terms.anti_affinity_keys.keys() & self._topology_keys)
        for key, is_required in self._kinds:
            if is_required and key in self._topology_keys:
                keys.add(key)

        return frozenset(keys)

    @cached_property
    def _topology_keys(self) -> Set[str]:
        """The topology keys that a term may have to mean anything: no node has most of those that
        terms may name. "" is that of `by_domain`.
        """
        self._work.charge(len(self.table) // 2)
        return self.table.label_keys | {""}

    def leave(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
    ) -> None:
        """Subtract `pods[i]`, of any shapes, from the counts of node `nodes[i]`."""
        self._moves.append((pods, nodes, -1))
        self._count_owners(pods, -1)

    def take_back(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
        sign: int,
    ) -> None:
        """Undo a `move`; the latest one must be undone first."""
        self._count_owners(pods, -sign)
        # Some count may have read the move, so an undo is one more move.
        if self._counts or self._replicas.seen:
            self._moves.append((pods, nodes, -sign))
        else:
            # no count has been read yet, so the log is exactly what was not undone
            self._moves.pop()

    @property
    def has_terms(self) -> bool:
        """Whether any pod, of the snapshot or of this plan, has terms about other pods."""
        return bool(self._terms.owners) or bool(self._term_owners)

    def label_keys(self, pods: Sequence[Pod]) -> LabelKeys | None:
        """Label keys that inter-pod terms read; None if there are no terms. Pods that differ only
        in other labels are equivalent.
        """
        shapes = []
        for shape in {pod.shape for pod in pods}:
            if shape.inter_pod is not None:
                shapes.append(shape)

        if not shapes and not self.has_terms:
            return None

        own = frozenset[str]().union(*(shape.constraints.keys for shape in shapes))
        return LabelKeys((own, self._label_keys, self._terms.label_keys.keys()))

    def by_domain(
        self,
        question: Question,
        topology_key: str,
        eligible: Eligible | None = None,
    ) -> DomainCounts:
        """Current counts by domain of `topology_key` ("": each node is its own domain); later moves
        overwrite the array.
        """
        key = (question, topology_key, eligible)
        known = self._counts.get(key)
        units = 8 + len(self.table) // 400

        if known is None:
            self._work.charge(units + 20 + len(self.table) // 120)
            known = self._start(question, topology_key, eligible)
            self._counts[key] = known
            units = 0

        # Charged by pods and not by moves: a gang of thousands is one move.
        if known.seen < len(self._moves):
            moved = self._moves[known.seen :]
            cost = question.cost
            for pods, _, _ in moved:
                units += 2 + len(pods) * cost

            self._work.charge(units)
            counts = self._counts_of(question)
            numbers = []
            for pods, _, _ in moved:
                numbers.append([*map(counts, pods)])

            for (_, nodes, sign), numbers_of_pods in zip(moved, numbers, strict=True):
                for number, node in zip(numbers_of_pods, nodes, strict=True):
                    if number:
                        known.add(sign * number, node)

            known.seen = len(self._moves)
        elif units:
            self._work.charge(units)

        return known

    def _counts_of(self, question: Question) -> Callable[[Pod], int]:
        """Return a function that says what a pod of this plan adds to the count. It raises
        OutOfWork.
        """
        if not isinstance(question, TermsAbout):
            return question.counts

        of_owner = self._of_owner.setdefault(question, {})

        def of_pod(pod: Pod) -> int:
            inter_pod = pod.shape.inter_pod
            if inter_pod is None or not inter_pod.has_terms:
                return 0

            owner = (pod.shape, pod.namespace)
            known = of_owner.get(owner)
            if known is None:
                self._charge_terms([*entries_of(owner)])
                known = of_owner[owner] = question.counts(pod)

            return known

        return of_pod

    def spread_cost(self, pod: Pod) -> SpreadCost | None:
        """The cost of each node for the pod's default spread, None if it has no peers. Later moves
        change the arrays in place.
        """
        keys = self._replicas.keys(pod)
        if not keys:
            return None

        followed = self._replicas.follow(self._moves)
        self._work.charge(10 + len(self.table) // 200 + followed)
        return self._replicas.of(keys[0])

    def domains(self, topology_key: str) -> Codes:
        """`codes[node]`: the node's domain, -1 without one."""
        if not topology_key:
            return np.arange(len(self.table), dtype=np.int32)

        if topology_key not in self.table.label_columns:
            self._work.charge(len(self.table) // 2)

        return self.table.label_column(topology_key).codes

    # --- terms -----------------------------------------------------------------------------------

    def existing_terms(self, pod: Pod) -> ExistingTerms:
        """Terms of existing pods that select `pod`. The result is cached and extended when term
        owners are added.
        """
        if len(self._term_owners) > FEW_OWNERS:
            return self._by_kind(pod)

        try:
            known = self._existing[pod.uid]
        except KeyError:
            known = self._existing[pod.uid] = self._one_by_one(pod)

        if known is None:
            return self._by_kind(pod)

        if known.seen < len(self._term_owners):
            owners = islice(self._term_owners, known.seen, None)
            entries: list[TermEntry] = []
            for owner in owners:
                entries += entries_of(owner)

            self._charge_terms(entries)
            for entry in entries:
                if self._means(entry, pod):
                    known.add(entry)

            known.seen = len(self._term_owners)

        return known

    def _one_by_one(self, pod: Pod) -> ExistingTerms | None:
        """The terms of the snapshot's pods that select `pod`; None if they are too many to compare
        each of them.
        """
        # The namespace and all labels matter, so that sharing by shape would be wrong.
        alike = (pod.namespace, frozenset(pod.labels.items()))
        if alike in self._existing_alike:
            return self._existing_alike[alike]

        about = list(self._terms.about(pod))
        known = None
        if sum(map(len, about)) <= FEW_TERMS:
            entries = [*chain.from_iterable(about)]
            self._charge_terms(entries)
            meant = [entry for entry in entries if self._means(entry, pod)]
            known = ExistingTerms.of(meant)

        self._existing_alike[alike] = known
        return known

    def _charge_terms(self, entries: Sequence[TermEntry]) -> None:
        """Charge the comparison of a pod with these terms."""
        units = 0
        for entry in entries:
            units += 4 + entry.size // 8

        self._work.charge(units)

    def _means(self, entry: TermEntry, pod: Pod) -> bool:
        """Whether a term of an existing pod selects `pod`."""
        _, of = entry.owner
        labels = self._pods_by_node.namespaces.get(pod.namespace)
        if not entry.term.means_namespace(of, pod.namespace, labels):
            return False

        is_selected = selects(entry.term.selector, pod.labels)
        return is_selected and entry.term.topology_key in self._topology_keys

    def _by_kind(self, pod: Pod) -> TermsByKind:
        """The terms of existing pods that select `pod`, of which there are very many."""
        addressee = self._addressee(pod)
        known = self._by_addressee.get(addressee)
        if known is None:
            keys = self._topology_keys
            kinds = self._cache.kinds(addressee, keys, self._pods_by_node, self._work)
            known = TermsByKind(addressee)
            for kind in kinds:
                known.ask(kind)

            self._by_addressee[addressee] = known

        for kind in islice(self._kinds, known.seen, None):
            key, _ = kind
            if key in self._topology_keys:
                known.ask(kind)

        known.seen = len(self._kinds)
        return known

    def _addressee(self, pod: Pod) -> Addressee:
        """A pod as terms of existing pods see it now: those that come may read other labels."""
        name = pod.namespace
        if name not in self._namespace_labels:
            labels = self._pods_by_node.namespaces.get(name)
            known = None if labels is None else frozenset(labels.items())
            self._namespace_labels[name] = known

        self._work.charge(1 + len(pod.labels) // 4)
        keys = LabelKeys((self._label_keys, self._terms.label_keys.keys()))
        return Addressee(name, keys.of(pod.labels), self._namespace_labels[name])

    def selected(self, terms: Sequence[PodTerm], pod: Pod) -> Selected:
        """The question how many pods all of these terms, which belong to an incoming `pod`, select.

        As in kube-scheduler 1.36, the namespace labels of other pods are not read here. So a
        namespace selector that matches a namespace without labels (NotIn, DoesNotExist) matches
        every namespace.
        """
        resolved = []
        for term in terms:
            resolved.append(self._resolve_incoming(term, pod.namespace))

        return Selected(tuple(resolved))

    def _resolve_incoming(self, term: PodTerm, namespace: str) -> ResolvedTerm:
        # kube-scheduler 1.36 evaluates the selector without the labels of the other pod's
        # namespace.
        if term.namespace_selector is not None and selects(term.namespace_selector, NOTHING):
            return ResolvedTerm(None, term.selector)

        return self._resolve(term, namespace)

    def _resolve(self, term: PodTerm, namespace: str) -> ResolvedTerm:
        """A term of a pod in `namespace`, with its namespaces resolved."""
        known = self._resolved.get((term, namespace))
        if known is None:
            known = self._resolved[term, namespace] = ResolvedTerm(
                self._namespaces(term, namespace),
                term.selector,
            )

        return known

    def _namespaces(self, term: PodTerm, namespace: str) -> frozenset[str] | None:
        if not term.namespaces and term.namespace_selector is None:
            return frozenset({namespace})
        # An empty selector selects every namespace; None means no selector.
        if term.namespace_selector == ():
            return None

        if term.namespace_selector is None:
            return frozenset(term.namespaces)

        known = self._pods_by_node.namespaces
        selected = self._cache.namespaces(term.namespace_selector, known, self._work)
        return selected.union(term.namespaces)

    def _start(
        self,
        question: Question,
        topology_key: str,
        eligible: Eligible | None,
    ) -> DomainCounts:
        codes = self.domains(topology_key)
        mask = None
        if eligible is not None:
            mask = self.table.eligible[eligible[0]][eligible[1]]

        size = int(codes.max(initial=-1)) + 1
        inside = codes >= 0 if mask is None else (codes >= 0) & mask
        counts = np.zeros(size + 1, dtype=np.int64)
        exists = np.zeros(size + 1, dtype=np.bool_)

        exists[codes[inside]] = True
        # The empty cluster of a plan has no residents: nothing is counted there.
        if len(self._pods_by_node.residents) == len(codes):
            np.add.at(
                counts,
                codes[inside],
                self._cache.counts(question, self._pods_by_node, self._work)[inside],
            )

        return DomainCounts(counts, codes, mask, exists)
