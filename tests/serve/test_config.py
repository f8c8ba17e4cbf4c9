"""What describes a stack: layers of YAML, names, values from outside; every problem at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from polygym.errors import UsageError
from polygym.serve.config import PolicyValues, StackConfig, load_config

# The two published forms, as in NeMo Gym's resources_servers/example_multi_step/configs/example_multi_step.yaml: the
# resources server and its agent (before), or the resources server alone (now). The model is that of its
# responses_api_models/openai_model/configs/openai_model.yaml.
OLD_FORM = """
example_multi_step_resources_server:
  resources_servers:
    example_multi_step:
      entrypoint: app.py
      domain: instruction_following
      verified: false
      description: Multi-step tool calling
example_multi_step_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server:
        type: resources_servers
        name: example_multi_step_resources_server
      model_server:
        type: responses_api_models
        name: policy_model
      datasets:
      - name: train
        type: train
        license: Apache 2.0
        jsonl_fpath: resources_servers/example_multi_step/data/train.jsonl
        num_repeats: 1
"""
NEW_FORM = """
example_single_tool_call:
  resources_servers:
    example_single_tool_call:
      entrypoint: app.py
      domain: agent
      verified: false
      description: Basic single-step tool calling
"""
MODEL = """
policy_model:
  responses_api_models:
    openai_model:
      entrypoint: app.py
      openai_base_url: ${policy_base_url}
      openai_api_key: ${policy_api_key}
      openai_model: ${policy_model_name}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def problems(*args: object, **options: object) -> list[str]:
    options.setdefault("environ", {})
    with pytest.raises(UsageError) as caught:
        load_config(*args, **options)
    return str(caught.value).splitlines()


def shape(config: StackConfig) -> dict[str, tuple[str, str]]:
    return {name: (server.type, server.implementation) for name, server in config.servers.items()}


def test_names_of_environments_are_all_that_a_stack_needs(folder: Path):
    config = load_config(
        resources_servers=["example_single_tool_call", "math_rl"], model_type="oracle_model", environ={}
    )
    assert shape(config) == {
        "example_single_tool_call": ("resources_servers", "example_single_tool_call"),
        "math_rl": ("resources_servers", "math_rl"),
        "policy_model": ("responses_api_models", "oracle_model"),
        "example_single_tool_call_simple_agent": ("responses_api_agents", "simple_agent"),
        "math_rl_simple_agent": ("responses_api_agents", "simple_agent"),
    }
    assert config.host == "127.0.0.1" and config.head.port == 11000


def test_published_blocks_of_both_forms_are_accepted_and_composed(folder: Path):
    files = [write(folder, "a.yaml", OLD_FORM), write(folder, "b.yaml", NEW_FORM), write(folder, "model.yaml", MODEL)]
    write(folder, "env.yaml", "policy_base_url: http://localhost:8000/v1\npolicy_api_key: sk-1\npolicy_model_name: m\n")
    config = load_config(files, environ={})
    assert list(config.servers) == [
        "example_multi_step_resources_server",
        "example_multi_step_simple_agent",
        "example_single_tool_call",
        "policy_model",
        "example_single_tool_call_simple_agent",
    ]
    agent = config.servers["example_single_tool_call_simple_agent"].settings.model_dump()
    assert agent["resources_server"]["name"] == "example_single_tool_call"
    assert agent["model_server"]["name"] == "policy_model"
    model = config.servers["policy_model"].settings.model_dump(exclude_unset=True)
    assert model == {
        "entrypoint": "app.py",
        "openai_base_url": "http://localhost:8000/v1",
        "openai_api_key": "sk-1",
        "openai_model": "m",
    }


def test_two_servers_of_one_environment_have_agents_of_their_own_names(folder: Path):
    blocks = "".join(f"{name}:\n  resources_servers:\n    math_rl:\n      args: {{}}\n" for name in ("easy", "hard"))
    config = load_config([write(folder, "a.yaml", blocks)], model_type="oracle_model", environ={})
    assert list(config.of_type("responses_api_agents")) == ["easy_simple_agent", "hard_simple_agent"]


