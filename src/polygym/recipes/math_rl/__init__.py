"""Arithmetic, or a JSONL of word problems, answered in a box."""

from polygym.recipes.math_rl.math_rl import MathEnv, load_environment

__all__ = ["MathEnv", "load_environment"]
