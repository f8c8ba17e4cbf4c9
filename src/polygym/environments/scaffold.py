"""The files of a new environment: `polygym env init NAME`.

The one idea: what is written is a complete small environment with a passing test, so that the first edit starts from
something that works.
"""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

from polygym.environments.names import check_names
from polygym.environments.registry import list_environments
from polygym.errors import UsageError

MODULE = '''"""NAME: write a word backwards.

Replace the words, the question and the reward by your own. A page is enough for an environment.
"""

import random

import polygym as pg

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def exact(completion, answer):
    """1 for the right word. Ask by name for: completion, messages, answer, info, state, task, parser."""
    return completion.strip() == answer


class CLASS(pg.SingleTurnEnv):
    """For more turns use pg.MultiTurnEnv and env_response(messages, state); for tools pg.ToolEnv(tools=[...])."""

    def demonstrate(self, task):
        """What earns the full reward: it feeds `polygym env test` and the warm start of a small policy."""
        return task.answer


def load_environment(num_examples=100, num_eval_examples=20, seed=0):
    """Tasks are a function of the seed; the last ones are held out and never trained on."""
    stream = random.Random(seed)
    words = set()
    while len(words) < num_examples + num_eval_examples:
        words.add("".join(stream.choices(LETTERS, k=5)))
    rows = [{"question": f"Write {word} backwards.", "answer": word[::-1]} for word in sorted(words)]
    stream.shuffle(rows)
    return CLASS(
        rows[:num_examples],
        eval_dataset=rows[num_examples:],
        system_prompt="Answer with one word.",
        rubric=pg.Rubric([exact]),
        name="NAME",
    )
'''

README = """# NAME

Write a word of five letters backwards. One turn; the reward is 1 for the right word, else 0.

| argument | default | |
|---|---|---|
| num_examples | 100 | training tasks |
| num_eval_examples | 20 | held-out tasks |
| seed | 0 | chooses the words |

```
python -m pytest                          # its tests
polygym env test .                        # splits, demonstrations, scoring
polygym eval run . --model oracle -n 10   # or nano, a Hugging Face id, a model at an OpenAI-compatible endpoint
pip install -e .                          # then `NAME` is its id everywhere: polygym env show NAME
```
"""

PYPROJECT = """[build-system]
requires = ["setuptools>=64"]
build-backend = "setuptools.build_meta"

[project]
name = "NAME"
version = "0.1.0"
description = "Write a word backwards"
requires-python = ">=3.11"
dependencies = ["polygym"]

[project.entry-points."polygym.environments"]
NAME = "NAME:load_environment"

[tool.setuptools]
py-modules = ["NAME"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

TEST = '''"""The demonstrations earn the full reward, a wrong answer earns nothing, and a seed names the tasks."""

import polygym as pg
from NAME import exact, load_environment


def test_demonstrations_earn_the_full_reward():
    results = pg.evaluate(load_environment(), model="oracle", num_examples=5, rollouts_per_example=1)
    assert results.to_dict()["environments"]["NAME"]["mean_reward"] == 1.0


def test_a_wrong_answer_earns_nothing():
    assert not exact("abc", "cba")
    assert exact(" cba\\n", "cba")


def test_a_seed_names_the_tasks():
    questions = [[task.prompt for task in load_environment(seed=seed).tasks()] for seed in (0, 0, 1)]
    assert questions[0] == questions[1] != questions[2]
'''


def create(name: str, folder: Path | str = ".") -> list[Path]:
    """Write a new environment into `folder/name`; returns the files.

    Raises:
        UsageError: when the name is no module name of its own, or the folder exists already.
    """
    check_names([name])
    if name in {entry.id for entry in list_environments()}:
        raise UsageError(f"environment name {name!r} is the id of another environment; choose another name")
    taken = name in sys.stdlib_module_names or name == "polygym"
    if not name.isidentifier() or keyword.iskeyword(name) or taken:
        raise UsageError(
            f"environment name {name!r} {'is taken by another module' if taken else 'is no Python module name'}; "
            "use letters, digits and '_', such as my_env"
        )
    home = Path(folder) / name
    if home.exists():
        raise UsageError(f"{str(home)!r} exists already; choose another name or remove it, nothing was written")
    class_name = "".join(part.capitalize() for part in name.removesuffix("env").split("_")) + "Env"
    files = {
        home / f"{name}.py": MODULE,
        home / "README.md": README,
        home / "pyproject.toml": PYPROJECT,
        home / "tests" / f"test_{name}.py": TEST,
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("NAME", name).replace("CLASS", class_name), encoding="utf-8")
    return list(files)
