"""document_search: find a company in 100 profiles, look it up, answer with one figure.

The one idea: the answer stands in no search result, so a policy has to chain two tools: search, then look up what the
search found. A company belongs to one split only, and so do all questions about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polygym.environments import ToolEnv
from polygym.errors import UsageError
from polygym.messages import Message, ToolCall
from polygym.recipes.document_search.profiles import Profile, profiles
from polygym.recipes.document_search.tools import TOOLS, get_metadata, search_docs
from polygym.recipes.task_space import is_held_out, shuffled_range, take, take_up_to
from polygym.recipes.tool_use.tool_use import exact_match
from polygym.rewards.rubric import Rubric
from polygym.rollout import Task
from polygym.seeds import check_seed, derive_seed

SYSTEM_PROMPT = (
    "Answer questions about companies: find the company with search_docs, then read its figures with get_metadata. "
    "Give only the answer on the last line."
)
MAX_TURNS = 5
QUESTIONS = {
    "director": "Who is the director of {company}?",
    "founded": "In which year was {company} founded?",
    "employees": "How many employees does {company} have?",
    "revenue_million": "What is the revenue of {company} in millions?",
    "patents": "How many patents does {company} hold?",
}
COMPANIES = {
    "name": "{profile.name}",
    "product": "the maker of {profile.product} in {profile.city}",
}
QUERIES = {"name": "{profile.name}", "product": "{profile.product} {profile.city}"}


class DocumentSearchEnv(ToolEnv):
    """Search, look up, answer."""

    def demonstrate(self, task: Task) -> list[Message]:
        """A search, the look-up of the document that is meant, and the answer."""
        query, doc_id = task.info["query"], task.info["doc_id"]
        search = ToolCall("search_docs", {"query": query}, id="call_1")
        look_up = ToolCall("get_metadata", {"doc_id": doc_id}, id="call_2")
        return [
            Message("assistant", tool_calls=(search,)),
            Message("tool", search_docs(query), tool_call_id=search.id),
            Message("assistant", tool_calls=(look_up,)),
            Message("tool", get_metadata(doc_id), tool_call_id=look_up.id),
            Message("assistant", task.answer),
        ]


def load_environment(
    num_examples: int = 500,
    num_eval_examples: int | None = None,
    seed: int = 0,
    level: int = 1,
    max_turns: int = MAX_TURNS,
) -> DocumentSearchEnv:
    """Questions about 100 made-up companies, with `search_docs` and `get_metadata`.

    Args:
        num_examples: training tasks.
        num_eval_examples: held-out tasks; default as many as `num_examples`, or as many as there are.
        seed: chooses the tasks and their order. The companies and the split do not depend on it.
        level: 1, a question about one figure of one company.
        max_turns: replies of the policy in one episode.

    Raises:
        UsageError: for a bad argument, or more examples than exist; it names the maximum.
    """
    check_seed(seed)
    if level != 1:
        raise UsageError(f"document_search: level={level!r} does not exist; the only level is 1")
    train, held_out = (_rows(seed, held_out=side) for side in (False, True))
    train_rows = take(train, num_examples, environment="document_search", argument="num_examples")
    if num_eval_examples is None:
        held_out_rows = take_up_to(held_out, num_examples)
    else:
        held_out_rows = take(held_out, num_eval_examples, environment="document_search", argument="num_eval_examples")
    return DocumentSearchEnv(
        train_rows,
        eval_dataset=held_out_rows,
        tools=list(TOOLS),
        system_prompt=SYSTEM_PROMPT,
        rubric=Rubric([exact_match]),
        max_turns=max_turns,
        name="document_search",
    )


def _rows(seed: int, *, held_out: bool) -> Iterator[dict[str, Any]]:
    """Dataset rows of one split, each once, in the order of `seed`."""
    companies = [profile for profile in profiles() if is_held_out("document_search", profile.name) is held_out]
    kinds = [(field, by) for field in QUESTIONS for by in COMPANIES]
    order = shuffled_range(len(companies) * len(kinds), derive_seed("document_search", seed, int(held_out)))
    for position in order:
        company, kind = divmod(position, len(kinds))
        yield _row(companies[company], *kinds[kind])


def _row(profile: Profile, field: str, by: str) -> dict[str, Any]:
    return {
        "id": f"{profile.doc_id}/{field}/{by}",
        "question": QUESTIONS[field].format(company=COMPANIES[by].format(profile=profile)),
        "answer": profile.metadata[field],
        "info": {"doc_id": profile.doc_id, "query": QUERIES[by].format(profile=profile)},
    }
