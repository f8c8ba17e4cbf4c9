"""Questions that one of four tools answers."""

from polygym.recipes.tool_use.tool_use import ToolUseEnv, load_environment

__all__ = ["ToolUseEnv", "load_environment"]
