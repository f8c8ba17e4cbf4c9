"""Collect the values of a term's synonyms, call by call, and hand them in in order."""

from polygym.recipes.example_multi_step.example_multi_step import SynonymEnv, load_environment

__all__ = ["SynonymEnv", "load_environment"]
