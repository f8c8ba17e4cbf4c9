"""Find a five-letter word in six guesses."""

from polygym.recipes.word_game.word_game import WordGameEnv, load_environment

__all__ = ["WordGameEnv", "load_environment"]
