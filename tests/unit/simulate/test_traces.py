"""Nodes and jobs from CSV: three formats, and one sentence with the line for what cannot
be read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gangsched.core.filter import static_fit
from gangsched.model.gpu_policy import PRODUCT_LABEL
from gangsched.model.objects import Node
from gangsched.model.snapshot import NodeTable
from gangsched.simulate.tables import InputError
from gangsched.simulate.traces import read_jobs, read_nodes
from gangsched.simulate.workload import GPU, gpus_of

EIGHT = [Node(name="n", allocatable=((GPU, 8),))]


def write(path: Path, text: str) -> Path:
    """A file of these lines."""
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a test writes its input."""
    return tmp_path / "input.csv"


def test_our_nodes(file: Path) -> None:
    """A line is as many nodes as it says, with Kubernetes quantities; columns with a slash are
    labels.
    """
    write(
        file,
        "name,count,gpus,cpu,memory,topology.kubernetes.io/zone\na,2,8,96,1Ti,east\nb,,0,500m,1Gi,\n",
    )
    first, second, third = read_nodes(file)
    assert [first.name, second.name, third.name] == ["a-0000", "a-0001", "b"]
    assert dict(first.allocatable) == {GPU: 8, "cpu": 96_000, "memory": 2**40, "pods": 110}
    assert dict(third.allocatable) == {"cpu": 500, "memory": 2**30, "pods": 110}
    assert second.labels == {"topology.kubernetes.io/zone": "east"}
    assert third.labels == {}


def test_openb_nodes(file: Path) -> None:
    """openb's node list, with its GPU model as the product label."""
    (node,) = read_nodes(write(file, "sn,cpu_milli,memory_mib,gpu,model\nx,64000,1024,2,P100\n"))
    assert node == Node(
        name="x",
        labels={PRODUCT_LABEL: "P100"},
        allocatable=(("cpu", 64_000), ("memory", 2**30), (GPU, 2), ("pods", 110)),
    )


def test_our_jobs(file: Path) -> None:
    """Requests are a pod's, dates are UTC, and identical pods share a shape, so that masks are made
    once.
    """
    write(
        file,
        "name,submitted,run_seconds,pods,gpus,priority,namespace,expected_run_seconds\n"
        "a,1970-01-01 00:01:00,5.5,2,4,-7,ml,60\n"
        "b,61,1,,4,,,\n",
    )
    a, b = read_jobs(file, EIGHT)
    assert (a.name, a.namespace, a.submit_s, a.run_s, a.priority, a.stated_s) == (
        "a",
        "ml",
        60.0,
        5.5,
        -7,
        60.0,
    )
    assert (b.namespace, b.submit_s, b.priority, b.stated_s) == ("default", 61.0, 0, None)
    assert (a.gpus, len(a.pods), len(b.pods)) == (8, 2, 1)
    assert a.pods[0] is b.pods[0]


def test_philly_jobs_above_a_node_are_split(file: Path) -> None:
    """20 GPUs are two whole nodes and a rest, and the virtual cluster is the namespace."""
    write(
        file,
        "timestamp,duration,num_gpus,cluster\n1970-01-01 00:00:10,60.0,20,vc\n1970-01-01"
        " 00:00:11,1,3,vc\n",
    )
    large, small = read_jobs(file, EIGHT)
    assert [gpus_of(pod) for pod in large.pods] == [8, 8, 4]
    assert [gpus_of(pod) for pod in small.pods] == [3]
    assert (large.namespace, large.submit_s) == ("vc", 10.0)


def test_openb_jobs(file: Path) -> None:
    """Run time is deletion minus start; what never ran is left out; a GPU model is a required node
    label.
    """
    head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,"
    head += "creation_time,deletion_time,scheduled_time\n"
    write(file, head + "a,4000,1024,1,460,T4|P100,0,110,10\nb,4000,1024,1,1000,,0,110,\n")
    (job,) = read_jobs(file, EIGHT)
    assert (job.name, job.run_s, job.gpus) == ("a", 100.0, 1)
    table = NodeTable.of(
        [Node(name=model, labels={PRODUCT_LABEL: model}) for model in ("P100", "V100")]
    )
    assert static_fit(job.pods[0], table).mask.tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "submitted,run_seconds\n1,abc\n",
            'Line 2 of {file} cannot be used: run_seconds is "abc", not a number',
        ),
        (
            "submitted,run_seconds\n1,1\n2,-1\n",
            'Line 3 of {file} cannot be used: run_seconds is "-1"',
        ),
        ("submitted,run_seconds\n1,nan\n", 'Line 2 of {file} cannot be used: run_seconds is "nan"'),
        (
            "submitted,run_seconds\nsoon,1\n",
            'Line 2 of {file} cannot be used: submitted is "soon", not seconds',
        ),
        ("submitted,run_seconds\n,1\n", "Line 2 of {file} cannot be used: it has no submitted."),
        (
            "submitted,run_seconds,memory\n1,1,4 GB\n",
            'Line 2 of {file} cannot be used: memory: "4 GB" is not a quant',
        ),
        (
            "submitted,run_seconds\n1,1,1\n",
            "Line 2 of {file} cannot be used: it has more values than",
        ),
        (
            "submitted,run_seconds,name\n1,1,a\n1,1,a\n",
            'Line 3 of {file} cannot be used: the name "default/a" occurs',
        ),
        ("submitted,run_seconds\n", "The file {file} has no rows"),
        ("", "The file {file} has no rows"),
        (
            "a,b\n1,2\n",
            (
                "The file {file} is of no known format: it lacks the columns run_seconds,"
                " submitted; or"
            ),
        ),
    ],
)
def test_bad_jobs_cost_one_sentence(file: Path, text: str, said: str) -> None:
    """The sentence names the file, and the line where there is one."""
    with pytest.raises(InputError) as refused:
        read_jobs(write(file, text), EIGHT)
    assert str(refused.value).startswith(said.format(file=file))
    assert "\n" not in str(refused.value)


def test_unreadable_files_cost_one_sentence(tmp_path: Path) -> None:
    """No file, or bytes that are no text."""
    with pytest.raises(InputError, match=r"cannot be read: No such file or directory\."):
        read_nodes(tmp_path / "none.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read"):
        read_nodes(tmp_path / "bytes.csv")


def test_gpus_on_a_cluster_without_any(file: Path) -> None:
    """Philly's jobs cannot be split on nodes without GPUs."""
    write(file, "timestamp,duration,num_gpus\n2017-10-09 00:00:00,1,1\n")
    with pytest.raises(InputError, match="no node has any"):
        read_jobs(file, [Node(name="n")])
