"""The README on real nodes: install.yaml, then the demo's scenes with real containers."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from pathlib import Path

import pytest
from control_plane.api import Object
from control_plane.components import BIN
from control_plane.real.images import Images

from tests.real_node.stage import (
    FROM_DIST,
    INSTALL,
    NAMESPACE,
    Stage,
    container_id,
    gang,
    say,
    step,
)

pytestmark = pytest.mark.real_node

ROOT = Path(__file__).resolve().parents[2]
#: In MB, of the image beside its base, of a release's compressed one, and of a replica that has
#: just started (docs/install.md has what is measured).
MOST_BESIDE_THE_BASE, MOST_COMPRESSED, MOST_WORKING_SET = 110, 95, 150
SEEN_EVERY_S = 0.1


class Starts:
    """How long each replica takes from when it is first seen to when it is Ready, while the block
    runs.
    """

    def __init__(self, stage: Stage) -> None:
        self._api = stage.cluster.api()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._created_s, self.took_s = dict[str, float](), dict[str, float]()

    def __enter__(self) -> Starts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._api.close()

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._ends.wait(SEEN_EVERY_S)  # and once more, for who became ready last
            for pod in self._api.list(f"/api/v1/namespaces/{NAMESPACE}/pods").items:
                name, now_s = pod["metadata"]["name"], time.monotonic()
                created_s = self._created_s.setdefault(name, now_s)
                ready = any(
                    each["type"] == "Ready" and each["status"] == "True" for each in conditions(pod)
                )
                if ready:
                    self.took_s.setdefault(name, now_s - created_s)


def conditions(pod: Object) -> list[Object]:
    """The conditions of its status."""
    return list(pod["status"].get("conditions", ()))


def check_size(images: Images) -> None:
    """The image is no larger than docs/install.md says; that of a release is compressed."""
    size_mb = images.gangsched.size_mb
    if FROM_DIST:
        say(f"image {size_mb:.0f} MB, compressed")
        assert size_mb <= MOST_COMPRESSED, "see hack/image/trim.py"
        return
    beside_mb = size_mb - images.python.size_mb
    say(f"image {size_mb:.0f} MB, {beside_mb:.0f} MB of it beside the base")
    assert beside_mb <= MOST_BESIDE_THE_BASE, "see hack/image/trim.py"


def test_install_as_the_readme_says(stage: Stage, images: Images) -> None:
    """Both replicas become ready, and a gang of a PodGroup starts: PodGroups are read in the
    shipped image.
    """
    with (
        step("kubectl apply -f install.yaml, until both replicas are ready"),
        Starts(stage) as starts,
    ):
        stage.cluster.kubectl("apply", "--server-side", "-f", INSTALL)
        stage.rolled_out()
    with step("a gang of three runs"):
        stage.apply(*gang("first", 3))
        stage.until(lambda: len(stage.running("first-")) == 3, "three running members")
    sets = [
        stage.cluster.rss_mb(pod["spec"]["nodeName"], container_id(pod)) for pod in stage.replicas()
    ]
    say(f"created to ready {', '.join(f'{took_s:.1f}' for took_s in starts.took_s.values())} s")
    say(f"working set {', '.join(f'{each:.0f}' for each in sets)} MB")
    check_size(images)
    assert max(sets) <= MOST_WORKING_SET
    stage.clear()


def test_the_scenes_of_the_demo(stage: Stage, tmp_path: Path) -> None:
    """hack/kind/demo.sh as it is: every claim holds with real kubelets."""
    for name in ("kind", "docker"):
        (tmp_path / name).symlink_to(Path(__file__).with_name("shim.sh"))
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{BIN}:{os.environ['PATH']}",
        "REAL_NODE_KUBECONFIG": str(stage.cluster.kubeconfig),
    }
    with step("the scenes of hack/kind/demo.sh"):
        played = subprocess.run(
            [ROOT / "hack/kind/demo.sh"],
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
            env=environment,
        )
    assert played.returncode == 0, f"{played.stdout[-2500:]}\n{played.stderr[-1500:]}"
    stage.clear()


def test_the_api_of_gangs_is_installed(stage: Stage) -> None:
    """Taken out and put back: no replica that leads serves the API then, and the rollout must end
    all the same.
    """
    apply = ("apply", "--server-side", "--force-conflicts")
    stage.until(
        lambda: stage.cluster.kubectl("get", "gangs", "-A") is not None,
        "an answer to kubectl get gangs",
    )
    with step("kubectl apply -k overlays/no-gangs-api"):
        stage.cluster.kubectl("delete", "apiservice", "v1alpha1.visibility.gangsched.dev")
        stage.cluster.kubectl(*apply, "-k", ROOT / "overlays/no-gangs-api")
        stage.rolled_out()
    with step("kubectl apply -f manifests/install.yaml"):
        stage.cluster.kubectl(*apply, "-f", ROOT / "manifests/install.yaml")
        stage.rolled_out()
    stage.until(
        lambda: stage.cluster.kubectl("get", "gangs", "-A") is not None,
        "an answer to kubectl get gangs",
    )