def test_the_only_model_server_answers_whatever_it_is_called(folder: Path):
    file = write(folder, "a.yaml", "mine:\n  responses_api_models:\n    oracle_model: {}\n")
    config = load_config([file], resources_servers=["math_rl"], environ={})
    assert config.servers["math_rl_simple_agent"].settings.model_dump()["model_server"]["name"] == "mine"


def test_values_come_from_the_nearest_layer(folder: Path):
    def model(**options: object) -> dict[str, object]:
        config = load_config(model_type="openai_model", **options)
        return config.servers["policy_model"].settings.model_dump(exclude_unset=True, exclude={"entrypoint"})

    environ = {"POLICY_BASE_URL": "http://a/v1", "POLICY_API_KEY": "sk-a", "POLICY_MODEL_NAME": "a"}
    assert model(environ=environ) == {"openai_base_url": "http://a/v1", "openai_api_key": "sk-a", "openai_model": "a"}
    write(folder, "env.yaml", "policy_base_url: http://b/v1\n")
    assert model(environ=environ)["openai_base_url"] == "http://b/v1"
    over = write(folder, "over.yaml", "policy_base_url: http://c/v1\n")
    assert model(environ=environ, configs=[over])["openai_base_url"] == "http://c/v1"
    assert (
        model(environ=environ, configs=[over], policy=PolicyValues(url="http://d/v1"))["openai_base_url"]
        == "http://d/v1"
    )


def test_openais_key_goes_to_no_other_address(folder: Path):
    environ = {"OPENAI_API_KEY": "sk-openai"}
    named = load_config(model_type="openai_model", policy=PolicyValues(model="m"), environ=environ)
    assert named.servers["policy_model"].settings.model_dump()["openai_base_url"] == "https://api.openai.com/v1"
    assert named.servers["policy_model"].settings.model_dump()["openai_api_key"] == "sk-openai"
    other = load_config(
        model_type="openai_model", policy=PolicyValues("http://elsewhere/v1", None, "m"), environ=environ
    )
    assert other.servers["policy_model"].settings.model_dump()["openai_api_key"] is None


def test_every_missing_value_is_told_with_where_to_give_it(folder: Path):
    assert problems(resources_servers=["math_rl"], model_type="openai_model") == [
        (
            "policy_base_url is missing, which policy_model.responses_api_models.openai_model.openai_base_url needs; "
            "give --model-url, the environment variable POLICY_BASE_URL, or policy_base_url in env.yaml"
        ),
        (
            "policy_model_name is missing, which policy_model.responses_api_models.openai_model.openai_model needs; "
            "give --model, the environment variable POLICY_MODEL_NAME, or policy_model_name in env.yaml"
        ),
    ]
    text = "limit: ???\nx: ${limt}\ny: ${oc.env:NOT_SET_ANYWHERE}\nm:\n  resources_servers:\n    math_rl:\n      args: "
    file = write(folder, "a.yaml", text + "{a: '${limit}', b: '${x}', c: '${y}'}\n")
    told = problems([file], model_type="oracle_model")
    assert told[0] == "limit is missing: a ??? stands in its place"
    wrong = "KeyError raised while resolving interpolation: \"Environment variable 'NOT_SET_ANYWHERE' not found\""
    assert f"y=${{oc.env:NOT_SET_ANYWHERE}}: {wrong}" in told
    assert told[-1] == ("limt is missing, which x needs; did you mean 'limit'? Allowed: limit, policy_api_key, x, y")


