"""Settings: where they come from, who wins, and what is said about those that cannot
be followed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from gangsched.configuration import load_settings
from gangsched.model.gang import MatchPolicy
from gangsched.model.preemption import VictimScope
from gangsched.removed import REMOVED
from gangsched.settings import ENV_PREFIX, LogFormat, Settings, SettingsError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the machine that runs the tests takes part."""
    for name in Settings.model_fields:
        monkeypatch.delenv(ENV_PREFIX + name.upper(), raising=False)


def write(folder: Path, text: str) -> Path:
    """A configuration file."""
    path = folder / "gangsched.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(config: Path | None = None, **overrides: object) -> str:
    """The sentence that loading ends with."""
    with pytest.raises(SettingsError) as caught:
        load_settings(config, overrides)
    return str(caught.value)


def test_defaults_are_those_promised() -> None:
    """Without file, variables and flags the documented defaults hold."""
    settings = load_settings(None, {})
    assert settings == Settings()
    assert settings.scheduler_names == ("gangsched",)
    assert (settings.wait_time_s, settings.health_port) == (600.0, 8080)
    assert settings.match_policy is MatchPolicy.ONCE_SATISFIED


def test_flags_win_over_environment_over_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each layer replaces the one below it, setting by setting."""
    config = write(tmp_path, "reservations: 1\nhealth_port: 1\nbind_connections: 1\n")
    monkeypatch.setenv("GANGSCHED_HEALTH_PORT", "2")
    monkeypatch.setenv("GANGSCHED_BIND_CONNECTIONS", "2")
    settings = load_settings(config, {"bind_connections": 3, "reservations": None})
    assert (settings.reservations, settings.health_port, settings.bind_connections) == (1, 2, 3)


def test_what_kubernetes_sets_for_a_service_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service called gangsched-debug makes Kubernetes set the name of one of our variables."""
    monkeypatch.setenv("GANGSCHED_DEBUG_PORT", "tcp://10.0.0.1:80")
    assert load_settings(None, {}).debug_port == 8081


def test_file_of_every_kind_of_value(tmp_path: Path) -> None:
    """A YAML file may hold every setting, lists and words included."""
    config = write(
        tmp_path,
        "kubeconfig: /etc/kube\nscheduler_names: [a, b, a]\nlog_format: console\nmatch_policy:"
        " only-waiting\nwait_time_s: 30\n",
    )
    settings = load_settings(config, {})
    assert settings.kubeconfig == Path("/etc/kube")
    assert settings.scheduler_names == ("a", "b")
    assert settings.log_format is LogFormat.CONSOLE
    assert settings.match_policy is MatchPolicy.ONLY_WAITING
    assert settings.wait_time_s == 30.0


def test_empty_file_changes_nothing(tmp_path: Path) -> None:
    """A file with only a comment is a file of defaults."""
    assert load_settings(write(tmp_path, "# nothing yet\n"), {}) == Settings()


def test_names_from_the_environment_are_split_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable holds several scheduler names as people write lists in variables."""
    monkeypatch.setenv("GANGSCHED_SCHEDULER_NAMES", "gangsched, scheduler-plugins-scheduler")
    assert load_settings(None, {}).scheduler_names == ("gangsched", "scheduler-plugins-scheduler")


def test_variables_of_kubernetes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service called gangsched puts variables with our prefix into every pod; they are not
    settings.
    """
    monkeypatch.setenv("GANGSCHED_SERVICE_HOST", "10.0.0.7")
    monkeypatch.setenv("GANGSCHED_PORT_8080_TCP", "tcp://10.0.0.7:8080")
    assert load_settings(None, {}) == Settings()


@pytest.mark.parametrize("wrong", ["wait_times_s", "waitTimeS", "wait-time-s", "waittime"])
def test_unknown_field_is_named_with_the_nearest(tmp_path: Path, wrong: str) -> None:
    """A misspelt setting is an error that names it, its file, and what was probably meant."""
    config = write(tmp_path, f"{wrong}: 30\n")
    assert (
        refusal(config)
        == f'the file {config} has "{wrong}", which is no setting (did you mean "wait_time_s"?).'
    )


