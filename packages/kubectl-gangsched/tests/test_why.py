"""`why`: one sentence first, from the gangs API where it is served, else from what pods and
PodGroups say.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner, Result

from gangsched.api.timestamps import format_timestamp
from kubectl_gangsched.main import cli
from kubectl_gangsched.session import GANGS
from tests.fake_api import forbidden, listed, pod, pod_group, served, status

PODS = "/api/v1/namespaces/team/pods"
GROUP = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/train"
GANG = f"{GANGS}/namespaces/team/gangs/train"
LACKS = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"


def ask(kubeconfig: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["why", *words, "--kubeconfig", str(kubeconfig)])


def cluster(*pods: dict[str, Any], **more: dict[str, Any]) -> dict[str, Any]:
    """What an API server without the gangs API answers."""
    return {
        PODS: listed(*pods),
        **{f"{PODS}/{each['metadata']['name']}": each for each in pods},
        **more,
    }


def test_a_gang_with_a_pod_group_says_what_its_condition_says(tmp_path: Path) -> None:
    """The PodGroup's condition has the moving facts (E1), so it is the sentence; the
    pods follow.
    """
    pods = [
        pod(f"train-{i}", gang="train", message=f"{LACKS}; see PodGroup team/train")
        for i in range(2)
    ]
    with served(tmp_path, {**cluster(*pods), GROUP: pod_group("train", 2, LACKS)}) as (
        _,
        kubeconfig,
    ):
        answer = ask(kubeconfig, "train")
    assert answer.exit_code == 0
    assert answer.output.splitlines()[0] == f"Gang team/train waits: {LACKS}."
    assert "Minimum  2; 2 pods exist" in answer.output
    assert "this cluster does not serve the gangs API" in answer.output


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("waits for its sibling team/q", "waits for its sibling team/q."),
        (
            "waiting for members of gang team/train: 1 of 2 are ready",
            "waits for members: 1 of 2 are ready.",
        ),
        (
            "waiting for members of gang team/trainer: 1 of 2 are ready",
            "waits for members of gang team/trainer: 1 of 2 are ready.",
        ),
    ],
)
def test_that_a_gang_waits_is_said_once(tmp_path: Path, message: str, said: str) -> None:
    """A message that begins with it follows the gang's name."""
    group = pod_group("train", 2, message)
    waiting = pod("train-0", gang="train", message=f"{message}; see PodGroup team/train")
    with served(tmp_path, {**cluster(waiting), GROUP: group}) as (_, kubeconfig):
        assert ask(kubeconfig, "train").output.splitlines()[0] == f"Gang team/train {said}"


def test_a_gang_of_volcano_says_what_its_object_says(tmp_path: Path) -> None:
    """The object is looked for in the API group that the pods name, in the version that
    is served.
    """
    marks = {"scheduling.volcano.sh/group-name": "train"}
    pods = [
        pod(f"train-{i}", message=f"{LACKS}; see PodGroup team/train", annotations=marks)
        for i in range(2)
    ]
    version = "scheduling.volcano.sh/v1beta1"
    group = {**pod_group("train", 2, LACKS), "apiVersion": version}
    answers = {
        **cluster(*pods),
        "/apis/scheduling.volcano.sh": {"versions": [{"groupVersion": version}]},
        f"/apis/{version}/namespaces/team/podgroups/train": group,
    }
    with served(tmp_path, answers) as (_, kubeconfig):
        answer = ask(kubeconfig, "train")
    assert answer.output.splitlines()[0] == f"Gang team/train waits: {LACKS}."
    assert "Minimum  2; 2 pods exist" in answer.output


