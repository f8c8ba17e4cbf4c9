"""Commands as a person runs them: real processes, small work."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

POLYGYM = [str(Path(sys.executable).parent / "polygym")]
ENVIRONMENT = """
import asyncio
import polygym as pg

ROWS = [{"question": f"Say {n}\\x1b[2J.", "answer": str(n), "info": {"n": n}} for n in range(20)]


class Echo(pg.SingleTurnEnv):
    def demonstrate(self, task):
        return "wrong" if self.name == "liar" else task.answer

    async def setup_state(self, state):
        if self.name == "slow" and state["info"]["n"] % 2:
            await asyncio.sleep(60)


def exact(completion, answer):
    return completion == answer


def broken(completion):
    raise RuntimeError("no judge")


def load(name="echo"):
    return Echo(ROWS, rubric=pg.Rubric([exact]), name=name, held_out=0.5)


def worded(completion):
    return "good"


class Lost(Echo):
    def demonstrate(self, task):
        raise LookupError("no demonstration here")


def mixed():
    kinds = {"worded": (Echo, worded), "lost": (Lost, exact), "fine": (Echo, exact)}
    envs = [kind(ROWS, rubric=pg.Rubric([reward]), name=name, held_out=0.5) for name, (kind, reward) in kinds.items()]
    none = Echo(ROWS, rubric=pg.Rubric([exact]), name="none", held_out=0.0)
    return pg.EnvGroup([*envs, none])


