"""The document_search recipe."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from polygym.environments import load_environment as load_by_id
from polygym.environments.episode import play
from polygym.environments.oracle import OraclePolicy
from polygym.errors import UsageError
from polygym.policies.base import Sampling
from polygym.recipes.document_search import load_environment
from polygym.recipes.document_search.profiles import profiles
from polygym.recipes.document_search.tools import RESULTS, get_metadata, search_docs
from polygym.train.config import load_config


def test_there_are_100_companies_told_apart_by_name_and_by_product_and_city() -> None:
    made = profiles()
    assert len({profile.doc_id for profile in made}) == 100
    assert len({profile.name for profile in made}) == 100
    assert len({(profile.product, profile.city) for profile in made}) == 100
    assert len({profile.metadata["director"] for profile in made}) == 100


def test_no_search_result_contains_an_answer() -> None:
    for profile in profiles():
        for value in profile.metadata.values():
            assert value not in profile.text


def test_a_search_ranks_the_company_that_is_meant_first() -> None:
    for profile in profiles():
        assert search_docs(f"{profile.product} {profile.city}").startswith(profile.doc_id)
        assert search_docs(profile.name.upper()).startswith(profile.doc_id)


@pytest.mark.parametrize("query", ["", "zzz", "???", "x" * 10_000, "東京"])
def test_a_search_for_nothing_known_says_so(query: str) -> None:
    assert search_docs(query) == "No document matches."


def test_a_search_lists_at_most_five_documents() -> None:
    assert len(search_docs("makes in customers hospitals").splitlines()) == RESULTS


def test_the_look_up_tells_the_figures_or_the_known_ids() -> None:
    assert json.loads(get_metadata(" doc_001 ")) == {"name": profiles()[0].name, **profiles()[0].metadata}
    with pytest.raises(ValueError, match="no document 'doc_101'; ids run from doc_001 to doc_100"):
        get_metadata("doc_101")


def test_the_splits_share_no_company() -> None:
    env = load_environment()
    companies = [{task.info["doc_id"] for task in env.tasks(split)} for split in ("train", "held_out")]
    assert companies[0] & companies[1] == set()
    assert len(companies[0] | companies[1]) == 100


def test_asking_for_more_tasks_than_exist_gives_the_maximum() -> None:
    with pytest.raises(UsageError, match=r"num_examples=5000 is more than exist: the maximum is 800"):
        load_environment(num_examples=5000)
    with pytest.raises(UsageError, match=r"num_eval_examples=5000 is more than exist: the maximum is 200"):
        load_environment(num_eval_examples=5000)


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="level=2 does not exist; the only level is 1"):
        load_environment(level=2)


def test_a_seed_gives_the_same_tasks_in_another_process() -> None:
    code = (
        "from polygym.recipes.document_search import load_environment\n"
        "print([task.id for task in load_environment(num_examples=20, seed=7).tasks('train')])"
    )
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    ours = [task.id for task in load_environment(num_examples=20, seed=7).tasks("train")]
    assert other == str(ours)
    assert ours != [task.id for task in load_environment(num_examples=20, seed=8).tasks("train")]


@pytest.mark.parametrize("name", ["document_search", "document_search_l1"])
def test_the_demonstration_earns_the_full_reward(name: str) -> None:
    env = load_by_id(name, num_examples=10, num_eval_examples=10)
    policy = OraclePolicy(env)
    for split in ("train", "held_out"):
        for task in env.tasks(split):
            rollout = asyncio.run(play(env, task, policy, sampling=Sampling(), seed=0, group_id="g", rollout_index=0))
            assert (rollout.reward, len(rollout.turns)) == (1.0, 3)


def test_an_answer_without_its_own_line_earns_nothing() -> None:
    env = load_environment(num_examples=1)
    score = asyncio.run(
        env.rubric.score({"messages": [*env.demonstrate(env.tasks("train")[0])[:-1]], "answer": "Ada Amsel"})
    )
    assert score.reward == 0.0


def test_the_config_of_the_recipe_is_valid() -> None:
    config = load_config("document_search")
    assert [(entry.id, entry.name) for entry in config.env] == [("document_search", "documents")]
    level_1 = load_config("document_search_l1", ["name=document_search", "env.documents.id=document_search"])
    assert level_1 == config