def test_every_problem_of_every_block_is_told_at_once(folder: Path):
    file = write(
        folder,
        "a.yaml",
        """
maths:
  resources_servers:
    math_rl: {argz: {}, port: 99999}
gone:
  resources_servers:
    mth_rl: {}
lost_agent:
  responses_api_agents:
    simple_agent:
      resources_server: {type: resources_servers, name: math}
      model_server: {type: responses_api_models, name: policy_modle}
other:
  resource_servers: {math_rl: {}}
policy_model:
  responses_api_models:
    oracel_model: {}
""",
    )
    told = problems([file], host="0.0.0.0")
    assert told[0].startswith(
        "'other' is no block of a server: unknown key 'resource_servers'; did you mean 'resources_"
    )
    assert told[1] == "maths: port=99999: Input should be less than or equal to 65535"
    assert told[2].startswith("maths: unknown key 'argz'; did you mean 'args'?")
    assert told[3].startswith(
        "policy_model: responses_api_models 'oracel_model' is unknown; did you mean 'oracle_model'?"
    )
    assert told[4].startswith("gone: there is no environment 'mth_rl'; did you mean 'math_rl'?")
    assert told[5].startswith("lost_agent: there is no server 'math' in resources_servers; did you mean 'maths'?")
    assert told[6].startswith(
        "lost_agent: there is no server 'policy_modle' in responses_api_models; did you mean 'policy_m"
    )
    assert told[7].startswith("the stack (0.0.0.0) would listen beyond this machine, which needs a token")
    assert len(told) == 8


def test_a_name_given_twice_is_refused_with_both_places(folder: Path):
    files = [write(folder, name, NEW_FORM) for name in ("a.yaml", "b.yaml")]
    assert problems(files, model_type="oracle_model") == [
        (
            f"'example_single_tool_call' is defined twice: in {files[0]} and in {files[1]}; names must be unique: "
            "rename one, or leave it out"
        )
    ]
    assert problems(resources_servers=["math_rl", "math_rl"], model_type="oracle_model")[0].startswith(
        "'math_rl' is defined twice: in --resources-server and in --resources-server"
    )


def test_a_stack_without_a_model_server_says_which_agents_need_one(folder: Path):
    assert problems(resources_servers=["math_rl", "tool_use"]) == [
        (
            "there is no model server, which math_rl_simple_agent, tool_use_simple_agent need; give --model-type "
            "(oracle_model needs nothing), or a --config that defines policy_model"
        )
    ]


def test_servers_that_run_may_be_referred_to_and_not_be_repeated(folder: Path):
    running = {"policy_model": "responses_api_models", "math_rl": "resources_servers"}
    config = load_config(resources_servers=["tool_use"], running=running, environ={})
    assert list(config.servers) == ["tool_use", "tool_use_simple_agent"]
    assert problems(resources_servers=["math_rl"], running=running)[0].startswith("'math_rl' runs already")


def test_broken_yaml_is_told_with_its_line(folder: Path):
    file = write(folder, "a.yaml", "a: 1\nb: [1\n")
    assert problems([file])[0].startswith(f"{file}, line 3: not valid YAML")
    file = write(folder, "b.yaml", "a: 1\na: 2\n")
    assert problems([file]) == [f"{file}, line 2: not valid YAML: found duplicate key a"]
    assert problems([folder / "c.yaml"]) == [f"config file {str(folder / 'c.yaml')!r} does not exist"]
    assert problems() == [
        "no servers are given; name environments with --resources-server, or YAML files with --config"
    ]


def test_beyond_loopback_a_token_is_needed_and_enough(folder: Path):
    options = {"resources_servers": ["math_rl"], "model_type": "oracle_model"}
    assert load_config(**options, host="0.0.0.0", token="t0ken", environ={}).token == "t0ken"
    assert load_config(**options, host="0.0.0.0", environ={"POLYGYM_TOKEN": "t0ken"}).token == "t0ken"
    file = write(folder, "a.yaml", "m:\n  resources_servers:\n    tool_use: {host: 0.0.0.0}\n")
    assert problems([file], **options)[0].startswith("m (0.0.0.0) would listen beyond this machine")


def test_secrets_are_not_in_the_repr_of_a_config(folder: Path):
    config = load_config(
        model_type="openai_model", policy=PolicyValues("http://a/v1", "sk-secret", "m"), token="t0ken", environ={}
    )
    assert "sk-secret" not in repr(config) and "t0ken" not in repr(config)