def pair():
    judged = Echo(ROWS, rubric=pg.Rubric([broken]), name="b", held_out=0.5)
    return pg.EnvGroup([load(), judged], env_names=["echo", "judged"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to work in, with the module `echo_env`."""
    (tmp_path / "echo_env.py").write_text(ENVIRONMENT, "utf-8")
    return tmp_path


def polygym(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*POLYGYM, *arguments], cwd=folder, capture_output=True, text=True, timeout=120)


def test_shipped_recipes_are_listed(folder):
    listed = json.loads(polygym(folder, "env", "list", "--json").stdout)
    assert {"math_rl", "tool_use", "word_game", "multi_env"} <= {item["id"] for item in listed}


def test_what_is_shown_of_an_environment_holds_no_control_codes(folder):
    shown = polygym(folder, "env", "show", "echo_env:load").stdout
    assert "10 train, 10 held out" in shown
    assert "user:      Say" in shown
    assert "exact x 1; the example's demonstration earns 1\n" in shown
    assert "\x1b" not in shown


def test_a_new_environment_passes_its_checks(folder):
    assert polygym(folder, "env", "init", "my_env").returncode == 0
    tested = polygym(folder, "env", "test", "./my_env", "-n", "3")
    assert (tested.returncode, tested.stdout.splitlines()[-1]) == (0, "4 passed, 0 failed, 0 skipped")
    again = polygym(folder, "env", "init", "my_env")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)


def test_a_demonstration_that_does_not_earn_its_reward_fails_the_check(folder):
    tested = polygym(folder, "env", "test", "echo_env:load", "--set", "name=liar", "-n", "2", "--json")
    failed = [check["name"] for check in json.loads(tested.stdout)["checks"] if check["passed"] is False]
    assert (tested.returncode, failed) == (1, ["demonstrations earn their reward"])


def test_an_evaluation_prints_a_table_and_writes_three_files(folder):
    done = polygym(folder, "eval", "run", "echo_env:load", "--model", "oracle", "-n", "3", "-r", "2", "-o", "out/echo")
    assert done.returncode == 0, done.stderr
    assert "echo" in done.stdout
    assert "1.000" in done.stdout
    rows = (folder / "out/echo.jsonl").read_text("utf-8").splitlines()
    metrics = json.loads((folder / "out/echo_metrics.json").read_bytes())
    assert len(rows) == 6
    assert metrics["environments"]["echo"]["mean_reward"] == 1.0
    assert (folder / "out/echo_failures.jsonl").read_bytes() == b""


def test_the_config_of_a_recipe_can_be_evaluated_by_name(folder):
    done = polygym(folder, "eval", "run", "document_search_l1/config", "-m", "oracle", "-n", "1", "-r", "1", "--json")
    found = json.loads(done.stdout)
    assert (found["settings"]["sampling"]["documents"]["max_tokens"], found["combined"]["mean_reward"]) == (96, 1.0)


def test_an_endpoint_that_is_down_is_exit_code_1_and_no_reward_of_0(folder):
    model = "http://127.0.0.1:9/v1"
    done = polygym(folder, "eval", "run", "echo_env:load", "-m", model, "-n", "1", "-r", "1", "--timeout", "5")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in done.stderr


def test_an_environment_without_any_score_is_named_with_its_cause_and_is_exit_code_1(folder):
    done = polygym(folder, "eval", "run", "echo_env:pair", "-m", "oracle", "-n", "2", "-r", "2")
    assert done.returncode == 1
    told = "judged: none of 4 rollouts was scored (reward 4); reward: reward function 'broken' raised RuntimeError: no "
    assert told in done.stdout
    last = "error: no reward for 4 of 8 rollouts (judged 4 of 4); the causes stand with the results"
    assert done.stderr.splitlines()[-1] == last


def test_an_environment_that_fails_a_check_keeps_no_other_from_its_checks(folder):
    tested = polygym(folder, "env", "test", "echo_env:mixed", "-n", "2", "--json")
    assert (tested.returncode, tested.stderr) == (1, "")
    checks = json.loads(tested.stdout)["checks"]
    failed = {(check["environment"], check["name"]): check["detail"] for check in checks if check["passed"] is False}
    assert failed.keys() == {
        ("worded", "demonstrations earn their reward"),
        ("worded", "an empty answer is scored"),
        ("lost", "demonstrations earn their reward"),
        ("none", "both splits have tasks and share none"),
    }
    assert failed["worded", "an empty answer is scored"].startswith("reward function 'worded' returned 'good' (str)")
    assert failed["lost", "demonstrations earn their reward"] == "LookupError: no demonstration here"
    assert len(checks) == 14


def test_an_earlier_evaluation_is_replaced_only_with_overwrite(folder):
    command = ("eval", "run", "echo_env:load", "--model", "oracle", "-r", "1", "-o", "kept")
    assert polygym(folder, *command, "-n", "2").returncode == 0
    before = (folder / "kept_metrics.json").read_bytes()
    again = polygym(folder, *command, "-n", "3")
    assert again.returncode == 2
    told = (
        "error: output 'kept' holds an evaluation already (kept.jsonl, kept_failures.jsonl, kept_metrics.json); give "
    )
    assert again.stderr.startswith(told + "another one (-o), replace it (--overwrite, overwrite=True), or ")
    assert (folder / "kept_metrics.json").read_bytes() == before
    assert polygym(folder, *command, "-n", "3", "--overwrite").returncode == 0
    assert len((folder / "kept.jsonl").read_text("utf-8").splitlines()) == 3


def test_an_interrupted_evaluation_keeps_what_it_had_and_exits_with_130(folder):
    command = [*POLYGYM, "eval", "run", "echo_env:load", "--set", "name=slow", "-m", "oracle", "-r", "1", "-o", "out"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    kept = folder / "out.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (not kept.exists() or not kept.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "interrupted"
    assert all(json.loads(row)["reward"] == 1.0 for row in kept.read_text("utf-8").splitlines())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["eval", "run", "echo_env:load", "--set", "nmae=x"], "'nmae'; did you mean 'name'? Allowed: name"),
        (["eval", "run", "echo_env:load", "-n", "11"], "the maximum is 10"),
        (["eval", "run", "wrod_game"], "did you mean 'word_game'?"),
        (["rl", "run", "typo.toml"], "unknown key 'learning_rat'; did you mean 'learning_rate'?"),
        (["plan", "weights.toml"], "weight"),
        (["rl", "run", "many.toml", "--dry-run"], "[eval] num_examples=11 is more than the 10 held-out tasks"),
    ],
)
def test_a_mistake_is_told_with_its_fix(arguments, said, folder):
    (folder / "typo.toml").write_text('batch_size = 8\nlearning_rat = 1e-5\n[[env]]\nid = "word_game"\n', "utf-8")
    zero = '[[env]]\nid = "word_game"\nweight = 0\n[[env]]\nid = "tool_use"\nweight = 0\n'
    (folder / "weights.toml").write_text("batch_size = 8\n" + zero, "utf-8")
    many = 'batch_size = 8\n[eval]\nnum_examples = 11\n[[env]]\nid = "echo_env:load"\n'
    (folder / "many.toml").write_text(many, "utf-8")
    done = polygym(folder, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")


def test_a_plan_speaks_of_groups_where_the_config_does_and_of_its_weights(folder):
    mix = "".join(f'[[env]]\nid = "echo_env:load"\nname = "{name}"\nweight = {w}\n' for name, w in (("a", 3), ("b", 1)))
    (folder / "groups.toml").write_text("groups_per_environment = 4\n" + mix, "utf-8")
    (folder / "batch.toml").write_text("batch_size = 64\n" + mix, "utf-8")
    by_groups, by_batch = (
        json.loads(polygym(folder, "plan", f"{name}.toml", "--json").stdout) for name in ("groups", "batch")
    )
    keys = ("groups_per_environment", "groups_with_one_more", "batch_size_with_one_more")
    assert [by_groups[key] for key in keys] == [4, 12, None]
    assert [by_batch[key] for key in keys] == [None, 10, 80]
    assert "batch_size" not in by_groups["advice"]


def test_a_plan_shows_the_step_without_training(folder):
    (folder / "mix.toml").write_text(
        'batch_size = 64\n[eval]\nnum_examples = 10\n[[env]]\nid = "echo_env:load"\nname = "echo"\n', "utf-8"
    )
    plan = json.loads(polygym(folder, "plan", "mix.toml", "--json").stdout)
    assert (plan["prompts_per_step"], plan["rollouts_per_example"], plan["batch_size"]) == (8, 8, 64)
    dry = polygym(folder, "rl", "run", "mix.toml", "--dry-run")
    assert "8 prompts x 8 responses = 64 rollouts a step" in dry.stdout
    assert dry.stderr == "not checked: the weights of nano, and whether a step fits into memory\n"
    refused = polygym(folder, "rl", "run", "mix.toml", "--dry-run", "--set", "device=cuda:7")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert not (folder / "runs").exists()
