"""The machine under the nodes: what it must have, and what is put back in order on it.

Invariant: a machine that cannot carry real nodes is `UnsuitableError` with one sentence, before
anything is changed on it.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

#: Debian's packages, each by a file that it installs.
PACKAGES = {
    "containerd": "/usr/bin/containerd",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "nftables": "/usr/sbin/nft",
    "iptables": "/usr/sbin/iptables",
    "conntrack": "/usr/sbin/conntrack",
    "buildah": "/usr/bin/buildah",
    "debootstrap": "/usr/sbin/debootstrap",
    "iproute2": "/usr/sbin/ip",
}
#: Files of a fixed place, so that the next run finds what a killed one left.
STATE = Path("/var/tmp/gangsched-real-node")
#: Three nodes unpack about 2 GB. They are kept in memory where much more of it is free: on a disk
#: that is told of every block that becomes free (mount option `discard`) their removal takes
#: minutes.
STATE_BYTES, FREE_BYTES = 6 << 30, 10 << 30
BRIDGE, POD_BRIDGE = "gsrn0", "gsrn-pods"
CGROUP = "gangsched-real-node"
CGROUPS = Path("/sys/fs/cgroup")
#: Of cgroup v1 and v2: sixteen times the default.
SHARES = {"cpu.shares": "16384", "cpu.weight": "1600"}
#: Parameters that the kubelet or we change.
PARAMETERS = (
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


class UnsuitableError(Exception):
    """The machine cannot carry real nodes: one sentence."""


def run(*argv: str | Path, within_s: float = 120.0, quiet: bool = False, **environment: str) -> str:
    """Run a program to its end; what it prints. Raises RuntimeError with the end of its errors
    unless `quiet`.
    """
    done = subprocess.run(
        [str(word) for word in argv],
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode and not quiet:
        told = (done.stderr.strip() or done.stdout.strip()).splitlines()[-5:]
        raise RuntimeError(
            f"{' '.join(map(str, argv[:4]))} … ended with {done.returncode}: {' | '.join(told)}"
        )
    return done.stdout


def prepare() -> None:
    """Install what is missing. Raises UnsuitableError."""
    if os.geteuid() != 0:
        raise UnsuitableError(
            "real nodes need root: containers, network namespaces and cgroups are made"
        )
    missing = [name for name, file in PACKAGES.items() if not Path(file).exists()]
    if missing:
        names = f"real nodes need {', '.join(missing)}, which"
        if shutil.which("apt-get") is None:
            raise UnsuitableError(f"{names} are not there, and neither is apt-get to install them")
        install = ("apt-get", "install", "-y", "-q", "--no-install-recommends", *missing)
        try:
            run("apt-get", "update", "-q", within_s=300)
            run(*install, within_s=600, DEBIAN_FRONTEND="noninteractive")
        except RuntimeError as error:
            raise UnsuitableError(f"{names} cannot be installed: {error}") from error
    _try_kernel()


def _try_kernel() -> None:
    """Mount an overlay, and make a bridge and a table, as the nodes will.
    Raises UnsuitableError.
    """
    STATE.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="gangsched-try-", dir=STATE.parent))
    try:
        lower, upper, work, merged = (
            folder / name for name in ("lower", "upper", "work", "merged")
        )
        for each in (lower, upper, work, merged):
            each.mkdir()
        layers = f"lowerdir={lower},upperdir={upper},workdir={work}"
        for what, make, undo in (
            (
                "overlayfs",
                ("mount", "-t", "overlay", "overlay", "-o", layers, merged),
                ("umount", merged),
            ),
            (
                "bridges",
                ("ip", "link", "add", "gsrn-try", "type", "bridge"),
                ("ip", "link", "del", "gsrn-try"),
            ),
            (
                "nf_tables",
                ("nft", "add", "table", "ip", "gsrn-try"),
                ("nft", "delete", "table", "ip", "gsrn-try"),
            ),
        ):
            try:
                run(*make)
            except RuntimeError as error:
                raise UnsuitableError(
                    f"real nodes need {what}, which this kernel does not give us: {error}"
                ) from error
            run(*undo)
        if not cgroup_roots():
            raise UnsuitableError("real nodes need cgroups, and none are mounted")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cgroup_roots() -> list[Path]:
    """The root of cgroup v2, or of each controller of v1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return (
        [path for path in CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]
        if CGROUPS.is_dir()
        else []
    )


