"""What is wrong with a stack is told before it starts: all of it, by its place, without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from polygym.serve.config import PolicyValues, load_config, survey
from polygym.serve.stack_checks import check_startable
from serve.test_config import problems, write


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_values_that_refer_to_each_other_are_told_by_their_keys(folder: Path):
    blocks = "x: ${y}\ny: ${x}\nmath_rl:\n  resources_servers:\n    math_rl: {args: {num_examples: '${x}'}}\n"
    told = problems([write(folder, "a.yaml", blocks)], model_type="oracle_model")
    assert told == [
        "x=${y}: Recursive interpolation detected",
        "y=${x}: Recursive interpolation detected",
        "math_rl.resources_servers.math_rl.args.num_examples=${x}: Recursive interpolation detected",
    ]


def test_a_bad_setting_or_a_missing_value_hides_no_other_problem(folder: Path):
    file = write(
        folder,
        "a.yaml",
        """
lost_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {name: aa}
      model_server: {name: policy_modle}
      max_steps: -3
gone:
  resources_servers:
    mth_rl: {}
maths:
  resources_servers:
    math_rl: {args: {num_exmples: 3}}
policy_model:
  responses_api_models:
    openai_model:
      openai_base_url: ${policy_base_url}
      openai_model: m
      timeout_seconds: -1
""",
    )
    config, told = survey([file], environ={})
    check_startable(config, told)
    for words in (
        "policy_base_url is missing, which policy_model.",
        "lost_agent: max_steps=-3: ",
        "policy_model: timeout_seconds=-1: ",
        "gone: there is no environment 'mth_rl'",
        "lost_agent: there is no server 'aa' in resources_servers",
        "lost_agent: there is no server 'policy_modle' in responses_api_models; did you mean 'policy_model'?",
        "maths: environment 'math_rl' has no argument 'num_exmples'",
    ):
        assert sum(line.startswith(words) for line in told) == 1, (words, told)
    assert len(told) == 7


def test_an_address_of_an_endpoint_is_one_and_holds_no_key(folder: Path):
    def told(url: str) -> str:
        (line,) = problems(
            model_type="openai_model", policy=PolicyValues(url, None, "m"), resources_servers=["math_rl"]
        )
        return line

    assert told("foo").endswith("is no http address; give one like http://localhost:8000/v1")
    for url in ("http://h/v1?api_key=SECRET", "http://me:SECRET@h/v1"):
        line = told(url)
        assert "SECRET" not in line and line.startswith("policy_model: openai_base_url='http://")
        assert line.endswith("a key goes into --model-api-key, POLICY_API_KEY, or the key of the block")


def test_keys_that_nothing_reads_are_refused_with_the_nearest(folder: Path):
    blocks = "some_typo: 5\nsize: 3\nhead_sever: {port: 1}\nconfig_paths: [a.yaml]\n"
    blocks += "m:\n  resources_servers:\n    math_rl: {args: {num_examples: '${size}'}}\n"
    write(folder, "env.yaml", "policy_modle_name: m\nwandb_project: mine\n")
    file = write(folder, "a.yaml", blocks)
    told = problems([file], model_type="oracle_model")
    assert told[0].startswith("env.yaml: unknown key 'policy_modle_name', which no ${policy_modle_name} reads; did you")
    assert "did you mean 'policy_model_name'?" in told[0]
    assert told[1].startswith(f"{file}: unknown key 'some_typo'")
    assert told[2] == f"{file}: config_paths is not read; give each of its files with --config"
    assert told[3].startswith("'head_sever' is no block of a server")
    assert len(told) == 4


def test_the_head_listens_where_a_config_says(folder: Path):
    file = write(folder, "a.yaml", "head_server: {host: 127.0.0.1, port: 11777}\n")
    config = load_config([file], resources_servers=["math_rl"], model_type="oracle_model", environ={})
    assert (config.head.host, config.head.port) == ("127.0.0.1", 11777)
    options = {"resources_servers": ["math_rl"], "model_type": "oracle_model"}
    assert problems([write(folder, "b.yaml", "head_server: 5\n")], **options) == [
        "head_server=5 must be a mapping of host and port"
    ]
    assert problems([write(folder, "c.yaml", "head_server: {port: 99999}\ntoken: 5\n")], **options) == [
        "token=5 must be text in quotes",
        "head_server: port=99999: Input should be less than or equal to 65535",
    ]


def test_keys_that_are_no_text_are_refused(folder: Path):
    for text, key, line in (("true: {}\n1: {}\n", "true", 1), ("a:\n  b: {}\n  7: {}\n", "7", 3)):
        file = write(folder, "a.yaml", text)
        assert problems([file]) == [f"{file}, line {line}: key {key} is no text; put it in quotes"]


def test_servers_on_the_command_line_may_be_given_names(folder: Path):
    config = load_config(resources_servers=["easy=math_rl", "hard=math_rl"], model_type="oracle_model", environ={})
    assert list(config.of_type("resources_servers")) == ["easy", "hard"]
    assert list(config.of_type("responses_api_agents")) == ["easy_simple_agent", "hard_simple_agent"]
    assert config.servers["easy"].settings.entrypoint == "math_rl"
    told = problems(resources_servers=["a.b:load_a", "a.b:load_b", "c=math_lr"], model_type="oracle_model")
    assert told[0].endswith("names must be unique: give one another name (--resources-server NAME=ENV)")
    assert told[1].startswith("c: there is no environment 'math_lr'; did you mean 'math_rl'?")


def test_what_cannot_start_is_told_by_whoever_builds_it(tmp_path: Path):
    config = tmp_path / "a.yaml"
    config.write_text(
        "a:\n  resources_servers:\n    math_rl: {args: {num_examples: abc}}\n"
        "policy_model:\n  responses_api_models:\n    local_model: {model: nanoo}\n",
        encoding="utf-8",
    )
    told: list[str] = []
    check_startable(load_config([config], environ={}, directory=tmp_path), told)
    assert "num_examples='abc'" in told[0] and told[0].startswith("a: ")
    assert told[1].startswith("policy_model: model 'nanoo' does not run in this process; did you mean 'nano'?")
    assert len(told) == 2


def test_arguments_of_environments_are_checked(tmp_path: Path):
    config = tmp_path / "a.yaml"
    config.write_text(
        "a:\n  resources_servers:\n    math_rl: {args: {num_exmples: 3}}\n"
        "b:\n  resources_servers:\n    mine: {entrypoint: 'no_such_package.module:load'}\n"
        "c:\n  resources_servers:\n    tool_use: {args: {num_examples: 3}}\n",
        encoding="utf-8",
    )
    told: list[str] = []
    check_startable(load_config([config], model_type="oracle_model", environ={}, directory=tmp_path), told)
    assert told[0].startswith("a: environment 'math_rl' has no argument 'num_exmples'; did you mean 'num_examples'?")
    assert told[1].startswith("b: environment 'no_such_package.module:load': no module named 'no_such_package'")
    assert len(told) == 2
