"""Questions about companies that a search and a look-up answer."""

from polygym.recipes.document_search.document_search import DocumentSearchEnv, load_environment

__all__ = ["DocumentSearchEnv", "load_environment"]