def test_a_pod_of_a_sub_group_is_told_of_its_sub_group(tmp_path: Path) -> None:
    """By the entry and the labels that the user wrote, with the pods and the minimum of the sub
    group alone.
    """
    version, marks = "scheduling.volcano.sh/v1beta1", {"scheduling.volcano.sh/group-name": "serve"}
    says = "waiting for members of gang team/serve:decode(number=1); see PodGroup team/serve"
    pods = [
        pod(
            f"decode-{number}-{each}",
            message=says,
            annotations=marks,
            labels={"role": "decode", "number": number},
        )
        for number, each in (("0", 0), ("0", 1), ("1", 0))
    ]
    whole = pod_group("serve", 4, "waiting for children of team/serve")
    entry = {
        "name": "decode",
        "labelSelector": {"matchLabels": {"role": "decode"}},
        "matchLabelKeys": ["number"],
    }
    whole["spec"]["subGroupPolicy"] = [{**entry, "subGroupSize": 2}]
    answers = {
        **cluster(*pods),
        "/apis/scheduling.volcano.sh": {"versions": [{"groupVersion": version}]},
        f"/apis/{version}/namespaces/team/podgroups/serve": {**whole, "apiVersion": version},
    }
    with served(tmp_path, answers) as (_, kubeconfig):
        of_pod = ask(kubeconfig, "pod/decode-1-0").output
        of_gang = ask(kubeconfig, "serve:decode(number=1)").output
        of_all = ask(kubeconfig, "serve").output
        of_none = ask(kubeconfig, "serve:decode(number=7)")
    for told in (of_pod, of_gang):
        assert "gang team/serve:decode(number=1)" in told.splitlines()[0].lower()
        assert "Minimum  2; 1 pod exists" in told
        assert "decode-0-0" not in told
    assert of_pod.startswith("Pod team/decode-1-0 waits for members")
    assert "Minimum  4; 3 pods exist" in of_all
    assert of_none.exit_code != 0


def test_a_refusal_that_names_the_gang_names_it_once(tmp_path: Path) -> None:
    """The scheduler's sentence begins with the gang: it is the answer, for the gang and for its
    pods.
    """
    refusal = "gang team/train needs room for 2 more pods"
    pods = [
        pod(f"train-{i}", gang="train", message=f"{refusal}; see PodGroup team/train")
        for i in range(2)
    ]
    with served(tmp_path, {**cluster(*pods), GROUP: pod_group("train", 2, refusal)}) as (
        _,
        kubeconfig,
    ):
        answer, of_pod = ask(kubeconfig, "train"), ask(kubeconfig, "pod/train-0")
    assert answer.output.splitlines()[0] == "Gang team/train needs room for 2 more pods."
    assert (
        of_pod.output.splitlines()[0]
        == f"Pod team/train-0 waits: {refusal}; see PodGroup team/train."
    )


def test_a_gang_without_a_pod_group_says_what_its_oldest_pod_says(tmp_path: Path) -> None:
    """Without a PodGroup the facts stand on the oldest waiting pod (E1)."""
    marks = {
        "gang.scheduling.koordinator.sh/name": "train",
        "gang.scheduling.koordinator.sh/min-available": "3",
    }
    young = pod("a", message="no node was found for this pod; see pod team/b", annotations=marks)
    young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    with served(tmp_path, cluster(young, pod("b", message=LACKS, annotations=marks))) as (
        _,
        kubeconfig,
    ):
        answer = ask(kubeconfig, "train")
    assert answer.output.splitlines()[0] == f"Gang team/train waits: {LACKS}."
    assert "Minimum  3; 2 pods exist" in answer.output


