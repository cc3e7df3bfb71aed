"""What is made from the manifests: manifests/install.yaml. `make packages` writes, tests check.

Law: nothing of what is made is edited by hand. install.yaml is what kustomize makes of manifests/.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from control_plane.components import KUBECTL

ROOT = Path(__file__).resolve().parents[1]
INSTALL = ROOT / "manifests" / "install.yaml"


def kustomized(folder: Path) -> str:
    """What `kubectl apply -k` would send."""
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"kubectl kustomize {folder}: {done.stderr.strip()}")
    return done.stdout


def install_yaml() -> str:
    """manifests/ as one file."""
    return f"# Made from manifests/ by `make packages`.\n{kustomized(ROOT / 'manifests')}"


def main() -> None:
    """Write what is made."""
    INSTALL.write_text(install_yaml())


if __name__ == "__main__":
    main()
