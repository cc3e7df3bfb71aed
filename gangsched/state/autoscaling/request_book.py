"""The ProvisioningRequests that the API server has, as far as they are this scheduler's (semantics
E10).

Invariant: a request is known by its key `namespace/name`. Which of them changed since the last call
of `take_changed` is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangsched.model.provisioning import ProvisioningRequest


class ProvisioningRequests:
    """`requested_by` is the mark of this scheduler: those of others are not its business."""

    def __init__(self, requested_by: str) -> None:
        self.requested_by = requested_by
        self._requests: dict[str, ProvisioningRequest] = {}
        self._changed: set[str] = set()
        #: Requests that are gone although nobody here has withdrawn them.
        self._orphaned: list[ProvisioningRequest] = []
        self._withdrawn: set[str] = set()

    @property
    def known(self) -> Mapping[str, ProvisioningRequest]:
        """The requests of this scheduler by key."""
        return self._requests

    def apply(self, request: ProvisioningRequest) -> None:
        """Add or update a request."""
        if request.requested_by == self.requested_by:
            known = self._requests.get(request.key)
            if known is not None and known.uid != request.uid:
                self._withdrawn.discard(known.uid)

            self._requests[request.key] = request
            self._changed.add(request.key)
        else:
            self.drop(request.key)

    def drop(self, key: str) -> None:
        """Remove a request."""
        request = self._requests.pop(key, None)
        if request is None:
            return

        self._changed.add(key)
        if request.uid in self._withdrawn:
            self._withdrawn.remove(request.uid)
        elif request.templates:
            self._orphaned.append(request)

    def forget(self) -> None:
        """Forget all of them: they cannot be read any more."""
        self._changed.update(self._requests)
        self._requests.clear()
        self._withdrawn.clear()

    def replace(self, requests: Iterable[ProvisioningRequest]) -> None:
        """Replace all of them by a full list."""
        listed = {request.key: request for request in requests}
        for key in [*self._requests]:
            if key not in listed:
                self.drop(key)

        for request in listed.values():
            self.apply(request)

    def withdrawn(self, request: ProvisioningRequest) -> None:
        """The request is to be deleted, with its templates."""
        self._withdrawn.add(request.uid)

    def take_orphaned(self) -> list[ProvisioningRequest]:
        """Requests that others have deleted since the last call: their templates are left."""
        orphaned = self._orphaned
        self._orphaned = []
        return orphaned

    def take_changed(self) -> set[str]:
        """Keys of requests that changed or are gone since the last call."""
        changed = self._changed
        self._changed = set()
        return changed
