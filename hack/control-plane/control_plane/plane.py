"""One control plane: its life from `start()` to `stop()`, and how to reach it in between.

Invariant: after `start()` it serves; after `stop()` nothing of it is left, and also if the owner
ends in any other way (`keeper.py`). It has no signal handlers and no global state: several may run
side by side. Not done here: to create nodes, namespaces or CRDs.
"""

import json
import os
import shutil
import signal
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from control_plane import components, kubeconfig
from control_plane.api import Api, ApiError
from control_plane.components import APISERVER, ETCD, KCM, KWOK, SCHEDULER, Layout
from control_plane.errors import ControlPlaneError
from control_plane.keeping import Keeping
from control_plane.pki import Pki, make_pki
from control_plane.ports import free_ports, listens

LOG_LINES = 12


class ControlPlane:
    """etcd and kube-apiserver, and on demand kube-controller-manager, kube-scheduler and kwok, on
    free local ports.

    `workdir`: where data, certificates and logs go; kept at the end. None: a temporary directory,
    removed at the end. `kwok`: True, or the path of further stages and logs, which are played
    beside the stages of every test (`components.kwok`). `scheduler`: True, or the path of a
    `kubescheduler.config.k8s.io/v1` file with the placeholder `@KUBECONFIG@`. `feature_gates` go to
    all Kubernetes components; `runtime_config` is such as `scheduling.k8s.io/v1alpha2=true`.
    `disable_admission`: None means what fits the rest. ServiceAccount when there is no controller
    manager, since it would refuse every pod of a namespace whose `default` account nobody makes;
    and always TaintNodesByCondition, since it taints every new node `not-ready` and only the node
    lifecycle controller, which kwok's nodes cannot feed, takes that away. `for_load` lifts the API
    server's limits on requests in flight. `release`: of Kubernetes, such as "1.37", where it is not
    the one that is built by default.
    """

    def __init__(
        self,
        workdir: Path | None = None,
        *,
        kcm: bool = False,
        kwok: bool | Path = False,
        scheduler: bool | Path = False,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Sequence[str] = (),
        disable_admission: Sequence[str] | None = None,
        for_load: bool = False,
        ready_timeout_s: float = 240.0,
        release: str = "",
        etcd_quota_bytes: int = components.ETCD_QUOTA_BYTES,
    ) -> None:
        if disable_admission is None:
            disable_admission = ["TaintNodesByCondition", *([] if kcm else ["ServiceAccount"])]
        self.disable_admission = tuple(disable_admission)
        self.feature_gates = dict(feature_gates or {})
        self.runtime_config = tuple(runtime_config)
        self.for_load = for_load
        self.release = release
        self._etcd_quota_bytes = etcd_quota_bytes
        self._kcm, self._kwok, self._scheduler = kcm, kwok, scheduler
        self._given_workdir = workdir
        self._ready_timeout_s = ready_timeout_s
        self._deadline_s = 0.0
        self._keeping: Keeping | None = None
        self._temporary: Path | None = None
        self._layout: Layout | None = None
        self._api: Api | None = None
        #: Component name → pid, for tests that hurt one.
        self.pids: dict[str, int] = {}

    # --- how to reach it -------------------------------------------------------------------------

    @property
    def workdir(self) -> Path:
        """Its directory: `logs/`, `pki/`, `etcd/`, `admin.kubeconfig`."""
        return self._started.workdir

    @property
    def logs(self) -> Path:
        """The components' logs, `NAME.log` each."""
        return self.workdir / "logs"

    @property
    def url(self) -> str:
        """The API server's address, `https://127.0.0.1:PORT`."""
        return f"https://127.0.0.1:{self._started.ports[APISERVER]}"

    @property
    def kwok_port(self) -> int:
        """Where kwok answers as the kubelet of every node, on 127.0.0.1."""
        return self._started.ports[KWOK]

    @property
    def pki(self) -> Pki:
        """Certificates and keys, the admin's among them."""
        return self._started.pki

    @property
    def ca_path(self) -> Path:
        """The authority that signed the API server's certificate (PEM)."""
        return self.pki.ca

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig: a client certificate of `system:masters`."""
        return self._started.kubeconfig

    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context of the admin."""
        context = ssl.create_default_context(cafile=str(self.ca_path))
        context.load_cert_chain(str(self.pki.admin_cert), str(self.pki.admin_key))
        return context

    def service_account_token(
        self, namespace: str, name: str, *, lifetime_s: int = 24 * 3600
    ) -> str:
        """A bearer token of an existing ServiceAccount, by TokenRequest."""
        assert self._api is not None
        spec = {"expirationSeconds": lifetime_s}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        try:
            answer = self._api.post(
                f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", request
            )
        except ApiError as error:
            raise ControlPlaneError(
                f"No token for the ServiceAccount {namespace}/{name}: {error.message}."
            ) from error
        return str(answer["status"]["token"])

    def write_kubeconfig(self, path: Path, *, token: str, url: str | None = None) -> Path:
        """Write a kubeconfig whose user has this bearer token and nothing else; `url` of a proxy.
        Returns `path`.
        """
        kubeconfig.write(
            path, url=url or self.url, ca=self.ca_path, user={"token": token}, name="gangsched-test"
        )
        return path

    # --- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and wait until it serves.

        Raises ControlPlaneError (with the end of the log) if a component dies or is not ready in
        time; then, as after any other exception, nothing is left.
        """
        if self._keeping is not None:
            raise ControlPlaneError("This control plane is running already.")
        self._check_binaries()
        self._deadline_s = time.monotonic() + self._ready_timeout_s
        given = self._given_workdir
        if given is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="gangsched-control-plane-"))
        workdir = self._temporary or Path(given or ".").resolve()
        try:
            (workdir / "logs").mkdir(parents=True, exist_ok=True)
            self._keeping = Keeping(workdir / "logs" / "keeper.log")
            if self._temporary:
                self._keeping.remove_at_end(self._temporary)
            self._layout = self._lay_out(workdir)
            self._api = Api(self.url, self.ssl_context(), timeout_s=10.0)
            # All command lines first: a bad configuration is found before anything runs.
            command_lines = {name: self._argv(name, self._layout) for name in self._names()}
            for name, argv in command_lines.items():
                self._start_one(name, argv, self._layout, self._api)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End kwok, the scheduler, the controller manager, the API server and etcd, in this order;
        idempotent.
        """
        if self._api is not None:
            self._api.close()
        if self._keeping is not None:
            self._keeping.close()
        self._keeping = None
        if self._temporary is not None:  # the keeper has done it, unless it was killed
            shutil.rmtree(self._temporary, ignore_errors=True)
        self._temporary = None
        self.pids = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def check(self) -> None:
        """Raise ControlPlaneError if a component has died since the start."""
        for name, code in self._running.dead().items():
            raise ControlPlaneError(self._told(f"{name} died {_why(code)}", name))

    def stop_component(self, name: str) -> None:
        """End one component and leave the others; `start_component` brings it back on the same port
        and data.
        """
        self._running.stop(name)
        self.pids.pop(name, None)

    def start_component(self, name: str) -> None:
        """Start one component again and wait until it serves."""
        self._deadline_s = time.monotonic() + self._ready_timeout_s
        assert self._api is not None
        self._start_one(name, self._argv(name, self._started), self._started, self._api)

    def kill_component(self, name: str) -> None:
        """SIGKILL to one component, as when its machine fails; `start_component` brings it back on
        the same data.
        """
        os.kill(self.pids[name], signal.SIGKILL)
        self.stop_component(name)

    def compact(self) -> None:
        """Have etcd forget every revision but the present one, as the API server does every five
        minutes.
        """
        assert self._api is not None
        revision = self._api.list("/api/v1/namespaces", limit=1).resource_version
        self.ask_etcd("kv/compaction", {"revision": revision, "physical": True})

    def ask_etcd(self, method: str, body: Mapping[str, object]) -> dict[str, Any]:
        """The answer of etcd to a method of its API, such as `maintenance/defragment`."""
        address = f"http://127.0.0.1:{self._started.ports[ETCD]}/v3/{method}"
        request = urllib.request.Request(address, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=10.0) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    # --- inside ----------------------------------------------------------------------------------

    @property
    def _started(self) -> Layout:
        if self._layout is None:
            raise ControlPlaneError("This control plane has not been started.")
        return self._layout

    @property
    def _running(self) -> Keeping:
        if self._keeping is None:
            raise ControlPlaneError("This control plane is not running.")
        return self._keeping

    def _names(self) -> list[str]:
        """The components asked for, in the order of their start."""
        wanted = {KCM: self._kcm, SCHEDULER: bool(self._scheduler), KWOK: bool(self._kwok)}
        return [ETCD, APISERVER, *(name for name, want in wanted.items() if want)]

    def _check_binaries(self) -> None:
        missing = [
            name for name in self._names() if not components.binary(name, self.release).exists()
        ]
        if missing:
            command = "make control-plane" + (f" VERSION={self.release}" if self.release else "")
            raise ControlPlaneError(
                f"{' and '.join(missing)} not built yet: run `{command}` first."
            )

    def _lay_out(self, workdir: Path) -> Layout:
        """Choose ports, make certificates and the admin's kubeconfig."""
        names = [ETCD, "etcd-peer", APISERVER, KCM, SCHEDULER, KWOK]
        layout = Layout(
            workdir=workdir,
            pki=make_pki(workdir / "pki"),
            kubeconfig=workdir / "admin.kubeconfig",
            ports=dict(zip(names, free_ports(len(names)), strict=True)),
            feature_gates=self.feature_gates,
            runtime_config=self.runtime_config,
            disable_admission=self.disable_admission,
            for_load=self.for_load,
            release=self.release,
            etcd_quota_bytes=self._etcd_quota_bytes,
        )
        kubeconfig.write(
            layout.kubeconfig,
            url=f"https://127.0.0.1:{layout.ports[APISERVER]}",
            ca=layout.pki.ca,
            user=kubeconfig.certificate_user(layout.pki.admin_cert, layout.pki.admin_key),
            name="gangsched-control-plane",
        )
        return layout

    def _argv(self, name: str, layout: Layout) -> list[str]:
        """The command line of one component."""
        match name:
            case components.ETCD:
                return components.etcd(layout)
            case components.APISERVER:
                return components.apiserver(layout)
            case components.KCM:
                return components.controller_manager(layout)
            case components.SCHEDULER:
                return components.scheduler(
                    layout, self._scheduler if isinstance(self._scheduler, Path) else None
                )
            case components.KWOK:
                return components.kwok(layout, self._kwok if isinstance(self._kwok, Path) else None)
            case _:
                raise ControlPlaneError(f"There is no component {name!r}.")

    def _start_one(self, name: str, argv: Sequence[str], layout: Layout, api: Api) -> None:
        """Start one component and wait until it serves."""
        self.pids[name] = self._running.start(name, argv, layout.workdir / "logs" / f"{name}.log")
        self._await(name, self._proof(name, layout, api))

    def _proof(self, name: str, layout: Layout, api: Api) -> Callable[[], bool]:
        """The probe that is true once a component serves."""
        port = layout.ports[name]
        if name == APISERVER:
            # The namespace is made by the server itself a moment after it calls itself ready.
            return lambda: api.healthy("/readyz") and api.healthy("/api/v1/namespaces/default")
        if name == KCM:
            return lambda: api.healthy("/api/v1/namespaces/default/serviceaccounts/default")
        if name == SCHEDULER:
            any_certificate = ssl._create_unverified_context()  # it signs its own
            return lambda: Api(f"https://127.0.0.1:{port}", any_certificate).healthy("/readyz")
        return lambda: listens(port)

    def _await(self, name: str, proof: Callable[[], bool]) -> None:
        """Probe until it is true, the component dies, or the deadline."""
        while not proof():
            self.check()
            if time.monotonic() > self._deadline_s:
                raise ControlPlaneError(
                    self._told(f"{name} is not ready after {self._ready_timeout_s:g} s", name)
                )
            time.sleep(0.05)

    def _told(self, what: str, name: str) -> str:
        """A message with the end of the component's log."""
        path = self.logs / f"{name}.log"
        lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:] if path.exists() else []
        return "\n".join([f"{what}; the end of its log:", *(f"  {line[:400]}" for line in lines)])


def _why(code: int) -> str:
    """An exit code in words."""
    return f"of signal {-code}" if code < 0 else f"with exit code {code}"
