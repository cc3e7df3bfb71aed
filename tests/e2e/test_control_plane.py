"""The control plane itself: it serves, it leaves nothing behind, and kwok plays the kubelets we
need.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from control_plane import ControlPlane, ControlPlaneError
from control_plane.api import Api, ApiError, Object
from control_plane.applying import DEFINITIONS, apply, remove_definition
from control_plane.following import Following
from control_plane.objects import RUN_SECONDS, create_all, node, pod

from tests.e2e import definitions

pytestmark = pytest.mark.e2e

PODS = "/api/v1/namespaces/default/pods"

T = TypeVar("T")


def eventually(look: Callable[[], T | None], *, within_s: float) -> T:
    """The first thing `look` returns that is not None or False, or a failure when the time
    is up.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline_s:
            pytest.fail(f"not within {within_s} s: {look}")
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes_of(workdir: Path) -> set[int]:
    """Processes whose command line or current directory names `workdir`."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            told = (entry / "cmdline").read_bytes().decode(errors="replace") + os.readlink(
                entry / "cwd"
            )
            if str(workdir) in told and alive(int(entry.name)):
                found.add(int(entry.name))
    return found


@contextlib.contextmanager
def foreground(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path, set[int]]]:
    """`python -m control_plane` once it is ready: the process, its working directory, its
    components' pids.
    """
    argv = [sys.executable, "-m", "control_plane", *arguments]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("export KUBECONFIG="), process.communicate()[1]
        workdir = Path(line.strip().removeprefix("export KUBECONFIG=")).parent
        yield process, workdir, processes_of(workdir)
    finally:
        process.kill()
        process.communicate()


# --- nothing stays behind -----------------------------------------------------------------------


def test_stop_leaves_neither_process_nor_file() -> None:
    """After `stop()` every component has ended and the temporary directory is gone; a second stop
    does nothing.
    """
    plane = ControlPlane(kcm=True, kwok=True, scheduler=True)
    plane.start()
    pids, workdir = dict(plane.pids), plane.workdir
    assert list(pids) == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok",
    ]
    assert all(map(alive, pids.values()))
    plane.stop()
    plane.stop()
    assert not any(map(alive, pids.values()))
    assert processes_of(workdir) == set()
    assert not workdir.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_foreground_command_cleanly(number: signal.Signals) -> None:
    """Ctrl-C, a polite kill and a closed terminal all end `python -m control_plane` with exit code
    0, nothing left.
    """
    with foreground() as (process, workdir, pids):
        assert len(pids) >= 2
        process.send_signal(number)
        assert process.wait(20) == 0
        assert not any(map(alive, pids))
        assert not workdir.exists()


def test_a_ctrl_c_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    """A ctrl-C in the middle of the start ends what has been started so far."""
    argv = [sys.executable, "-m", "control_plane", "--workdir", str(tmp_path)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    eventually((tmp_path / "logs" / "kube-apiserver.log").exists, within_s=20)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=20)[0] == ""
    assert processes_of(tmp_path) == set()


def test_kill_9_of_the_owner_leaves_nothing() -> None:
    """When the owner is killed outright, its processes and files are gone a few seconds later."""
    with foreground("--kwok") as (process, workdir, pids):
        assert len(pids) >= 3
        process.kill()
        eventually(lambda: not any(map(alive, pids)) and not workdir.exists(), within_s=15)


def test_kill_9_of_the_keeper_takes_the_components_with_it() -> None:
    """The kernel ends the components of a killed keeper, and the owner is told."""
    with ControlPlane() as plane:
        pids = list(plane.pids.values())
        keeper = int(Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(keeper, signal.SIGKILL)
        eventually(lambda: not any(map(alive, pids)), within_s=10)
        with pytest.raises(ControlPlaneError, match="keeper"):
            plane.check()
    assert not plane.workdir.exists()


def test_a_stopped_component_is_killed_all_the_same() -> None:
    """A component that hangs (SIGSTOP) does not keep `stop()` from ending it within its grace."""
    plane = ControlPlane()
    plane.start()
    pids = list(plane.pids.values())
    os.kill(plane.pids["kube-apiserver"], signal.SIGSTOP)
    plane.stop()
    assert not any(map(alive, pids))


def test_started_from_a_thread_that_ends() -> None:
    """The components live on when the thread that started them is gone."""
    plane = ControlPlane()
    starter = threading.Thread(target=plane.start)
    starter.start()
    starter.join()
    try:
        assert all(map(alive, plane.pids.values()))
        plane.check()
    finally:
        plane.stop()


# --- what people read when it does not start ----------------------------------------------------


def test_a_component_that_dies_is_named_with_its_last_words() -> None:
    """The error of a failed start names the component and quotes its log; nothing is
    left running.
    """
    plane = ControlPlane(feature_gates={"NoSuchGate": True})
    with pytest.raises(ControlPlaneError, match=r"(?s)kube-apiserver died.*NoSuchGate"):
        plane.start()
    assert processes_of(plane.workdir) == set()
    assert not plane.workdir.exists()


def test_a_death_later_on_is_noticed() -> None:
    """`check()` says which component died after the start."""
    with ControlPlane() as plane:
        plane.check()
        os.kill(plane.pids["etcd"], signal.SIGKILL)

        def noticed() -> str | None:
            try:
                plane.check()
            except ControlPlaneError as error:
                return str(error)
            return None

        assert eventually(noticed, within_s=10).startswith("etcd died of signal 9")


def test_a_scheduler_configuration_without_our_address_is_refused(tmp_path: Path) -> None:
    """A kube-scheduler configuration with no place for our kubeconfig is refused in
    one sentence.
    """
    config = tmp_path / "scheduler.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    )
    with pytest.raises(ControlPlaneError, match="@KUBECONFIG@"):
        ControlPlane(scheduler=config).start()


# --- it serves ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server with kwok, shared by the tests that only use it."""
    with ControlPlane(kwok=True) as running:
        yield running


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """The admin's client."""
    api = Api.of(plane)
    yield api
    api.close()


