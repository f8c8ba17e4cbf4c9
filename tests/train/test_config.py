"""Tests of training configs."""

from __future__ import annotations

from pathlib import Path

import pytest

from polygym.errors import UsageError
from polygym.train.config import RunConfig, load_config
from polygym.train.config_file import recipe_configs, validate
from polygym.train.setup import build_environment

MINIMAL = {"batch_size": 64, "env": [{"id": "math_rl"}]}


def write(folder: Path, text: str) -> Path:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lerning_rate": 1e-5}, "unknown key 'lerning_rate'; did you mean 'learning_rate'?"),
        ({"env": [{"id": "a", "wieght": 1}]}, "unknown key 'env.a.wieght'; did you mean 'weight'?"),
        ({"eval": {"intervall": 1}}, "unknown key 'eval.intervall'; did you mean 'interval'?"),
        ({"eval": {"env": [{"id": "a", "weight": 1.0}]}}, "unknown key 'eval.env.a.weight'; Allowed: args, eval_rows"),
        ({"env": [{"id": "a", "sampling": {"temprature": 1}}]}, "did you mean 'temperature'?"),
        ({"env": [{"id": "a", "weight": "1"}]}, "env.a.weight='1': Input should be a valid number"),
        ({"env": [{"id": "a", "weight": -1.0}]}, "env.a.weight=-1.0: Input should be greater than or equal to 0"),
        ({"env": [{"id": "a", "weight": float("nan")}]}, "env.a.weight=nan: Input should be a finite number"),
        ({"env": []}, 'env=[]: must not be empty; write [[env]] with two brackets, and id = "math_rl" below it'),
        ({"env": {"id": "a"}}, "env={'id': 'a'}: must be a list of tables; write [[env]] with two brackets"),
        (
            {"env": ["tool_use"]},
            "env.0='tool_use': must be a table; write [[env]] with two brackets, and id = \"tool_use",
        ),
        ({"env": [{"id": ""}]}, "env.0.id='': must not be empty"),
        ({"env": [{"id": "a", "name": 4}]}, "env.a.name=4: must be text in quotes"),
        ({"env": [{"id": "a", "args": "x"}]}, "env.a.args='x': must be a table of keys and values"),
        (
            {"env": [{"id": "a", "sampling": {"stop": "x"}}]},
            "env.a: sampling: stop='x': must be a list: write stop = [",
        ),
        ({"eval": {"env": {"id": "a"}}}, "eval.env={'id': 'a'}: must be a list of tables; write [[eval.env]] with two"),
        ({"sampling": {"stop": "x"}}, "sampling.stop='x': must be a list: write stop = [\"x\"]"),
        ({"sampling": 3}, "sampling=3: must be a table, of the keys max_tokens, stop, temperature, top_p"),
        ({"sampling": [{"top_p": 1.0}]}, "must be a table, written [sampling] with one bracket, of the keys"),
        ({"adam_betas": [0.9]}, "adam_betas=[0.9]: must be a list of 2"),
        ({"adam_betas": [0.9, 0.9, 0.9]}, "adam_betas=[0.9, 0.9, 0.9]: must be a list of 2"),
        ({"adam_betas": 0.9}, "adam_betas=0.9: must be a list of 2"),
        ({"mask_truncated": "yes"}, "mask_truncated='yes': must be true or false, without quotes"),
        ({"learning_rate": "1e-5"}, "learning_rate='1e-5': Input should be a valid number, without quotes"),
        ({"dtype": "float16"}, "dtype='float16': must be 'float32' or 'bfloat16'"),
        ({"rollouts_per_example": 1}, "rollouts_per_example=1: Input should be greater than or equal to 2"),
        ({"seed": True}, "seed=True: Input should be a valid integer"),
        ({"seed": 2**63}, "seed=9223372036854775808"),
        ({"batch_size": 60}, "batch_size=60 is no multiple of rollouts_per_example=8; try 64"),
        ({"groups_per_environment": 4}, "both were given"),
        ({"advantage": "group_std"}, "would cancel reward_normalization"),
        ({"loss_share": "tokens", "env": [{"id": "a", "loss_weight": 1.0}]}, "loss_weight of a does nothing"),
        ({"sampling": {"temperature": 0}}, "greedy"),
        ({"sampling": {"top_p": 0.0}}, "sampling.top_p=0.0"),
        (
            {"device": "gpu"},
            "device='gpu': must be auto, cpu, mps, cuda, or one GPU of several by its number, such as cud",
        ),
        ({"name": "../mine"}, "name='../mine' is no name of a folder"),
        ({"batch_size": 16_000_000_000}, "batch_size=16000000000: Input should be less than or equal to"),
        ({"groups_per_environment": 10**9, "batch_size": None}, "groups_per_environment=1000000000"),
    ],
)
def test_a_bad_key_or_value_is_refused_with_the_fix(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        validate(RunConfig, MINIMAL | change, "mine.toml")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, 'env.0: has no id; write id = "math_rl" for an environment, url or server with rows'),
        ({"id": "a", "url": "http://x", "rows": "r"}, "env.a: id and url are given; an environment has one of them"),
        ({"id": "a", "rows": "r.jsonl", "play": "agent"}, "env.a: rows, play say nothing beside id; leave it out"),
        ({"url": "http://x"}, "url needs rows: the file of the tasks, as polygym data export writes it"),
        ({"url": "http://x", "eval_rows": "r.jsonl"}, "rows is missing: eval_rows are only evaluated"),
        ({"url": "http://x", "rows": "r.jsonl", "head_port": 1}, "env.r: head_port says nothing beside url"),
        ({"server": "x", "rows": "r.jsonl", "args": {"a": 1}}, "env.x: args says nothing without id"),
        ({"rows": "a/r.jsonl", "eval_rows": "e", "held_out": 0.1}, "env.r: held_out says nothing beside eval_rows"),
        ({"rows": "r.jsonl", "play": "there"}, "env.r.play='there': must be 'here' or 'agent'"),
    ],
)
def test_where_an_environment_comes_from_is_said_once(entry: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        validate(RunConfig, MINIMAL | {"env": [entry]}, "mine.toml")
    assert message in str(error.value)


def test_an_environment_of_rows_is_named_after_its_server_or_its_file(tmp_path: Path) -> None:
    text = 'batch_size = 16\n[[env]]\nrows = "data/mix.jsonl"\n[[env]]\nserver = "far"\nrows = "x.jsonl"\n'
    config = load_config(write(tmp_path, text), ["env.mix.weight=2.0", "env.far.held_out=0"])
    assert [(entry.title, entry.weight, entry.held_out) for entry in config.env] == [
        ("mix", 2.0, None), ("far", 1.0, 0.0),
    ]  # fmt: skip


def test_every_problem_of_a_file_is_reported_at_once() -> None:
    with pytest.raises(UsageError) as error:
        validate(RunConfig, MINIMAL | {"seeed": 1, "max_step": 3}, "mine.toml")
    assert str(error.value).count("\n") == 1


def test_a_file_is_read_and_named_after_itself(tmp_path: Path) -> None:
    path = write(tmp_path, 'batch_size = 16\n[[env]]\nid = "math_rl"\nname = "math"\n')
    config = load_config(path)
    assert (config.name, config.batch_size, config.env[0].name) == ("mine", 16, "math")


def test_overrides_reach_tables_and_named_environments(tmp_path: Path) -> None:
    path = write(tmp_path, 'batch_size = 16\n[[env]]\nid = "math_rl"\n[[env]]\nid = "word_game"\nname = "word"\n')
    config = load_config(
        path,
        ["learning_rate=3e-4", "eval.interval=5", "env.word.weight=2.0", "env.math_rl.args.seed=7", "model=some/model"],
    )
    assert config.learning_rate == 3e-4
    assert config.eval.interval == 5
    assert [entry.weight for entry in config.env] == [1.0, 2.0]
    assert config.env[0].args == {"seed": 7}
    assert config.model == "some/model"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("learning_rate", "not of the form key=value"),
        ("env.wrod.weight=2", "no entry is named 'wrod'; did you mean 'word'?"),
        ("env=2", "env=2: must be a list of tables; write [[env]] with two brackets"),
        ("learning_rate.peak=2", "is a value, not a table"),
        ("learning_rat=2", "did you mean 'learning_rate'?"),
    ],
)
def test_a_bad_override_is_refused(tmp_path: Path, override: str, message: str) -> None:
    path = write(tmp_path, 'learning_rate = 1e-5\nbatch_size = 16\n[[env]]\nid = "word_game"\nname = "word"\n')
    with pytest.raises(UsageError) as error:
        load_config(path, [override])
    assert message in str(error.value)


