"""Math, tools and words as one environment."""

from polygym.recipes.multi_env.multi_env import load_environment

__all__ = ["load_environment"]