@pytest.mark.parametrize("field", ["freeOnOneNode", "largestHole"])
def test_the_gangs_api_is_taken_where_it_is_served(tmp_path: Path, field: str) -> None:
    """Its words and numbers, also those of 0.1, and nothing about another source."""
    gang = {
        "metadata": {"namespace": "team", "name": "train"},
        "spec": {"min": 2, "declaredBy": "annotations"},
        "status": {
            "members": {"total": 2, "byState": {"pending": 2}},
            "reason": "Unschedulable",
            "message": LACKS,
            "queue": "unschedulable",
            "position": 3,
            "before": 2,
            "lacks": {"resource": "nvidia.com/gpu", "amount": "4", field: "1"},
            "domains": [
                {"domain": "rack=a", "holds": 1, "lacks": 1, "refutedBy": "sums"},
                {"domain": "rack=b", "holds": 2, "lacks": 0, "refutedBy": "search"},
            ],
        },
    }
    with served(tmp_path, {GANG: gang}) as (_, kubeconfig):
        answer = ask(kubeconfig, "gang/train")
    assert answer.output.splitlines()[0] == f"Gang team/train waits: {LACKS}."
    assert "number 3 (2 before it)" in answer.output
    assert "4 more nvidia.com/gpu; at most 1 are free on one node now" in answer.output
    words = [line.split() for line in answer.output.splitlines()]
    assert ["rack=a", "1", "1", "sums"] in words
    assert ["rack=b", "2", "0", "search"] in words
    assert "This comes from" not in answer.output


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(503, "ServiceUnavailable", "service unavailable"), "the gangs API does not answer"),
        (
            forbidden("get", "gangs", 'in the namespace "team"'),
            "you (user alice) may not get gangs in namespace team",
        ),
    ],
    ids=["away", "forbidden"],
)
def test_an_api_that_fails_is_named_and_replaced(
    tmp_path: Path, answer: dict[str, Any], said: str
) -> None:
    """An APIService without a backend, or without the right to it, leaves conditions and Events."""
    answers = {
        **cluster(pod("train-0", gang="train", message=LACKS)),
        GANG: answer,
        GANGS: {"kind": "APIResourceList"},
    }
    with served(tmp_path, answers) as (_, kubeconfig):
        told = ask(kubeconfig, "train")
        as_json = ask(kubeconfig, "pod/train-0", "-o", "json")
    assert json.loads(as_json.output)["gang"]["byState"] == {"pending": 1}
    assert told.exit_code == 0
    assert LACKS in told.output.splitlines()[0]
    assert said in told.output


def test_a_refusal_of_an_api_that_does_not_exist_is_no_lack_of_rights(tmp_path: Path) -> None:
    """API servers look at rights first: without the API a 403 comes, too, and discovery tells them
    apart.
    """
    refused = forbidden("get", "gangs", 'in the namespace "team"')
    with served(tmp_path, {**cluster(pod("train-0", gang="train")), GANG: refused}) as (
        _,
        kubeconfig,
    ):
        assert "this cluster does not serve the gangs API" in ask(kubeconfig, "train").output


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (pod("p", node="n1"), "Pod team/p has its node: n1 (Running)."),
        (pod("p", message=LACKS), f"Pod team/p waits: {LACKS}."),
        (
            pod("p", message="waits for its sibling team/q"),
            "Pod team/p waits for its sibling team/q.",
        ),
        (
            pod("p", schedulingGates=[{"name": "quota"}]),
            "its scheduling gates (quota) keep it from being scheduled",
        ),
        (
            pod("p", scheduler="gangshed"),
            'serves schedulerName "gangshed"? The usual name is "gangsched".',
        ),
        (pod("p", scheduler="mine"), 'serves schedulerName "mine"?\n'),
        (
            pod("p"),
            'serves schedulerName "gangsched"? `kubectl gangsched doctor` says whether it runs.\n',
        ),
    ],
    ids=["bound", "waits", "sibling", "gated", "misspelt", "unserved", "ours"],
)
def test_a_plain_pod_is_told_of_alone(tmp_path: Path, body: dict[str, Any], said: str) -> None:
    """Where it is, or why it waits, or that nobody looks at it."""
    with served(tmp_path, cluster(body)) as (_, kubeconfig):
        assert said in ask(kubeconfig, "pod/p").output


def test_names_that_do_not_exist_get_the_nearest(tmp_path: Path) -> None:
    """Exit code 2 and one sentence on stderr."""
    with served(tmp_path, cluster(pod("train-0", gang="train"))) as (_, kubeconfig):
        answer = ask(kubeconfig, "trian")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert (
        answer.stderr
        == "kubectl-gangsched: There is no gang or pod trian in namespace team; did you mean train"
        " or train-0?\n"
    )


