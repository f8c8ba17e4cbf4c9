"""A counter of the policy's own: it starts somewhere, and has to be raised."""

from polygym.recipes.example_session_state.example_session_state import CounterEnv, load_environment

__all__ = ["CounterEnv", "load_environment"]
