"""The command lines of the five components, with the reason of each flag.

Invariant: functions from a `Layout` to argument lists; nothing is started here. Everything listens
on 127.0.0.1 only. etcd speaks plain HTTP there: this is a control plane for tests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from control_plane.errors import ControlPlaneError
from control_plane.pki import FRONT_PROXY, Pki

#: Where build.py puts the binaries: this package is installed in place (editable), so the checkout
#: is above it.
CACHE = Path(__file__).resolve().parents[3] / ".cache" / "control-plane"
BIN = CACHE / "bin"
STAGES = Path(__file__).with_name("stages.yaml")

ETCD, APISERVER = "etcd", "kube-apiserver"
KCM, SCHEDULER, KWOK = "kube-controller-manager", "kube-scheduler", "kwok"
#: Of the same release as the API server.
KUBECTL = BIN / "kubectl"
HELM = BIN / "helm"

#: Independent of the port, so that a token outlives a restart of the API server.
ISSUER = "https://kubernetes.default.svc"

SCHEDULER_CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: "@KUBECONFIG@", qps: 10000, burst: 20000}
leaderElection: {leaderElect: false}
"""


ETCD_QUOTA_BYTES = 8 << 30
"""A long benchmark writes more than the default of 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Paths and ports (on 127.0.0.1) of one control plane.

    `release` is such as "1.37": of Kubernetes, where it is not the one that is built by default.
    """

    workdir: Path
    pki: Pki
    kubeconfig: Path
    ports: Mapping[str, int]
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Sequence[str] = ()
    disable_admission: Sequence[str] = ()
    for_load: bool = False
    release: str = ""
    etcd_quota_bytes: int = ETCD_QUOTA_BYTES

    def gates(self) -> list[str]:
        """The feature gates as a flag; all Kubernetes components know one another's gates."""
        if not self.feature_gates:
            return []
        return [
            "--feature-gates="
            + ",".join(f"{k}={str(v).lower()}" for k, v in self.feature_gates.items())
        ]


def binary(name: str, release: str = "") -> Path:
    """Where build.py puts a component; only those of Kubernetes differ from release to release."""
    return (CACHE / release / "bin" if name in {APISERVER, KCM, SCHEDULER} else BIN) / name


def etcd(layout: Layout) -> list[str]:
    """One member, no fsync: the data is not needed after the test."""
    client = f"http://127.0.0.1:{layout.ports[ETCD]}"
    peer = f"http://127.0.0.1:{layout.ports['etcd-peer']}"
    return [
        str(BIN / ETCD),
        f"--data-dir={layout.workdir / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
        f"--quota-backend-bytes={layout.etcd_quota_bytes}",
    ]


def apiserver(layout: Layout) -> list[str]:
    """RBAC, client certificates and the aggregation layer as in a real cluster; no kubelets, no
    cloud.
    """
    port, pki = layout.ports[APISERVER], layout.pki
    argv = [
        str(binary(APISERVER, layout.release)),
        f"--etcd-servers=http://127.0.0.1:{layout.ports[ETCD]}",
        f"--cert-dir={layout.workdir / 'pki'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={pki.server_cert}",
        f"--tls-private-key-file={pki.server_key}",
        f"--client-ca-file={pki.ca}",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        f"--service-account-issuer={ISSUER}",
        f"--service-account-key-file={pki.sa_pub}",
        f"--service-account-signing-key-file={pki.sa_key}",
        "--endpoint-reconciler-type=none",
        f"--requestheader-client-ca-file={pki.proxy_ca}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        # Nobody resolves the names of nodes that kwok plays.
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        f"--proxy-client-cert-file={pki.proxy_cert}",
        f"--proxy-client-key-file={pki.proxy_key}",
        *layout.gates(),
    ]
    if layout.disable_admission:
        argv.append("--disable-admission-plugins=" + ",".join(layout.disable_admission))
    if layout.runtime_config:
        argv.append("--runtime-config=" + ",".join(layout.runtime_config))
    if layout.for_load:
        argv += [
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--enable-priority-and-fairness=false",
        ]
    return argv


def controller_manager(layout: Layout) -> list[str]:
    """All controllers but those that need heartbeats or addresses of nodes: kwok's nodes
    have none.
    """
    return [
        str(binary(KCM, layout.release)),
        f"--kubeconfig={layout.kubeconfig}",
        f"--root-ca-file={layout.pki.ca}",
        f"--service-account-private-key-file={layout.pki.sa_key}",
        "--leader-elect=false",
        "--controllers=*,-node-lifecycle-controller,-nodelifecycle,-nodeipam",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        *_serving(layout, KCM),
        *layout.gates(),
    ]


def scheduler(layout: Layout, template: Path | None) -> list[str]:
    """The cluster's own scheduler, beside which gangsched runs; its configuration is written to the
    workdir.

    `template`: a `kubescheduler.config.k8s.io/v1` file in which `@KUBECONFIG@` stands for ours (a
    flag cannot say it: kube-scheduler ignores --kubeconfig beside --config). Raises
    ControlPlaneError when it has no such place.
    """
    if template is None:
        text = SCHEDULER_CONFIG
    else:
        text = template.read_text()
        if "@KUBECONFIG@" not in text:
            hint = 'clientConnection: {kubeconfig: "@KUBECONFIG@"}'
            raise ControlPlaneError(
                f"{template} must say `{hint}`, or the scheduler finds no API server."
            )
    config = layout.workdir / "kube-scheduler.yaml"
    config.write_text(text.replace("@KUBECONFIG@", str(layout.kubeconfig)))
    program = str(binary(SCHEDULER, layout.release))
    return [program, f"--config={config}", *_serving(layout, SCHEDULER), *layout.gates()]


def kwok(layout: Layout, more: Path | None) -> list[str]:
    """Fake kubelets for all nodes; its address serves its health, and logs of pods. `more`: a file
    of what else it plays, in which `@WORKDIR@` stands for the workdir.
    """
    files = [STAGES]
    if more is not None:
        files.append(layout.workdir / "kwok.yaml")
        files[-1].write_text(more.read_text().replace("@WORKDIR@", str(layout.workdir)))

    return [
        str(BIN / KWOK),
        f"--kubeconfig={layout.kubeconfig}",
        "--manage-all-nodes=true",
        *(f"--config={file}" for file in files),
        f"--server-address=127.0.0.1:{layout.ports[KWOK]}",
        "--node-lease-duration-seconds=0",
    ]


def _serving(layout: Layout, name: str) -> list[str]:
    """Where a component answers /healthz, with a certificate it makes itself."""
    return [
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.ports[name]}",
        f"--cert-dir={layout.workdir / name}",
    ]
