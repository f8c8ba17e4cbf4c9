"""document_search_l1: level 1 of document_search, one figure of one company by search and look-up."""

from __future__ import annotations

from polygym.recipes.document_search import DocumentSearchEnv
from polygym.recipes.document_search import load_environment as _load_environment
from polygym.recipes.document_search.document_search import MAX_TURNS

__all__ = ["load_environment"]


def load_environment(
    num_examples: int = 500, num_eval_examples: int | None = None, seed: int = 0, max_turns: int = MAX_TURNS
) -> DocumentSearchEnv:
    """document_search at level 1; see there for the arguments."""
    return _load_environment(num_examples, num_eval_examples, seed, level=1, max_turns=max_turns)
