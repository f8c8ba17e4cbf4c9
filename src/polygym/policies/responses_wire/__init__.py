"""The wire of OpenAI's Responses API, with the token fields of NeMo Gym: items, tools, request and response bodies.

The one idea: a message is several items (what was thought, what was said, one for each call), and a rollout is one
response whose output also holds what the environment replied. `items` turns messages into items and back, `params`
reads a request, `body` writes and reads a response.
"""

from polygym.policies.responses_wire.body import classify_response, response_body
from polygym.policies.responses_wire.items import input_items, output_items, read_input, read_output, read_turns
from polygym.policies.responses_wire.params import CreateParams, read_create_params, tool_items
from polygym.policies.wire_input import read_tools

__all__ = [
    "CreateParams",
    "classify_response",
    "input_items",
    "output_items",
    "read_create_params",
    "read_input",
    "read_output",
    "read_tools",
    "read_turns",
    "response_body",
    "tool_items",
]