def test_the_admin_kubeconfig_is_complete(plane: ControlPlane, tmp_path: Path) -> None:
    """The admin's kubeconfig works with an ordinary client, also as a copy elsewhere."""
    copy = tmp_path / "copy"
    copy.write_bytes(plane.kubeconfig.read_bytes())

    async def namespaces() -> set[str]:
        from kubernetes_asyncio import client, config

        await config.load_kube_config(str(copy))
        async with client.ApiClient() as api:
            listed = await client.CoreV1Api(api).list_namespace()
            return {item.metadata.name for item in listed.items}

    assert "default" in asyncio.run(namespaces())
    assert plane.kubeconfig.stat().st_mode & 0o077 == 0


def test_a_token_is_its_service_account_and_nothing_more(
    plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    """A ServiceAccount's kubeconfig authenticates as that account, and RBAC refuses what nobody
    granted.
    """
    api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "nobody"}})
    path = plane.write_kubeconfig(
        tmp_path / "kubeconfig", token=plane.service_account_token("default", "nobody")
    )

    async def who_and_what() -> tuple[str, int]:
        from kubernetes_asyncio import client, config

        await config.load_kube_config(str(path))
        async with client.ApiClient() as theirs:
            review = await client.AuthenticationV1Api(theirs).create_self_subject_review({})
            try:
                await client.CoreV1Api(theirs).list_node()
            except client.ApiException as error:
                return review.status.user_info.username, error.status
            return review.status.user_info.username, 200

    assert asyncio.run(who_and_what()) == ("system:serviceaccount:default:nobody", 403)
    with pytest.raises(ControlPlaneError, match="default/ghost"):
        plane.service_account_token("default", "ghost")


def test_feature_gates_and_runtime_config_arrive() -> None:
    """With its gate and its API version switched on, the server serves native gangs."""
    with ControlPlane(
        feature_gates={"GenericWorkload": True},
        runtime_config=["scheduling.k8s.io/v1alpha2=true"],
        for_load=True,
    ) as plane:
        answer = Api.of(plane).get("/apis/scheduling.k8s.io/v1alpha2")
        assert "podgroups" in {resource["name"] for resource in answer["resources"]}


def test_the_api_server_comes_back_with_its_data(tmp_path: Path) -> None:
    """One component can be stopped and started again; address, data and the given
    directory stay.
    """
    with ControlPlane(tmp_path) as plane:
        api = Api.of(plane)
        api.post("/api/v1/namespaces", {"metadata": {"name": "kept"}})
        plane.stop_component("kube-apiserver")
        assert not api.healthy("/readyz")
        plane.check()
        plane.start_component("kube-apiserver")
        assert api.get("/api/v1/namespaces/kept")["status"]["phase"] == "Active"
    assert (tmp_path / "logs" / "kube-apiserver.log").exists()


# --- kwok's part --------------------------------------------------------------------------------


def make_node(api: Api, body: Object) -> Object:
    """Create a node; its form once it is Ready."""
    name = api.post("/api/v1/nodes", body)["metadata"]["name"]

    def ready() -> Object | None:
        node = api.get(f"/api/v1/nodes/{name}")
        conditions = {item["type"]: item["status"] for item in node["status"].get("conditions", [])}
        return node if conditions.get("Ready") == "True" else None

    return eventually(ready, within_s=10)


def make_bound_pod(api: Api, name: str, on: str, run_seconds: str | None = None) -> None:
    """Create a pod and bind it, as a scheduler does."""
    annotations = {} if run_seconds is None else {RUN_SECONDS: run_seconds}
    api.post(PODS, pod(name, annotations=annotations, scheduler_name="nobody"))
    api.bind("default", name, on)


