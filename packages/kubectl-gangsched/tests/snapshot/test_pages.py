"""`snapshot --html` and `replay --html`: what the other commands say, as a page."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kubectl_gangsched.main import cli
from kubectl_gangsched.page.changes import applied
from kubectl_gangsched.page.document import Document, Reservation
from kubectl_gangsched.session import GANGS, Session
from kubectl_gangsched.snapshot.pages import Wanted, snapshot_page
from tests.fake_api import forbidden, listed, node, pod, pod_group, served
from tests.page_examples import document_in

X = "scheduling.x-k8s.io"
START = "2026-01-01T02:00:00Z"


def gang(name: str, position: int | None, **status: Any) -> dict[str, Any]:
    members = {"total": 2, "byState": {"pending": 2} if position else {"bound": 2}}
    place = {"position": position, "waitingSince": "2026-01-01T00:00:00Z"} if position else {}
    return {
        "metadata": {"namespace": "team", "name": name},
        "spec": {"min": 2},
        "status": {"members": members, "reason": "Unschedulable", **place, **status},
    }


def cluster(*gangs: dict[str, Any]) -> dict[str, Any]:
    """Two nodes: one runs a gang and a plain pod, one is cordoned; two gangs wait."""
    pods = [
        pod("runs-0", gang="runs", node="n0", gpus=4),
        pod("runs-1", gang="runs", node="n1", gpus=4),
        pod("plain", node="n0", gpus=1),
        *(pod(f"{name}-{place}", gang=name, gpus=8) for name in ("a", "b") for place in (0, 1)),
    ]
    pods[0]["status"]["startTime"] = "2026-01-01T00:10:00Z"
    for each in pods[3:]:
        each["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "gang team/a needs room\x1b[2J </script>",
            }
        ]
    machines = node("n0", 8), node("n1", 8, unschedulable=True)
    machines[0]["metadata"]["labels"] = {
        "topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/rack": "r",
    }
    answers = {
        "/version": {"gitVersion": "v1.36.0"},
        "/api/v1/pods": listed(*pods),
        "/api/v1/namespaces/team/pods": listed(*pods),
        "/api/v1/nodes": listed(*machines),
        "/api/v1/namespaces": listed({"metadata": {"name": "team"}}),
        f"/apis/{X}": {"versions": [{"version": "v1alpha1"}]},
        f"/apis/{X}/v1alpha1/podgroups": listed(pod_group("a", 2)),
        "/apis": {"groups": []},
    }
    if gangs:
        # As the scheduler does: only a GET of one gang has the nodes of its reservation.
        listed_gangs = copy.deepcopy(gangs)
        for item in listed_gangs:
            item["status"].get("reserved", {}).pop("nodes", None)

        answers[f"{GANGS}/gangs"] = listed(*listed_gangs)
        answers |= {
            f"{GANGS}/namespaces/team/gangs/{item['metadata']['name']}": item for item in gangs
        }
    return answers


GANGS_KNOWN = (
    gang("b", 1, message="gang team/b needs room"),
    gang(
        "a",
        4,
        message="gang team/a needs room",
        priority=7,
        needs=[{"pods": 2, "requests": {"nvidia.com/gpu": "8"}}],
        reserved={
            "kind": "timed",
            "startTime": START,
            "promised": True,
            "message": "room on 2 nodes (n0, n1) is reserved",
            "nodes": ["n0", "n1"],
        },
    ),
    gang("runs", None, reason="Scheduled", message="2 members are bound"),
)


def run(tmp_path: Path, answers: dict[str, Any], *words: str) -> Result:
    with served(tmp_path, answers) as (_, kubeconfig):
        return CliRunner().invoke(cli, [*words, "--kubeconfig", str(kubeconfig)])


def page(tmp_path: Path, answers: dict[str, Any], *words: str) -> Document:
    path = tmp_path / "page.html"
    answer = run(tmp_path, answers, "snapshot", "--html", str(path), *words)
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith(f"{path} shows 1 moment: open it in a browser.")
    return document_in(path.read_text())


def test_the_page_says_what_the_commands_say(tmp_path: Path) -> None:
    """Map, queue and sentences are those of `map`, `queue` and `why`."""
    answers = cluster(*GANGS_KNOWN)
    moment = page(tmp_path, answers).moment
    shown = json.loads(run(tmp_path, answers, "map", "-o", "json").output)["resources"]
    for printed in shown["nvidia.com/gpu"]:
        row = moment.nodes[printed["node"]]
        (devices,) = row.devices
        users = {gang.removeprefix("pod:"): units for gang, units in devices.users.items()}
        assert (devices.total, devices.free, row.closed, users) == (
            printed["total"],
            printed["free"],
            printed["closed"],
            printed["users"],
        )

    waiting = json.loads(run(tmp_path, answers, "queue", "-A", "-o", "json").output)["gangs"]
    assert [(f"team/{each['name']}", each["position"]) for each in waiting] == [
        ("team/b", 1),
        ("team/a", 4),
    ]
    assert moment.queue == [("team/b", 1), ("team/a", 3)]
    for name in ("a", "b", "runs"):
        told = json.loads(run(tmp_path, answers, "why", f"gang/{name}", "-o", "json").output)
        assert moment.gangs[f"team/{name}"].sentence == told["sentence"]


def test_what_is_reserved_is_on_the_nodes(tmp_path: Path) -> None:
    """The promise, whose it is, and the bars of who waits and who runs."""
    moment = page(tmp_path, cluster(*GANGS_KNOWN)).moment
    start_s = 1_767_232_800
    reserved = Reservation("team/a", start_s, "timed")
    assert moment.nodes["n0"].reserved == moment.nodes["n1"].reserved == [reserved]
    waiting = moment.gangs["team/a"]
    assert (waiting.promised_s, waiting.priority) == (start_s, 7)
    assert [need.requests for need in waiting.needs] == [{"nvidia.com/gpu": "8"}]
    assert [bar.kind for bar in moment.bars["team/a"]] == ["waited", "promised"]
    assert [bar.kind for bar in moment.bars["team/runs"]] == ["happened", "expected"]
    assert moment.bars["team/runs"][0].nodes == ["n0", "n1"]
    assert moment.bars["pod:team/plain"][0].nodes == ["n0"]
    assert moment.levels[:2] == ["topology.kubernetes.io/zone", "topology.kubernetes.io/rack"]
    assert moment.nodes["n0"].path[:2] == ["z", "r"]
    assert moment.sentence == (
        "3 of 16 nvidia.com/gpu are free, at most 3 on one node. 2 gangs wait; the next promised"
        " start is at 2026-01-01T02:00Z."
    )
    assert moment.remark == "Not free, though unused: 4 on nodes that are cordoned."


def test_gangs_that_may_not_be_read_are_told(tmp_path: Path) -> None:
    """With the right that is missing, on the page and on the terminal."""
    answers = cluster() | {f"{GANGS}/gangs": forbidden("list", "gangs")}
    out = tmp_path / "s.gz"
    why = "You (user alice) may not list gangs in the whole cluster"
    moment = page(tmp_path, answers).moment
    (order,) = [unknown.sentence for unknown in moment.unknown if unknown.what == "order"]
    assert order.startswith(f"The snapshot has no gangs of the gangs API ({why}): the queue")
    answer = run(tmp_path, answers, "snapshot", "-o", str(out))
    assert f"Not read: gangs: {why}." in answer.output


def test_without_the_gangs_api_the_page_says_what_it_cannot_know(tmp_path: Path) -> None:
    """By age, without positions; the message is that of the pods, with nothing dangerous left."""
    moment = page(tmp_path, cluster()).moment
    assert moment.order == "age"
    assert [gang for gang, _ in moment.queue] == ["team/a", "team/b"]
    assert moment.gangs["team/a"].sentence == "Gang team/a needs room�[2J </script>."
    assert {unknown.what for unknown in moment.unknown} == {"order", "history"}
    assert moment.gangs["team/a"].promised_s is None


def test_names_can_be_replaced_in_the_page(tmp_path: Path) -> None:
    """With --redact-names no name and no sentence about one is left, also not in the title."""
    path = tmp_path / "page.html"
    words = ("snapshot", "--html", str(path), "--redact-names")
    answer = run(tmp_path, cluster(*GANGS_KNOWN), *words)
    assert answer.exit_code == 0, answer.output
    document = document_in(path.read_text())
    assert (document.title, document.moment.health.facts) == ("", {})
    assert "team" not in repr(document.moment.gangs)
    assert "runs" not in repr(document.moment.nodes)


def test_several_moments_are_changes(tmp_path: Path) -> None:
    """--every and --for: each later moment is what changed, and the file is whole after each."""
    path = tmp_path / "page.html"
    now = [0.0]
    with served(tmp_path, cluster(*GANGS_KNOWN)) as (fake, kubeconfig):

        def sleep(seconds: float) -> None:
            document = document_in(path.read_text())
            assert len(document.changes) == round(now[0] / 60)
            now[0] += seconds
            if now[0] == 60:
                fake.answers["/api/v1/nodes"] = listed(node("n0", 8), node("n1", 8))

        wanted = Wanted(html=path, every_s=60, for_s=120)
        session = Session("team", kubeconfig)
        assert snapshot_page(session, wanted, lambda: now[0], sleep) == 0

    first, second = document_in(path.read_text()).changes
    assert set(first.nodes) == {"n0", "n1"}
    assert first.gangs == {}
    assert second.nodes == {}
    moment = applied(document_in(path.read_text()).moment, first)
    assert moment.nodes["n1"].closed == ""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--every", "60s"], "--every and --for are about the page: name its file with --html."),
        (["--html", "x.html", "--every", "60s"], "--every and --for go together"),
        (["--html", "x.html", "--every", "soon", "--for", "1h"], '--every "soon" '),
        (["--html", "x.html", "--every", "0s", "--for", "1h"], '--every "0s" is less than'),
        (["--html", "/no/such/x.html"], "Cannot write /no/such/x.html: No such file"),
    ],
)
def test_wrong_options_are_one_sentence(tmp_path: Path, words: list[str], why: str) -> None:
    """Nothing that a user writes is ignored."""
    answer = run(tmp_path, cluster(), "snapshot", *words)
    assert answer.exit_code == 2
    assert answer.stderr.startswith(f"kubectl-gangsched: {why}")
    assert answer.stderr.count("\n") == 1


def test_nothing_is_written_without_the_right(tmp_path: Path) -> None:
    """As without --html: nodes must be readable."""
    answers = {**cluster(), "/api/v1/nodes": forbidden("list", "nodes")}
    answer = run(tmp_path, answers, "snapshot", "--html", str(tmp_path / "x.html"))
    assert answer.exit_code == 2
    assert not (tmp_path / "x.html").exists()


def test_a_replay_shows_what_would_be_decided(tmp_path: Path) -> None:
    """What starts is said so; what waits has its place and its sentence."""
    snapshot, html = tmp_path / "snapshot.gz", tmp_path / "page.html"
    answers = cluster()
    answers["/api/v1/nodes"] = listed(node("n0", 16), node("n1", 16))
    answers[f"/apis/{X}/v1alpha1/podgroups"] = listed(pod_group("a", 2), pod_group("b", 2))
    answers["/api/v1/pods"]["items"] += [
        pod(f"huge-{place}", gang="huge", gpus=16) for place in (0, 1)
    ]
    answers[f"/apis/{X}/v1alpha1/podgroups"]["items"].append(pod_group("huge", 2))
    assert run(tmp_path, answers, "snapshot", "-o", str(snapshot)).exit_code == 0
    answer = CliRunner().invoke(cli, ["replay", str(snapshot), "--html", str(html)])
    assert answer.exit_code == 0, answer.output
    assert answer.output.endswith(f"{html} shows this: open it in a browser.\n")
    document = document_in(html.read_text())
    assert (document.source, document.title) == ("replay", "snapshot.gz")
    gangs = document.moment.gangs
    assert gangs["team/a"].sentence == "Gang team/a would start now: 2 pods on n0, n1."
    assert [gang for gang, _ in document.moment.queue] == ["team/b", "team/huge"]
    assert gangs["team/huge"].sentence.startswith(
        "Gang team/huge needs 2 pods of 16 nvidia.com/gpu;"
    )


def test_a_damaged_snapshot_is_one_sentence(tmp_path: Path) -> None:
    """And no page."""
    snapshot, html = tmp_path / "snapshot.gz", tmp_path / "page.html"
    snapshot.write_bytes(b"no snapshot")
    answer = CliRunner().invoke(cli, ["replay", str(snapshot), "--html", str(html)])
    assert (answer.exit_code, answer.stderr.count("\n"), html.exists()) == (2, 1, False)