def make_cgroup(name: str) -> None:
    """A cgroup under all roots; a new cpuset of v1 is empty, and takes no process until it is told
    its CPUs.
    """
    for root in cgroup_roots():
        path = root
        for part in Path(CGROUP, name).parts:
            path /= part
            path.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                if (path / file).exists() and (path.parent / file).read_text().strip():
                    with contextlib.suppress(OSError):
                        (path / file).write_text((path.parent / file).read_text())
        # All containers are one group, which otherwise has the share of a single busy process
        # beside it.
        for file, share in SHARES.items():
            if (root / CGROUP / file).exists():
                (root / CGROUP / file).write_text(share)


def make_state() -> None:
    """Create STATE, in memory if there is enough; for `clean_up` to remove."""
    STATE.mkdir(parents=True)
    free = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    if free is not None and int(free[1]) * 1024 >= FREE_BYTES:
        run(
            "mount",
            "-t",
            "tmpfs",
            "-o",
            f"size={STATE_BYTES},mode=755",
            "gangsched-real-node",
            STATE,
        )


def save_parameters(file: Path) -> None:
    """Note the kernel parameters, for `clean_up`."""
    found = {name: Path("/proc/sys", name) for name in PARAMETERS}
    file.write_text(
        "".join(f"{name}={path.read_text()}" for name, path in found.items() if path.exists())
    )


def clean_up() -> None:
    """Remove all that a cluster left, however it ended; idempotent, and quick where there is
    nothing.
    """
    if not STATE.exists():
        return
    _end_processes()
    _unmount()
    for line in run("ip", "-o", "link", "show", quiet=True).splitlines():
        name = line.split(": ")[1].partition("@")[0]
        if name == BRIDGE or name.startswith(POD_BRIDGE):
            run("ip", "link", "del", name, quiet=True)
    for family in ("ip", "ip6"):
        run("nft", "delete", "table", family, "kube-proxy", quiet=True)
    for root in cgroup_roots():
        _remove_cgroup(root / CGROUP)
    parameters = STATE / "parameters"
    for line in parameters.read_text().splitlines() if parameters.exists() else ():
        name, _, value = line.partition("=")
        with contextlib.suppress(OSError):
            Path("/proc/sys", name).write_text(value)
    if str(STATE) in _mounts():
        run("umount", "-l", STATE, quiet=True)
    shutil.rmtree(STATE, ignore_errors=True)


def end_containers(node: str) -> None:
    """SIGKILL to the shims and containers of one node."""
    for pid in {*_pids_with(f"{STATE / node}/"), *_pids_in_cgroups(node)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _end_processes() -> None:
    """End what runs from STATE: shims, and the containers in our cgroups, outlive the containerd
    that started them.
    """
    for _ in range(50):
        pids = {*_pids_with(str(STATE)), *_pids_in_cgroups()} - {os.getpid()}
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _pids_with(text: str) -> Iterable[int]:
    """Shims whose command line names `text`."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "containerd-shim" in words[0] and any(text in word for word in words):
                    yield int(entry.name)


def _pids_in_cgroups(node: str = "") -> Iterable[int]:
    for root in cgroup_roots():
        for folder, _, files in os.walk(root / CGROUP / node):
            if "cgroup.procs" in files:
                with contextlib.suppress(OSError):
                    yield from map(int, Path(folder, "cgroup.procs").read_text().split())


def _unmount() -> None:
    """Unmount what is mounted below STATE, the deepest first, and remove the network namespaces of
    pods.
    """
    namespaces = (
        (STATE / "namespaces").read_text().split() if (STATE / "namespaces").exists() else None
    )
    for mount in sorted(
        (mount for mount in _mounts() if mount.startswith(f"{STATE}/")), reverse=True
    ):
        run("umount", "-l", mount, quiet=True)
    if namespaces is not None:
        for line in run("ip", "netns", "list", quiet=True).splitlines():
            name = line.split()[0]
            if name.startswith("cni-") and name not in namespaces:
                run("ip", "netns", "del", name, quiet=True)


def _mounts() -> list[str]:
    return [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def _remove_cgroup(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