def test_what_tenants_write_does_not_reach_the_terminal(tmp_path: Path) -> None:
    """Escape sequences, carriage returns and direction overrides in messages and names are
    replaced.
    """
    evil = "\x1b]0;owned\x07\x1b[2J\rall is fine\u202e"
    body = pod("p", message=f"waits {evil}", scheduler=evil)
    with served(tmp_path, cluster(body)) as (_, kubeconfig):
        text, as_json = (
            ask(kubeconfig, "pod/p").output,
            ask(kubeconfig, "pod/p", "-o", "json").output,
        )
    for output in (text, as_json):
        assert not {"\x1b", "\x07", "\r", "\u202e"} & set(output)
    assert json.loads(as_json)["pod"]["schedulerName"] == evil


def test_no_rights_name_the_right(tmp_path: Path) -> None:
    """A 403 becomes a sentence with user, verb, resource and namespace."""
    with served(tmp_path, {f"{PODS}/p": forbidden("get", "pods", 'in the namespace "team"')}) as (
        _,
        kubeconfig,
    ):
        answer = ask(kubeconfig, "pod/p")
    assert (answer.exit_code, answer.stderr) == (
        2,
        "kubectl-gangsched: You (user alice) may not get pods in namespace team.\n",
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "Cannot use kubeconfig"),
        ("[1]", "it is not a kubeconfig"),
        ("{}", "has no current context: pass --context"),
        (json.dumps({"current-context": "x"}), 'has no context "x"'),
    ],
)
def test_a_bad_kubeconfig_is_one_sentence(tmp_path: Path, content: str, said: str) -> None:
    """Exit code 2, no traceback."""
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    answer = ask(path, "p")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert said in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_no_api_server_is_one_sentence(tmp_path: Path) -> None:
    """The address and what the system said."""
    with served(tmp_path, {}) as (_, kubeconfig):
        pass  # it has stopped
    answer = ask(kubeconfig, "p")
    assert answer.exit_code == 2
    assert answer.stderr.startswith("kubectl-gangsched: No answer from http://127.0.0.1:")
    assert answer.stderr.count("\n") == 1


def owned(name: str, owner: str, kind: str = "Job", **more: Any) -> dict[str, Any]:
    """A pod that this controller has created."""
    body = pod(name, **more)
    version = {"Job": "batch/v1", "ReplicaSet": "apps/v1"}.get(kind, "example.com/v1")
    body["metadata"]["ownerReferences"] = [
        {"apiVersion": version, "kind": kind, "name": owner, "uid": owner, "controller": True}
    ]
    return body


ASKS = {"gangsched.dev/gang": "owner"}


@pytest.mark.parametrize("word", ["mine", "job/mine", "jobs/mine", "jobs.batch/mine", "Job.mine"])
def test_the_owner_of_pods_stands_for_its_gang(word: str, tmp_path: Path) -> None:
    """Users know the name of their Job, and none of a gang."""
    pods = [owned(f"mine-{each}", "mine", labels=ASKS, message=LACKS) for each in range(2)]
    with served(tmp_path, cluster(*pods)) as (_, kubeconfig):
        answer = ask(kubeconfig, word)
    assert answer.output.startswith(f"Gang team/Job.mine waits: {LACKS}.")


def test_an_owner_whose_pods_are_members_stands_for_their_gang(tmp_path: Path) -> None:
    """Also if the gang has another name, and if the owner is the JobSet of the pods' Jobs."""
    of_set = {"jobset.sigs.k8s.io/jobset-name": "all"}
    with served(
        tmp_path, cluster(owned("a", "mine", gang="train", labels=of_set, message=LACKS))
    ) as (_, kubeconfig):
        for word in ("mine", "job/mine", "all", "jobset/all"):
            assert ask(kubeconfig, word).output.startswith("Gang team/train waits"), word
        wrong = ask(kubeconfig, "statefulset/mine")
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert "There is no pod of statefulset mine in namespace team" in wrong.stderr


