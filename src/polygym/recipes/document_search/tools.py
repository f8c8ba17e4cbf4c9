"""The two tools of document_search: a full-text search and a look-up.

The one idea: a search finds the document, only the look-up tells its figures. Ranking is BM25; equal scores keep the
order of the documents, so the same query gives the same answer everywhere.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

from polygym.recipes.document_search.profiles import Profile, profiles

RESULTS = 5
MAX_QUERY_CHARACTERS = 400


def search_docs(query: str) -> str:
    """Search the company profiles and list the best matches, one a line: id, name, first sentence.

    Args:
        query: Words to look for, such as a company, a product or a city.
    """
    words = _words(query[:MAX_QUERY_CHARACTERS])
    index, vocabulary = _index()
    known = [word for word in words if word in vocabulary]
    if not known:
        return "No document matches."
    scores = index.get_scores(known)
    best = sorted(range(len(scores)), key=lambda position: (-float(scores[position]), position))[:RESULTS]
    found = [profiles()[position] for position in best if scores[position] > 0]
    return "\n".join(f"{profile.doc_id}: {profile.text.split('. ')[0]}." for profile in found)


def get_metadata(doc_id: str) -> str:
    """Tell the figures of one company: director, founded, employees, revenue_million, patents.

    Args:
        doc_id: The id of its document, such as doc_001.
    """
    profile = _by_id().get(doc_id.strip())
    if profile is None:
        known = list(_by_id())
        raise ValueError(f"there is no document {doc_id!r}; ids run from {known[0]} to {known[-1]}")
    return json.dumps({"name": profile.name, **profile.metadata})


TOOLS: tuple[Callable[..., Any], ...] = (search_docs, get_metadata)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


@functools.cache
def _by_id() -> dict[str, Profile]:
    return {profile.doc_id: profile for profile in profiles()}


@functools.cache
def _index() -> tuple[Any, frozenset[str]]:
    """The BM25 index of the profiles, built at the first search, and the words in it."""
    import bm25s

    documents = [_words(f"{profile.name} {profile.text}") for profile in profiles()]
    index = bm25s.BM25()
    index.index(documents, show_progress=False)
    return index, frozenset(word for document in documents for word in document)