def test_unknown_field_unlike_any_other(tmp_path: Path) -> None:
    """Nothing is suggested where nothing is near."""
    config = write(tmp_path, "zzz: 30\n")
    assert refusal(config) == f'the file {config} has "zzz", which is no setting.'


def test_value_out_of_bounds_names_field_value_bound_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence says which setting, which value, where from, and what would be right."""
    config = write(tmp_path, "bind_connections: 300\n")
    assert (
        refusal(config)
        == f"bind_connections is 300 in the file {config}: it should be less than or equal to 256."
    )
    assert (
        refusal(health_port=70_000)
        == "health_port is 70000 in the flags: it should be less than or equal to 65535."
    )
    monkeypatch.setenv("GANGSCHED_WAIT_TIME_S", "-5")
    assert (
        refusal()
        == 'wait_time_s is "-5" in the environment variable GANGSCHED_WAIT_TIME_S: it should be'
        " greater than 0."
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("wait_time_s: soon", 'wait_time_s is "soon"'),
        ("wait_time_s: .inf", "wait_time_s is inf"),
        ("wait_time_s: .nan", "wait_time_s is nan"),
        ("wait_time_s:", "wait_time_s is None"),
        ("health_port: yes", "health_port is True"),
        ("health_port: 80.5", "health_port is 80.5"),
        ("writes_per_s: 0", "writes_per_s is 0"),
        ("log_format: xml", "should be 'json' or 'console'"),
        ("log_level: loud", 'log_level is "loud"'),
        ("match_policy: never", 'match_policy is "never"'),
        ("scheduler_names: []", "scheduler_names is []"),
        ("scheduler_names: ['a b']", 'scheduler_names is ["a b"]'),
        ("scheduler_names: ''", 'scheduler_names is ""'),
        ("shutdown_s: 0", "shutdown_s is 0"),
        ("reservations: -1", "reservations is -1"),
        ("reservations: 65", "reservations is 65"),
        ("reservations: off", "reservations is False"),
        ("fence_after_s: -1", "fence_after_s is -1"),
        ("reservations_per_namespace: 0", "reservations_per_namespace is 0"),
        ("default_expected_runtime_s: 0", "default_expected_runtime_s is 0"),
        ("backfill_order: longest", "should be 'shortest' or 'age'"),
        ("backfill_overrun: kill", "should be 'tell' or 'evict'"),
        ("node_selector: [pool=a]", 'node_selector is ["pool=a"]'),
        ("node_selector: pool=a b", 'node_selector is "pool=a b" in '),
    ],
)
def test_bad_values_are_refused_by_name(tmp_path: Path, text: str, part: str) -> None:
    """Wrong types, words out of the list, infinities and YAML's surprising booleans are all
    refused.
    """
    sentence = refusal(write(tmp_path, text))
    assert part in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


def test_node_selector_is_one_as_kubectl_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """I7: equality and sets; a text that is none is one sentence with the part that is wrong."""
    monkeypatch.setenv("GANGSCHED_NODE_SELECTOR", "pool in (a, b), !spot")
    assert load_settings(None, {}).node_selector == "pool in (a,b),!spot"
    assert (
        refusal(node_selector="pool=a,zone in (x")
        == 'node_selector is "pool=a,zone in (x" in the flags: it has "zone in (x", which has none'
        " of the forms pool=a, pool!=a, pool in (a, b), pool notin (a), pool and !pool."
    )


def test_preemption_is_off_as_yaml_has_it(tmp_path: Path) -> None:
    """`preemption: off` is a boolean in YAML, and means what it says; `on` is no answer to whose
    pods.
    """
    assert load_settings(write(tmp_path, "preemption: off"), {}).preemption is VictimScope.OFF
    assert load_settings(write(tmp_path, "preemption: 'off'"), {}).preemption is VictimScope.OFF
    assert "preemption is True" in refusal(write(tmp_path, "preemption: on"))


def test_a_bad_list_is_one_plain_complaint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty list and a name that is none are told in plain words, each once."""
    config = write(tmp_path, "scheduler_names: []\n")
    assert (
        refusal(config)
        == f"scheduler_names is [] in the file {config}: it should name at least one."
    )
    monkeypatch.setenv("GANGSCHED_SCHEDULER_NAMES", "a b")
    where = "the environment variable GANGSCHED_SCHEDULER_NAMES"
    assert (
        refusal()
        == f'scheduler_names is "a b" in {where}: a name should be one word without spaces.'
    )


