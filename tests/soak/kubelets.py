"""How pods of a soak end: what kubelets report, at random; kwok only starts them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random
from typing import Any

from control_plane.api import Api, ApiError, Object
from control_plane.following import Following

from tests.soak.workload import GROUP

FAILS = 0.15
"""Share of pods that fail."""
LONGEST_S = 3.0


@dataclass
class SoakKubelets:
    """Ends running pods once they have run for a random time."""

    api: Api
    pods: Following
    random: Random
    ends_s: dict[str, float] = field(default_factory=dict)
    ended: int = 0
    #: Nothing fails any more, so that what is left can end.
    is_kind: bool = False

    def look(self) -> None:
        """End the pods whose time is over."""
        now_s = time.monotonic()
        running: dict[str, Object] = {}
        for uid, pod in self.pods.objects().items():
            runs = pod.get("status", {}).get("phase") == "Running"
            if runs and GROUP in pod["metadata"].get("labels", {}):
                running[uid] = pod

        self.ends_s = {uid: at_s for uid, at_s in self.ends_s.items() if uid in running}
        for uid, pod in running.items():
            at_s = self.ends_s.setdefault(uid, now_s + self.random.uniform(0.2, LONGEST_S))
            if at_s <= now_s and not pod["metadata"].get("deletionTimestamp"):
                self._end(pod)

    def _end(self, pod: Object) -> None:
        fails = not self.is_kind and self.random.random() < FAILS
        ended = {
            "exitCode": 1 if fails else 0,
            "reason": "Error" if fails else "Completed",
        }
        containers = pod["status"].get("containerStatuses", ())
        status: dict[str, Any] = {
            "phase": "Failed" if fails else "Succeeded",
            "containerStatuses": [
                {**each, "ready": False, "started": False, "state": {"terminated": ended}}
                for each in containers
            ],
        }
        path = f"{self.api.path_of(pod)}/{pod['metadata']['name']}/status"
        try:
            self.api.patch(path, {"status": status})
        except ApiError:
            return  # it is gone

        self.ended += 1