def test_an_owner_of_plain_pods_stands_for_one_that_waits(tmp_path: Path) -> None:
    """A Deployment's name is not that of its ReplicaSet; a Job's is."""
    pods = [owned("mine-0", "mine", node="n0"), owned("mine-1", "mine", message=LACKS)]
    with served(tmp_path, cluster(*pods)) as (_, kubeconfig):
        assert ask(kubeconfig, "mine").output.startswith(f"Pod team/mine-1 waits: {LACKS}")
        assert ask(kubeconfig, "rs/mine").exit_code == 2


def test_an_owner_of_several_gangs_is_asked_which(tmp_path: Path) -> None:
    """Nothing is guessed."""
    pods = [owned(f"p{each}", "mine", gang=f"g{each}") for each in range(7)]
    with served(tmp_path, cluster(*pods)) as (_, kubeconfig):
        answer = ask(kubeconfig, "mine")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == (
        "kubectl-gangsched: The pods of mine are 7 gangs: name one of g0, g1, g2, g3, g4, ….\n"
    )


def test_a_gang_that_the_scheduler_does_not_know_is_told_by_its_pods(tmp_path: Path) -> None:
    """Such as one whose pods name another scheduler: it is not denied while its pods are there."""
    pods = [owned("m-0", "m", labels=ASKS, scheduler="gangshed")]
    gone = status(404, "NotFound", 'gangs.visibility.gangsched.dev "Job.m" not found')
    of_api = {f"{GANGS}/namespaces/team/gangs/{name}": gone for name in ("m", "Job.m")}
    with served(tmp_path, {**cluster(*pods), **of_api}) as (_, kubeconfig):
        answer = ask(kubeconfig, "m")
    assert answer.exit_code == 0
    assert answer.output.startswith("Gang team/Job.m waits. No scheduler has said why: ")
    assert answer.output.endswith(
        'the gangs API has no gang of this name; the schedulerName of its pods is "gangshed".\n'
    )


def test_of_pods_that_were_just_created_nothing_is_known_yet(tmp_path: Path) -> None:
    """The scheduler has had no time for a word."""
    created = format_timestamp(int(time.time()))
    pods = [pod(f"train-{number}", gang="train", created=created) for number in range(2)]
    with served(tmp_path, cluster(*pods)) as (_, kubeconfig):
        answer = ask(kubeconfig, "train")
    assert answer.output.splitlines()[0] == (
        "Gang team/train waits. Its pods were created a moment ago: ask again."
    )


def test_why_the_pods_of_an_owner_are_no_gang_is_told(tmp_path: Path) -> None:
    """The Event on the owner is shown; the scheduler knows no such gang."""
    cause = "StatefulSet team/web starts its pods one by one (OrderedReady), so they are not a gang"
    event = {
        "metadata": {"name": "e"},
        "type": "Warning",
        "reason": "NotAGang",
        "message": cause,
        "involvedObject": {"kind": "Job", "name": "m"},
    }
    pods = [owned("m-0", "m", labels=ASKS, node="n1")]
    gone = status(404, "NotFound", 'gangs.visibility.gangsched.dev "Job.m" not found')
    of_api = {f"{GANGS}/namespaces/team/gangs/{name}": gone for name in ("m", "Job.m")}
    answers = {**cluster(*pods), **of_api, "/api/v1/namespaces/team/events": listed(event)}
    with served(tmp_path, answers) as (api, kubeconfig):
        answer = ask(kubeconfig, "m")
    assert f"Problem: {cause}\n" in answer.output
    selector = "reason=NotAGang,involvedObject.kind=Job,involvedObject.name=m"
    asked = [parse_qs(urlsplit(path).query).get("fieldSelector") for path in api.asked]
    assert [selector] in asked


def test_what_is_no_kind_before_the_slash_is_misuse(tmp_path: Path) -> None:
    """Code 2, without a request."""
    with served(tmp_path, {}) as (api, kubeconfig):
        for target in ("a b/x", "job/", "/x", "job/..", "../x"):
            answer = ask(kubeconfig, target)
            assert answer.exit_code == 2, target
            assert "give NAME, pod/NAME, gang/NAME or the owner of pods" in answer.stderr
    assert api.asked == []