def test_every_wrong_setting_is_named_at_once(tmp_path: Path) -> None:
    """One start shows everything there is to mend."""
    sentence = refusal(write(tmp_path, "bind_connections: 0\nreservation: 3\n"), shutdown_s=-1)
    assert all(
        name in sentence for name in ("bind_connections is 0", '"reservations"', "shutdown_s is -1")
    )


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"a: [1", "is not YAML"),
        (b"- a\n- b\n", "not a list"),
        (b"\xff\xfe\x00", "it is not UTF-8"),
        (b"a: !!python/object:os.system {}", "is not YAML"),
    ],
)
def test_unreadable_file_is_one_sentence(tmp_path: Path, content: bytes, part: str) -> None:
    """A file that is no YAML mapping is refused in one line that names it."""
    config = tmp_path / "gangsched.yaml"
    config.write_bytes(content)
    sentence = refusal(config)
    assert part in sentence
    assert str(config) in sentence
    assert "\n" not in sentence


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    """A file that was asked for and is not there is never taken for defaults."""
    assert (
        refusal(tmp_path / "none.yaml")
        == f"Cannot read the file {tmp_path / 'none.yaml'} named by --config: No such file or"
        " directory."
    )


def test_settings_made_directly_ignore_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only `load_settings` looks around, so that simulators and tests get what they ask for."""
    monkeypatch.setenv("GANGSCHED_RESERVATIONS", "7")
    assert Settings().reservations == 8
    assert load_settings(None, {}).reservations == 7


def test_settings_are_frozen() -> None:
    """Nobody changes a setting while the daemon runs."""
    with pytest.raises(ValidationError):
        Settings().reservations = 1


def test_every_setting_is_described() -> None:
    """An administrator can read what each setting means."""
    assert all(field.description for field in Settings.model_fields.values())


def test_leader_election_is_a_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is off unless it is turned on, in YAML's or a variable's words; anything else is told."""
    assert not load_settings(None, {}).leader_elect
    assert load_settings(write(tmp_path, "leader_elect: on\n"), {}).leader_elect
    monkeypatch.setenv("GANGSCHED_LEADER_ELECT", "true")
    assert load_settings(None, {}).leader_elect
    assert not load_settings(None, {"leader_elect": False}).leader_elect
    assert "leader_elect" in refusal(leader_elect="maybe")


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_removed_setting_names_its_replacement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In a file, a variable or a flag: one sentence that says what to do instead, whatever the
    value.
    """
    config = write(tmp_path, f"{name}: 1\n")
    assert refusal(config) == f"{name} (file {config}) was removed: {REMOVED[name]}."
    assert (
        refusal(None, **{name: "1"})
        == f"{name} (flag --{name.replace('_', '-')}) was removed: {REMOVED[name]}."
    )
    variable = f"{ENV_PREFIX}{name.upper()}"
    monkeypatch.setenv(variable, "")
    assert refusal() == f"{name} (environment variable {variable}) was removed: {REMOVED[name]}."


def test_what_replaces_a_removed_setting_exists() -> None:
    """Nobody is sent to a setting that is not there, and no removed name is used again."""
    assert not REMOVED.keys() & Settings.model_fields.keys()
    changelog = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()
    assert not [name for name in REMOVED if f"`{name}`" not in changelog]
    for sentence in REMOVED.values():
        named = re.findall(r"\bset (\w+)", sentence)
        assert named or re.search(r"fixed at .*\d|fixed at one|kubectl", sentence), sentence
        assert set(named) <= Settings.model_fields.keys(), sentence


def test_requests_are_marked_with_a_name_that_may_be_a_label() -> None:
    """E10: names of schedulers may be longer, or have other characters."""
    assert Settings(scheduler_names=("b", "a")).requested_by == "a"
    odd = {Settings(scheduler_names=(name,)).requested_by for name in ("a" * 64, "b" * 64, "a/b")}
    assert len(odd) == 3
    assert all(name.startswith("gangsched-") and len(name) == 18 for name in odd)