def phase(api: Api, name: str) -> str:
    """A pod's phase, `gone` when there is no such pod."""
    try:
        return str(api.get(f"{PODS}/{name}")["status"]["phase"])
    except ApiError as error:
        if error.status != 404:
            raise
        return "gone"


def test_a_node_becomes_ready_as_it_was_made(api: Api) -> None:
    """A fake node becomes Ready, without a taint, its fake GPUs untouched; one without allocatable
    stays without.
    """
    asked = node("gpus")
    made = make_node(api, asked)
    assert made["status"]["allocatable"] == asked["status"]["allocatable"]
    assert "taints" not in made["spec"]
    assert "allocatable" not in make_node(api, {**node("bare"), "status": {}})["status"]


def test_a_pod_runs_once_it_is_bound_and_goes_once_it_is_deleted(api: Api) -> None:
    """A bound pod runs, and stays so; deleting it removes it."""
    make_node(api, node("runs"))
    make_bound_pod(api, "server", "runs")
    eventually(lambda: phase(api, "server") == "Running", within_s=10)
    stored = api.get(f"{PODS}/server")["status"]["conditions"]
    conditions = {item["type"]: item["status"] for item in stored}
    assert conditions == {
        "PodScheduled": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }
    assert api.delete(f"{PODS}/server", grace_s=None)
    eventually(lambda: phase(api, "server") == "gone", within_s=10)


def test_a_pod_ends_after_its_run_seconds_however_often_it_changes(api: Api) -> None:
    """A pod with run-seconds 3 succeeds after about 3 s, even when its status is written all the
    while.
    """
    make_node(api, node("batch"))
    make_bound_pod(api, "job", "batch", run_seconds="3")
    eventually(lambda: phase(api, "job") != "Pending", within_s=10)
    running_s = time.monotonic()

    def ended() -> bool:
        api.patch(
            f"{PODS}/job/status", {"metadata": {"annotations": {"seen": str(time.monotonic())}}}
        )
        return phase(api, "job") == "Succeeded"

    eventually(ended, within_s=10)
    assert 2.5 <= time.monotonic() - running_s <= 4.5


def test_run_seconds_may_come_later_and_must_be_a_number(api: Api) -> None:
    """A value that is no number is ignored; a pod annotated while it runs ends that long
    afterwards.
    """
    make_node(api, node("late"))
    make_bound_pod(api, "late", "late", run_seconds="soon")
    eventually(lambda: phase(api, "late") == "Running", within_s=10)
    api.patch(f"{PODS}/late", {"metadata": {"annotations": {RUN_SECONDS: "1"}}})
    annotated_s = time.monotonic()
    eventually(lambda: phase(api, "late") == "Succeeded", within_s=10)
    assert time.monotonic() - annotated_s >= 0.8


def test_a_pod_that_has_ended_never_runs_again(api: Api) -> None:
    """kwok reads the pods of a new node twice; one that somebody ended after the first time stays
    ended.
    """
    names = [f"once-{number}" for number in range(100)]
    ended: set[str] = set()
    revived: set[str] = set()
    with ThreadPoolExecutor(8) as people:

        def changed(_: str, body: Object, _seen_s: float) -> None:
            name, now = body["metadata"]["name"], body["status"]["phase"]
            if now == "Succeeded":
                ended.add(name)
            elif now == "Running" and name in ended:
                revived.add(name)
            elif now == "Running":
                people.submit(
                    api.patch, f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}}
                )

        with Following(api, PODS, on_change=changed, selector="end=once") as followed:
            create_all(
                api,
                [pod(name, labels={"end": "once"}, spec={"nodeName": "news"}) for name in names],
            )
            made = people.submit(make_node, api, node("news"))
            for name in names:  # so that kwok's watch shows them while it lists them
                people.submit(
                    api.patch, f"{PODS}/{name}", {"metadata": {"labels": {"seen": "again"}}}
                )
            made.result()
            followed.wait_for(lambda _: ended.issuperset(names), within_s=30, what="all pods ended")
            make_bound_pod(api, "after", "news")
            eventually(lambda: phase(api, "after") == "Running", within_s=10)
    assert not revived


def test_a_definition_can_be_applied_right_after_it_was_removed(api: Api) -> None:
    """Its API is served again: what is applied is not the old one, which is about to go."""
    name = definitions.VOLCANO["metadata"]["name"]
    seen = set()
    for _ in range(5):
        stored = apply(api, definitions.VOLCANO)
        seen.add(stored["metadata"]["uid"])
        remove_definition(api, name)

    assert len(seen) == 5
    with pytest.raises(ApiError, match="not found"):
        api.get(f"{DEFINITIONS}/{name}")
