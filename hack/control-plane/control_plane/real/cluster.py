"""A cluster of real nodes: etcd, the components of Kubernetes, and for each node a containerd and a
kubelet.

Invariant: everything is a child of the keeper, so that it ends with its owner; what outlives
containerd (shims, containers, mounts) is `host.clean_up`'s. All addresses are this machine's own,
on bridges that the cluster makes.
"""

import concurrent.futures
import fcntl
import json
import os
import signal
import ssl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from control_plane import kubeconfig
from control_plane.api import Api
from control_plane.components import APISERVER, BIN, ETCD, HELM, ISSUER, KCM, KUBECTL, SCHEDULER
from control_plane.errors import ControlPlaneError
from control_plane.keeping import Keeping
from control_plane.pki import FRONT_PROXY, Authority
from control_plane.real import host
from control_plane.real.host import BRIDGE, CGROUP, POD_BRIDGE, STATE, run
from control_plane.real.images import Images

KUBELET, KUBE_PROXY = "kubelet", "kube-proxy"
SUBNET, PODS, SERVICES = "10.99.0", "10.98", "10.97"
ADDRESS, PORT = f"{SUBNET}.1", 6443
WITHIN_S = 120.0
CONTAINERD = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/run"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  disable_apparmor = true
  restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE a lower score is refused
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""