def test_a_missing_file_and_an_unknown_recipe_are_two_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'.*none.toml' does not exist"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(UsageError, match=r"did you mean 'multi_env'\?"):
        load_config("multi_emv")


def test_a_file_that_is_not_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"not valid TOML: .*line 1"):
        load_config(write(tmp_path, "batch_size = = 3\n"))


def test_an_override_names_an_environment_as_the_run_does(tmp_path: Path) -> None:
    path = write(tmp_path, 'batch_size = 16\n[[env]]\nid = "pack.games:load"\n')
    assert load_config(path, ["env.games.weight=2.0"]).env[0].weight == 2.0


def test_an_override_into_a_list_of_values_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'env' is no list of tables"):
        load_config(write(tmp_path, "batch_size = 16\nenv = [3]\n"), ["env.x.weight=2.0"])


def test_a_byte_order_mark_is_no_part_of_the_config(tmp_path: Path) -> None:
    path = write(tmp_path, '\ufeffbatch_size = 16\n[[env]]\nid = "math_rl"\n')
    assert load_config(path).batch_size == 16


def test_a_folder_is_no_config(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match=r"config '.*folder\.toml' is a folder"):
        load_config(tmp_path / "folder.toml")


def test_a_config_of_the_other_command_is_told_so() -> None:
    with pytest.raises(
        UsageError, match=r"^multi_env/nano is a config of another command: polygym sft run multi_env/nano$"
    ):
        load_config("multi_env/nano")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[[env]]\nid = "math_rl"\n',
            "give one of batch_size (rollouts a step) and groups_per_environment; neither was",
        ),
        ('max_steps = 5\n[[env]]\nid = "math_rl"\n', "give one of batch_size"),
        ('batch_size = 8\n[env]\nid = "math_rl"\n', "write [[env]] with two brackets"),
        ('optimizer = "muon"\nbatch_size = 8\n[[env]]\nid = "math_rl"\n', "unknown key 'optimizer'"),
    ],
)
def test_a_faulty_config_is_told_its_fault_and_not_sent_to_another_command(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        load_config(write(tmp_path, text))
    assert message in str(error.value)
    assert "another command" not in str(error.value)


@pytest.mark.parametrize("text", ['from_scratch = true\n[[env]]\nid = "a"\n', '[[env]]\nid = "a"\ntarget = 0.5\n'])
def test_one_key_of_the_other_command_is_enough_for_it_to_be_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="is a config of another command: polygym sft run"):
        load_config(write(tmp_path, text))


def test_shipped_recipes_have_configs() -> None:
    assert {"multi_env", "math_rl", "tool_use", "word_game", "document_search_l1"} <= set(recipe_configs())
    assert load_config("math_rl/config", ["name=math_rl"]) == load_config("math_rl")


def test_two_environments_of_one_name_are_refused_before_they_are_loaded() -> None:
    config = validate(RunConfig, MINIMAL | {"env": [{"id": "gone:a"}, {"id": "x:b", "name": "gone"}]}, "mine.toml")
    with pytest.raises(UsageError, match=r"two environments are named 'gone' \(\[\[env\]\] 1 and 2\).*name = .gone_2."):
        build_environment(config.env)


def test_of_two_keys_that_exclude_each_other_an_override_replaces_the_other() -> None:
    config = load_config("multi_env", ["batch_size=384"])
    assert (config.batch_size, config.groups_per_environment) == (384, None)
