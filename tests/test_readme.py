"""What the README and the docs print is run here as printed.

Shell and Python blocks run in a folder of their own, with the TOML and YAML blocks of their page that name a file
(`# mix.toml`) written beside. An HTML comment before a block says when it is run: `<!-- slow -->` marks it, and
`<!-- in CI: reason -->` keeps it for CI, where minutes do not matter. Blocks of `make` are what this suite itself runs
under; CI runs them all.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (?P<note>[^>]*?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```", re.DOTALL)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """(language, text, note) of each fenced block."""
    found = BLOCK.finditer((ROOT / page).read_text("utf-8"))
    return [(match["language"], match["text"], match["note"] or "") for match in found]


def runnable() -> list[object]:
    parameters = []
    for page in PAGES:
        for number, (language, text, note) in enumerate(blocks(page)):
            if language in ("sh", "python") and not text.startswith("make "):
                marks = [pytest.mark.slow] if note.startswith("slow") else []
                if note.startswith("in CI:"):
                    marks = [pytest.mark.slow, pytest.mark.skipif("CI" not in os.environ, reason=note)]
                parameters.append(pytest.param(page, language, text, id=f"{page}-{number}", marks=marks))
    return parameters


@pytest.mark.parametrize(("page", "language", "text"), runnable())
def test_a_printed_block_runs(page, language, text, tmp_path):
    for kind, content, _ in blocks(page):
        named = re.match(r"# (\w+\.(?:toml|yaml))\n", content)
        if kind in ("toml", "yaml") and named:
            (tmp_path / named[1]).write_text(content, "utf-8")
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
    try:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    finally:
        if "env start" in text:  # a block that broke off may have left its servers
            subprocess.run(["polygym", "env", "stop", "--all"], env=environment, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_the_two_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    printed = re.findall(r"^make (\w+)", "".join(text for page in PAGES for _, text, _ in blocks(page)), re.MULTILINE)
    assert {"demo", "test"} <= set(printed)
    for target in printed:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_every_printed_toml_is_a_config():
    from polygym.train.config import RunConfig
    from polygym.train.config_file import validate
    from polygym.train.sft_config import SFTConfig

    for page in PAGES:
        for language, text, _ in blocks(page):
            if language == "toml":
                table = tomllib.loads(text)
                validate(SFTConfig if "data" in table else RunConfig, table, page)


def table_of(section: type[BaseModel]) -> str:
    """The keys of a table of a config file as the page shows them; tables inside it have a heading of their own.

    The keys of every training config stand on the page once.
    """
    from polygym.train.config import TrainingConfig

    common = TrainingConfig.model_fields if issubclass(section, TrainingConfig) and section != TrainingConfig else {}
    lines = ["| key | default | meaning |", "|---|---|---|"]
    for key, field in section.model_fields.items():
        default = field.get_default(call_default_factory=True)
        if field.description is None or isinstance(default, BaseModel) or key in common:
            continue
        shown = "required" if field.is_required() else f"`{json.dumps(default)}`"
        lines.append(f"| `{key}` | {'' if default in (None, (), {}) else shown} | {field.description} |")
    return "\n".join(lines)


def test_the_configuration_page_tells_every_key_as_the_code_does():
    from polygym.train import config, sft_config

    page = (ROOT / "docs/configuration.md").read_text("utf-8")
    sections = [
        found
        for module in (config, sft_config)
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, BaseModel) and found.__module__ == module.__name__
    ]
    assert len(sections) >= 7
    for section in sections:
        assert table_of(section) in page, f"{section.__name__}: put this on the page\n{table_of(section)}"


def test_links_inside_the_repository_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(((?!https?:)[^)#]+)", (ROOT / page).read_text("utf-8")):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"