class RealCluster:
    """`nodes` real nodes, up while the `with` block runs. `say` gets a line of progress now and
    then.
    """

    def __init__(
        self, images: Images, *, nodes: int = 3, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.images, self._count, self._say = images, nodes, say
        self._keeping: Keeping | None = None
        self._lock: IO[str] | None = None
        self._authority: Authority | None = None
        self.kubeconfig = STATE / "kubeconfig"

    @property
    def names(self) -> list[str]:
        """The names of its nodes."""
        return [f"node-{number}" for number in range(1, self._count + 1)]

    def __enter__(self) -> Self:
        missing = [name for name in (KUBELET, KUBE_PROXY, APISERVER) if not (BIN / name).exists()]
        if missing:
            raise ControlPlaneError(
                f"{', '.join(missing)} is not built: run `make real-node`, which builds it."
            )
        self._lock = host.STATE.with_suffix(".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ControlPlaneError("Another cluster of real nodes runs on this machine.") from None
        host.clean_up()  # of a run that was killed outright
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    # --- what tests do with it -------------------------------------------------------------------

    def api(self) -> Api:
        """An administrator's client."""
        return Api(f"https://{ADDRESS}:{PORT}", self._context())

    def kubectl(self, *words: str | Path, text: str = "", within_s: float = WITHIN_S) -> str:
        """What kubectl prints as administrator. Raises ControlPlaneError with what it says when it
        fails.
        """
        return self._command(KUBECTL, *words, text=text, within_s=within_s)

    def helm(self, *words: str | Path, within_s: float = WITHIN_S) -> str:
        """The same for Helm."""
        return self._command(HELM, *words, within_s=within_s)

    def log_of(self, name: str) -> str:
        """The log of a component: `kubelet-node-1`, `kube-apiserver`."""
        return (STATE / "log" / f"{name}.log").read_text(errors="replace")

    def check(self) -> None:
        """Raise ControlPlaneError with the end of its log if a component has ended by itself."""
        for name, code in self._running().dead().items():
            raise ControlPlaneError(f"{name} ended with {code}: {self.log_of(name)[-600:]}")

    def kill_node(self, name: str) -> None:
        """SIGKILL its kubelet, containerd, shims and containers: the machine lost its power."""
        keeping = self._running()
        for part in (f"{KUBELET}-{name}", f"containerd-{name}"):
            os.kill(self._pids[part], signal.SIGKILL)
            keeping.stop(part)
        host.end_containers(name)

    def revive_node(self, name: str) -> None:
        """The machine has its power again."""
        self._start_containerd(name)
        self._start_kubelet(name)

    def kill_container(self, node: str, container_id: str) -> None:
        """SIGKILL to all processes of a container."""
        run(
            "ctr",
            "-a",
            self._socket(node),
            "-n",
            "k8s.io",
            "tasks",
            "kill",
            "-a",
            "-s",
            "SIGKILL",
            container_id,
        )

    def rss_mb(self, node: str, container_id: str) -> float:
        """The working set of a container in MB, as `kubectl top` would show it."""
        document = json.loads(
            run(
                "ctr",
                "-a",
                self._socket(node),
                "-n",
                "k8s.io",
                "tasks",
                "metrics",
                "--format",
                "json",
                container_id,
            )
        )
        memory = document.get("memory", document)
        inactive = memory.get("total_inactive_file", memory.get("inactive_file", 0))
        usage = memory.get("usage", {})
        return (int(usage["usage"] if isinstance(usage, dict) else usage) - int(inactive)) / 1e6

    # --- its life --------------------------------------------------------------------------------

    def _start(self) -> None:
        host.make_state()
        for folder in ("log", "pki"):
            (STATE / folder).mkdir(parents=True)
        host.save_parameters(STATE / "parameters")
        netns = [
            line.split()[0] for line in run("ip", "netns", "list", quiet=True).splitlines() if line
        ]
        (STATE / "namespaces").write_text("\n".join(netns))
        self._pids: dict[str, int] = {}
        self._keeping = Keeping(STATE / "log" / "keeper.log")
        self._make_network()
        self._make_certificates()
        self._start_control_plane()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(self._start_node, self.names))
        api = self.api()
        self._await(lambda: _ready(api) == set(self.names), f"{self._count} ready nodes")
        api.close()

    def _stop(self) -> None:
        if self._keeping is not None:
            self._keeping.close()
            self._keeping = None
        host.clean_up()
        if self._lock is not None:
            host.STATE.with_suffix(".lock").unlink(missing_ok=True)
            self._lock.close()

    def _make_network(self) -> None:
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{ADDRESS}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _make_certificates(self) -> None:
        folder = STATE / "pki"
        self._authority = authority = Authority(folder, "ca")
        front = Authority(folder, "front-proxy-ca")
        front.issue(FRONT_PROXY)
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        authority.issue(APISERVER, names=names, addresses=(ADDRESS, f"{SERVICES}.0.1"))
        authority.issue("admin", group="system:masters")
        run("openssl", "genrsa", "-out", folder / "sa.key", "2048")
        run("openssl", "rsa", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")
        self._write_kubeconfig(self.kubeconfig, "admin")

    def _write_kubeconfig(self, path: Path, name: str) -> None:
        folder = STATE / "pki"
        user = kubeconfig.certificate_user(folder / f"{name}.crt", folder / f"{name}.key")
        kubeconfig.write(
            path, url=f"https://{ADDRESS}:{PORT}", ca=folder / "ca.crt", user=user, name="real-node"
        )

    def _start_control_plane(self) -> None:
        pki = STATE / "pki"
        etcd, peer = "http://127.0.0.1:23790", "http://127.0.0.1:23800"
        self._run(
            ETCD,
            f"--data-dir={STATE / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        )
        self._run(
            APISERVER,
            f"--etcd-servers={etcd}",
            f"--cert-dir={STATE / 'run'}",
            f"--bind-address={ADDRESS}",
            f"--advertise-address={ADDRESS}",
            f"--secure-port={PORT}",
            f"--tls-cert-file={pki / APISERVER}.crt",
            f"--tls-private-key-file={pki / APISERVER}.key",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--service-cluster-ip-range={SERVICES}.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            f"--kubelet-client-certificate={pki / 'admin.crt'}",
            f"--kubelet-client-key={pki / 'admin.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--proxy-client-cert-file={pki / FRONT_PROXY}.crt",
            f"--proxy-client-key-file={pki / FRONT_PROXY}.key",
            f"--requestheader-client-ca-file={pki / 'front-proxy-ca.crt'}",
            f"--requestheader-allowed-names={FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        )
        api = self.api()
        self._await(lambda: api.healthy("/readyz"), "a ready API server")
        api.close()
        config = f"--kubeconfig={self.kubeconfig}"
        local = ("--bind-address=127.0.0.1", "--leader-elect=false")
        self._run(
            KCM,
            config,
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--service-account-private-key-file={pki / 'sa.key'}",
            "--use-service-account-credentials=true",
            # A node that lost its power is found after seconds; with the defaults it is a minute.
            "--node-monitor-grace-period=12s",
            "--secure-port=20257",
            *local,
        )
        self._run(SCHEDULER, config, "--secure-port=20259", *local)
        proxy = STATE / "kube-proxy.yaml"
        proxy.write_text(json.dumps(_proxy_config(self.kubeconfig)))
        self._run(KUBE_PROXY, f"--config={proxy}")

    def _start_node(self, name: str) -> None:
        number = int(name.rpartition("-")[2])
        folder, address = STATE / name, f"{SUBNET}.{10 + number}"
        for part in ("cni", "kubelet", "containerd", "run", "pod-logs"):
            (folder / part).mkdir(parents=True)
        run("ip", "addr", "add", f"{address}/32", "dev", BRIDGE)
        (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(_network(number, folder)))
        (folder / "containerd.toml").write_text(
            CONTAINERD.format(folder=folder, pause=self.images.pause.reference)
        )
        host.make_cgroup(name)
        assert self._authority is not None
        user = f"system:node:{name}"
        self._authority.issue(
            user, group="system:nodes", file=name, names=(name,), addresses=(address,)
        )
        self._write_kubeconfig(folder / "kubeconfig", name)
        (folder / "kubelet.yaml").write_text(json.dumps(_kubelet_config(name, folder, address)))
        self._start_containerd(name)
        for image in self.images.all():
            # A reference by digest is made by the import, from the archive's index.
            repository, _, digest = image.reference.partition("@")
            by_digest = ("--digests", "--base-name", repository) if digest else ()
            run(
                "ctr",
                "-a",
                self._socket(name),
                "-n",
                "k8s.io",
                "images",
                "import",
                *by_digest,
                image.archive,
            )
        self._start_kubelet(name)

    def _start_containerd(self, name: str) -> None:
        self._run_as(
            f"containerd-{name}",
            "/usr/bin/containerd",
            "--config",
            STATE / name / "containerd.toml",
        )
        socket = self._socket(name)
        # prints its own version, too, with or without an answer
        asks = ("ctr", "-a", socket, "version")
        self._await(lambda: "Server:" in run(*asks, quiet=True), f"the containerd of {name}")

    def _start_kubelet(self, name: str) -> None:
        folder = STATE / name
        self._run_as(
            f"{KUBELET}-{name}",
            BIN / KUBELET,
            f"--config={folder / 'kubelet.yaml'}",
            f"--kubeconfig={folder / 'kubeconfig'}",
            f"--root-dir={folder / 'kubelet'}",
            f"--hostname-override={name}",
            f"--node-ip={SUBNET}.{10 + int(name.rpartition('-')[2])}",
        )

    # --- inside ----------------------------------------------------------------------------------

    def _run(self, name: str, *flags: str) -> None:
        self._run_as(name, BIN / name, *flags)

    def _run_as(self, name: str, *argv: str | Path) -> None:
        self._pids[name] = self._running().start(name, argv, STATE / "log" / f"{name}.log")

    def _running(self) -> Keeping:
        if self._keeping is None:
            raise ControlPlaneError("This cluster does not run.")
        return self._keeping

    def _socket(self, node: str) -> Path:
        return STATE / node / "containerd.sock"

    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(STATE / "pki" / "ca.crt"))
        context.load_cert_chain(STATE / "pki" / "admin.crt", STATE / "pki" / "admin.key")
        return context

    def _command(
        self, program: Path, *words: str | Path, text: str = "", within_s: float = WITHIN_S
    ) -> str:
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(STATE)}
        argv = [str(word) for word in (program, *words)]
        done = subprocess.run(
            argv,
            input=text,
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
            env=environment,
        )
        if done.returncode:
            raise ControlPlaneError(
                f"{program.name} {' '.join(argv[1:4])} …: {done.stderr.strip()[-600:]}"
            )
        return done.stdout

    def _await(self, holds: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while True:
            self.check()
            try:
                if holds():
                    return
            except (OSError, ControlPlaneError):
                pass
            if time.monotonic() > deadline_s:
                raise ControlPlaneError(f"There is still not {what} after {WITHIN_S:g} s.")
            time.sleep(0.2)


def _ready(api: Api) -> set[str]:
    """The names of ready nodes."""
    return {
        node["metadata"]["name"]
        for node in api.list("/api/v1/nodes").items
        if any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in node["status"].get("conditions", ())
        )
    }


def _network(number: int, folder: Path) -> dict[str, object]:
    """Pods of a node on a bridge of its own."""
    ranges = [[{"subnet": f"{PODS}.{number}.0/24"}]]
    addresses = {
        "type": "host-local",
        "dataDir": str(folder / "addresses"),
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": f"{POD_BRIDGE}{number}",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    return {"cniVersion": "1.0.0", "name": "real-node", "plugins": [bridge]}


def _proxy_config(config: Path) -> dict[str, object]:
    """One kube-proxy for all nodes, which share this machine's tables; it leaves connection
    tracking alone.
    """
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clusterCIDR": f"{PODS}.0.0/16",
        "clientConnection": {"kubeconfig": str(config)},
        "hostnameOverride": "node-1",
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpCloseWaitTimeout": "0s",
            "tcpEstablishedTimeout": "0s",
        },
        "healthzBindAddress": "127.0.0.1:20256",
        "metricsBindAddress": "127.0.0.1:20249",
        "nodePortAddresses": [f"{SUBNET}.0/24"],
    }


def _kubelet_config(name: str, folder: Path, address: str) -> dict[str, object]:
    """cgroup v1 or v2, a cgroup root of its own, and heartbeats that are soon missed."""
    pki = STATE / "pki"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{CGROUP}/{name}",
        "containerRuntimeEndpoint": f"unix://{folder / 'containerd.sock'}",
        "address": address,
        "healthzBindAddress": address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki / f"{name}.crt"),
        "tlsPrivateKeyFile": str(pki / f"{name}.key"),
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "plugins"),
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 8,
        "registerNode": True,
    }
