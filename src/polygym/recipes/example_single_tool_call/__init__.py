"""A question about the weather that one tool call answers."""

from polygym.recipes.example_single_tool_call.example_single_tool_call import WeatherEnv, load_environment

__all__ = ["WeatherEnv", "load_environment"]
