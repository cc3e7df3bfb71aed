"""A real Prometheus that scrapes daemons on 127.0.0.1 and answers queries; `make prometheus` puts
it there.

    with Prometheus(plane.workdir / "prometheus", {"gangsched-0": daemon.health_port}) as
    prometheus:
        prometheus.query("gangsched_cycles_total")

Invariant: it listens on 127.0.0.1 only, and nothing of it outlives the owner (see `keeper.py`).
Targets carry the labels that the ServiceMonitor of `manifests/monitoring` gives them.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from control_plane.applying import ROOT
from control_plane.errors import ControlPlaneError
from control_plane.keeping import Keeping
from control_plane.ports import free_ports

BIN = ROOT / ".cache" / "prometheus" / "bin"
NAMESPACE = "gangsched-system"
ASK_AGAIN_S = 0.2


class Prometheus:
    """Prometheus in `workdir`, scraping every `every_s` the ports of `targets`, by the name of
    their pod.
    """

    def __init__(
        self,
        workdir: Path,
        targets: Mapping[str, int],
        *,
        every_s: float = 2.0,
        rules: Path | None = None,
    ) -> None:
        self._workdir = workdir
        self._targets = dict(targets)
        self._every_s = every_s
        self._rules = rules
        self._keeping: Keeping | None = None
        #: Where it listens on 127.0.0.1; 0 before the start.
        self.port = 0

    def __enter__(self) -> Self:
        self._workdir.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        config = self._workdir / "prometheus.json"  # JSON is YAML
        config.write_text(json.dumps(self._config()))
        argv: list[str | Path] = [
            BIN / "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={self._workdir / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--log.level=warn",
        ]
        self._keeping = Keeping(self._workdir / "keeper.log")
        try:
            self._keeping.start("prometheus", argv, self._workdir / "prometheus.log")
            self.wait_for(self._is_ready, within_s=30.0, what="Prometheus to be ready")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it; idempotent."""
        if self._keeping is not None:
            self._keeping.close()
            self._keeping = None

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series of an instant query now. Raises ControlPlaneError if it
        is refused.
        """
        data = self._ask("query", query=expression)
        if data["resultType"] == "scalar":
            return [({}, float(data["result"][1]))]
        return [(each["metric"], float(each["value"][1])) for each in data["result"]]

    def query_range(
        self, expression: str, *, start_s: float, end_s: float, step_s: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Labels and (time, value) points of each series. Raises ControlPlaneError if the query is
        refused.
        """
        data = self._ask("query_range", query=expression, start=start_s, end=end_s, step=step_s)
        return [
            (each["metric"], [(float(at_s), float(value)) for at_s, value in each["values"]])
            for each in data["result"]
        ]

    def wait_for(self, holds: Callable[[], object], *, within_s: float, what: str) -> None:
        """Until `holds()` is true. Raises ControlPlaneError when that takes longer, or Prometheus
        has ended.
        """
        deadline_s = time.monotonic() + within_s
        while not holds():
            assert self._keeping is not None
            if (
                code := self._keeping.dead().get("prometheus")
            ) is not None or time.monotonic() > deadline_s:
                ended = f"; it ended with {code}" if code is not None else ""
                log = (self._workdir / "prometheus.log").read_text(errors="replace")[-2_000:]
                raise ControlPlaneError(
                    f"Waited {within_s:g} s for {what}{ended}; the end of its log:\n{log}"
                )
            time.sleep(ASK_AGAIN_S)

    # --- inside ----------------------------------------------------------------------------------

    def _config(self) -> dict[str, object]:
        targets = [
            {"targets": [f"127.0.0.1:{port}"], "labels": {"pod": pod, "namespace": NAMESPACE}}
            for pod, port in self._targets.items()
        ]
        every = f"{round(self._every_s * 1000)}ms"
        return {
            "global": {
                "scrape_interval": every,
                "scrape_timeout": every,
                "evaluation_interval": every,
            },
            "rule_files": [str(self._rules)] if self._rules is not None else [],
            "scrape_configs": [{"job_name": "gangsched", "static_configs": targets}],
        }

    def _is_ready(self) -> bool:
        try:
            return self._get("/-/ready")[0] == http.client.OK
        except OSError:
            return False

    def _ask(self, what: str, **parameters: object) -> dict[str, Any]:
        _, text = self._get(f"/api/v1/{what}?{urllib.parse.urlencode(parameters)}")
        answer = json.loads(text)
        if answer["status"] != "success":
            raise ControlPlaneError(f"Prometheus refuses {parameters['query']}: {answer['error']}")
        data: dict[str, Any] = answer["data"]
        return data

    def _get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30.0)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
