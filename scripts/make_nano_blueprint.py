"""Write nano's tokenizer and shape: `python scripts/make_nano_blueprint.py [FOLDER]`.

The one idea: the phrases are taken from the recipes themselves, so that an episode of theirs is a few dozen tokens. The
weights that it writes are untrained; `polygym sft run multi_env/nano` trains them.
"""

from __future__ import annotations

import string
import sys
from pathlib import Path

from polygym.policies import nano_blueprint
from polygym.recipes.math_rl import math_rl
from polygym.recipes.tool_use import tool_use
from polygym.recipes.tool_use.questions import WORDS
from polygym.recipes.tool_use.tools import TOOLS, UNITS
from polygym.recipes.word_game import word_game
from polygym.recipes.word_game.words import answers

FOLDER = Path(__file__).parent.parent / "src" / "polygym" / "policies" / "nano"


def phrases() -> list[str]:
    """All phrases, each once."""
    units = [unit for dimension in UNITS.values() for unit in dimension]
    calls = [f'<tool_call>\n{{"name": "{tool.__name__}", "arguments": {{"' for tool in TOOLS]
    feedback = [
        f"{'' if place == 1 else ' '}{place}{letter}{colour}"
        for place in range(1, 6)
        for letter in string.ascii_lowercase
        for colour in "GYB"
    ]
    return [
        math_rl.SYSTEM_PROMPT,
        tool_use.SYSTEM_PROMPT,
        word_game.SYSTEM_PROMPT,
        *("What is ", " + ", " - ", " * ", " / ", "\\boxed{"),
        *('How many words are in "', '"?', 'Reverse the string "', '".', "Convert ", " to "),
        *(f'{call}{argument}": {quote}' for call, (argument, quote) in zip(calls, ARGUMENTS, strict=True)),
        *('"}}\n</tool_call>', ', "from_unit": "', '", "to_unit": "'),
        *units,
        *(f" {unit}" for unit in units),
        *WORDS,
        *(f" {word}" for word in WORDS),
        *(f"Error: {tool.__name__}" for tool in TOOLS),
        *(
            " raised ValueError: ",
            " is no arithmetic expression",
            "Error: this call was not run: ",
            "Error: unknown tool ",
        ),
        word_game.FIRST_PROMPT,
        f"{word_game.OPENING_PROMPT}\n",
        *word_game.ERRORS.values(),
        *feedback,
        *(f"<guess>{word}</guess>" for word in answers()),
    ]


ARGUMENTS = (("expression", '"'), ("text", '"'), ("text", '"'), ("value", ""))  # first argument of each tool, its quote


def main(folder: Path) -> None:
    """Write the folder."""
    tokenizer = nano_blueprint.build_tokenizer(phrases())
    tokenizer.save_pretrained(folder)
    nano_blueprint.build_model(tokenizer, seed=0).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
