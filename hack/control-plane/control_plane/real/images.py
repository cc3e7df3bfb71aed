"""Images without a registry: pause, a stand-in for python:3.13-slim from Debian, and gangsched by
its own Dockerfile.

Invariant: the project's Dockerfile is built as it is. An archive appears under its name only when
it is complete, and is made again when what it is made of has changed. Nothing is written but below
the cache folder.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from control_plane.real.host import run

ROOT = Path(__file__).resolve().parents[4]
CACHE = ROOT / ".cache" / "real-node"
#: What is built is no business of the machine's own store of images.
STORE = ("--root", CACHE / "storage", "--runroot", CACHE / "run", "--storage-driver", "overlay")
SUITE = "trixie"
PAUSE = "registry.k8s.io/pause:3.10"
BASE = "docker.io/library/python:3.13-slim"
GANGSCHED = "ghcr.io/gangsched/gangsched:0.1.0"
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
#: What a registry's python image does not need, and what of Debian is only for people.
WASTE = (
    "var/cache/apt/archives",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)


@dataclass(frozen=True)
class Image:
    """An image by its reference, as an archive that containerd imports."""

    reference: str
    archive: Path

    @property
    def size_mb(self) -> float:
        """Of the archive, in MB. One that was built here is not compressed: what a node's disk
        holds.
        """
        return self.archive.stat().st_size / 1e6


@dataclass(frozen=True)
class Images:
    """All that a cluster runs."""

    pause: Image
    python: Image
    gangsched: Image

    def all(self) -> tuple[Image, ...]:
        """Each of them."""
        return (self.pause, self.python, self.gangsched)


def build(say: Callable[[str], None]) -> Images:
    """Build what is not up to date. Raises RuntimeError with the end of what failed."""
    (CACHE / "images").mkdir(parents=True, exist_ok=True)
    pause = _made("pause", PAUSE, _text(ROOT / "hack" / "real-node" / "pause"), _pause, say)
    python = _made("python", BASE, SUITE, _python, say)
    return Images(
        pause,
        python,
        _made("gangsched", GANGSCHED, "".join(map(_text, _sources())), _gangsched, say),
    )


def export(image: Image, archive: Path) -> str:
    """Write a built image as an OCI archive; returns the digest by which a registry would
    serve it.
    """
    archive.unlink(missing_ok=True)
    digest = archive.with_suffix(".digest")
    words = ("--digestfile", digest, image.reference, f"oci-archive:{archive}:{image.reference}")
    _buildah("push", "-q", *words)
    found = digest.read_text().strip()
    digest.unlink()
    return found


def _made(
    name: str, reference: str, source: str, make: Callable[[], None], say: Callable[[str], None]
) -> Image:
    image, stamp = (
        Image(reference, CACHE / "images" / f"{name}.tar"),
        CACHE / "images" / f"{name}.stamp",
    )
    wanted = hashlib.sha256(source.encode()).hexdigest()
    if not (image.archive.exists() and stamp.exists() and stamp.read_text() == wanted):
        say(f"building the image {reference}")
        make()
        partial = image.archive.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        _buildah("push", "-q", reference, f"docker-archive:{partial}:{reference}")
        partial.replace(image.archive)
        stamp.write_text(wanted)
    return image


def _sources() -> Iterator[Path]:
    """The files that the Dockerfile copies, and itself."""
    for name in (
        "Dockerfile",
        ".dockerignore",
        "pyproject.toml",
        "uv.lock",
        "README.md",
        "LICENSE",
    ):
        yield ROOT / name
    yield ROOT / "hack" / "image" / "trim.py"
    yield from sorted(
        path for path in (ROOT / "gangsched").rglob("*") if path.suffix != ".pyc" and path.is_file()
    )


def _text(path: Path) -> str:
    if path.is_dir():
        return "".join(_text(each) for each in sorted(path.iterdir()))
    return f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\0"


def _buildah(*words: str | Path, within_s: float = 900.0) -> str:
    """buildah with a store of our own."""
    return run("buildah", *STORE, *words, within_s=within_s, BUILDAH_ISOLATION="chroot")


def _pause() -> None:
    program = CACHE / "pause"
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-trimpath",
    }
    subprocess.run(
        [_go(), "build", "-ldflags", "-s -w", "-o", program, "."],
        cwd=ROOT / "hack" / "real-node" / "pause",
        env=environment,
        check=True,
        capture_output=True,
    )
    container = _buildah("from", "scratch").strip()
    _buildah("copy", "-q", container, program, "/pause")
    _buildah("config", "--entrypoint", '["/pause"]', "--user", "65535:65535", container)
    _buildah("commit", "-q", "--rm", container, PAUSE)


def _go() -> str:
    """The toolchain that built the control plane: that of PATH, or the one that
    build.py installed.
    """
    private = sorted((ROOT / ".cache" / "control-plane").glob("go-*/bin/go"))
    return str(private[-1]) if private else shutil.which("go") or "go"


def _python() -> None:
    """Debian's Python where an image from Docker has its own, and pip, which the Dockerfile begins
    with.
    """
    root = CACHE / SUITE
    if not root.exists():
        partial = root.with_suffix(".partial")
        _detach(partial)  # of a run that was killed
        shutil.rmtree(partial, ignore_errors=True)
        run(
            "debootstrap",
            "--variant=minbase",
            "--include=python3,python3-venv,ca-certificates",
            SUITE,
            partial,
            *_mirror(),
            within_s=900,
        )
        _detach(partial)
        partial.rename(root)
    for name in ("python", "python3"):
        link = root / "usr/local/bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to("/usr/bin/python3")
    for marker in (root / "usr/lib").glob("python3*/EXTERNALLY-MANAGED"):
        marker.unlink()
    (wheel,) = (root / "usr/share/python-wheels").glob("pip-*.whl")
    pip = f"/usr/share/python-wheels/{wheel.name}"
    run(
        "chroot",
        root,
        "python3",
        f"{pip}/pip",
        "install",
        "-q",
        "--root-user-action=ignore",
        "--no-index",
        pip,
    )
    # The machine's authorities: it may reach the package index through a proxy that has one of its
    # own.
    shutil.copyfile(AUTHORITIES, root / "etc/ssl/certs/ca-certificates.crt")
    for waste in WASTE:
        shutil.rmtree(root / waste, ignore_errors=True)
    container = _buildah("from", "scratch").strip()
    _buildah("copy", "-q", container, root, "/")
    path = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    authorities = "/etc/ssl/certs/ca-certificates.crt"
    variables = {
        "PATH": path,
        "LANG": "C.UTF-8",
        "PIP_CERT": authorities,
        "SSL_CERT_FILE": authorities,
    }
    flags = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
    _buildah("config", "--cmd", "python3", *flags, container)
    _buildah("commit", "-q", "--rm", container, BASE)


def _detach(root: Path) -> None:
    """Unmount what debootstrap mounts for maintainer scripts; it cannot itself while anybody else
    reads there.
    """
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        if line.split()[4].startswith(f"{root}/"):
            run("umount", "-l", line.split()[4])


def _mirror() -> tuple[str, ...]:
    """The Debian mirror that this machine's apt uses; nothing for debootstrap's own choice."""
    sources = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    for file in (file for file in sources if file.is_file()):
        for line in file.read_text(errors="replace").splitlines():
            found = re.match(
                r"(?:URIs:\s*|deb\s+(?:\[.*\]\s+)?)(https?://\S+/debian)/?(?:\s|$)", line
            )
            if found:
                return (found[1],)
    return ()


def _gangsched() -> None:
    """The project's own Dockerfile, as it is, by `make image` from a base by its tag."""
    flags = ("-q", "--network", "host", "--isolation", "chroot", "--pull=never", "--layers=false")
    builder = " ".join(map(str, ("buildah", *STORE, "bud", *flags)))
    words = ("image", f"BUILD={builder}", f"BASE={BASE}", f"IMAGE={GANGSCHED}")
    run("make", "-C", ROOT, *words, within_s=900.0, MAKEFLAGS="", BUILDAH_ISOLATION="chroot")
