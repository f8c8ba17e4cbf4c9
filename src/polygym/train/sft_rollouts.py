"""Collected rollouts to learn from: those of a file that earned enough, one stream of samples an environment.

The one idea: a rollout is learned as a demonstration is, from its messages, rendered to the ids that the policy would
see and write. Nothing wrong is taught: what earned less, was cut off, or holds a call that could not be read is left
out, and counted.

Limits: what a policy thought is in no message that it reads again, and is not taught. Rows of an evaluation in process
do not hold their tools; they are those of the environment of that name, where the config has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from polygym.collect.rollout_rows import RolloutKey, RolloutRows
from polygym.environments import Environment
from polygym.errors import UsageError, nearest
from polygym.messages import Message, ToolSpec
from polygym.mixture.cursor import TaskCursor
from polygym.policies.responses_wire import read_tools
from polygym.rows import Row
from polygym.train.samples import TokenSample
from polygym.train.sft_config import SFTConfig, SFTDataConfig


class RolloutStream:
    """An endless stream of one environment's good rollouts, each once an epoch; their rows stay in the file."""

    target: float | None = None
    reached = False

    def __init__(
        self, name: str, file: RolloutRows, keys: list[RolloutKey], entry: SFTDataConfig, tools: Sequence[ToolSpec]
    ) -> None:
        self.name = name
        self.batch_size, self.loss_weight, self.min_reward = entry.batch_size, entry.loss_weight, entry.min_reward
        self.left_out: Counter[str] = Counter()
        self._file = file
        self._tools = tools
        self._keys = keys
        self._cursor: TaskCursor | None = None

    def choose(self, renderer: Any, max_tokens: int, seed: int) -> str:
        """Look at every rollout and keep those to learn from; returns a line that tells how many they are.

        Raises:
            UsageError: when none is.
        """
        rewards = dict(self._file.rewards())
        kept = []
        for key in self._keys:
            reward = rewards[key]
            problem = "unscored" if reward is None else "below min_reward" if reward < self.min_reward else ""
            problem = problem or self._problem(self._file.row(key), renderer, max_tokens)
            if problem:
                self.left_out[problem] += 1
            else:
                kept.append(key)
        why = ", ".join(f"{count} {problem}" for problem, count in self.left_out.most_common())
        line = f"{self.name}: {len(kept)} of {len(self._keys)} rollouts of {self._file.path} are learned from"
        if not kept:
            raise UsageError(f"{line}: {why}; lower min_reward, or raise max_seq_len where they are too long")
        self._keys = kept
        self._cursor = TaskCursor(seed, self.name, len(kept))
        return f"{line} (left out: {why})" if why else line

    def draw(self, renderer: Any, max_tokens: int) -> list[TokenSample]:
        """The next samples."""
        assert self._cursor is not None
        return [
            self._render(self._file.row(self._keys[index]), renderer) for index in self._cursor.draw(self.batch_size)
        ]

    def _problem(self, row: Row, renderer: Any, max_tokens: int) -> str:
        """Why a rollout with a good reward is not learned from; an empty text where it is."""
        if row.get("truncated"):
            return "cut off"
        messages = [Message.from_dict(message) for message in row["messages"]]
        if any(call.error is not None for message in messages for call in message.tool_calls):
            return "with a malformed call"
        if not row["turns"]:
            return "without an answer"
        if any(message.tool_calls for message in messages) and not self._tools_of(row):
            raise UsageError(
                f"{self._file.path}: rollouts of {row['environment']!r} call tools, and their rows do not say which "
                f'there are: add the environment that they come from: [[eval.env]] with name = "{row["environment"]}"'
            )
        return "too long for max_seq_len" if len(self._render(row, renderer).ids_T) > max_tokens else ""

    def _render(self, row: Row, renderer: Any) -> TokenSample:
        messages = [Message.from_dict(message) for message in row["messages"]]
        said = [place for place, message in enumerate(messages) if message.role == "assistant"]
        begin = said[-row["turns"]]  # answers before are worked examples
        ids, mask = renderer.render_training(messages, self._tools_of(row), prompt_messages=begin)
        return TokenSample(list(ids), [int(flag) for flag in mask], None)

    def _tools_of(self, row: Row) -> Sequence[ToolSpec]:
        params = row.get("responses_create_params")
        return read_tools(params.get("tools")) if isinstance(params, Mapping) else self._tools


def rollout_streams(config: SFTConfig, leaves: Mapping[str, Environment], files: ExitStack) -> list[RolloutStream]:
    """The streams of all `[[data]]`.

    Args:
        leaves: environments of the run by name, which know the tools of rollouts that do not tell them.
        files: keeps the files open.

    Raises:
        UsageError: for files that hold no rollouts, environments that are not in them, and names that are used twice.
    """
    streams: dict[str, RolloutStream] = {}
    for entry in config.data:
        file = files.enter_context(RolloutRows(entry.path))
        for name, keys in _by_environment(file, entry.environments):
            called = f"{entry.name}/{name}" if entry.name else name
            if called in streams or called in {found.title for found in config.env}:
                raise UsageError(
                    f"{entry.path} holds rollouts of {called!r}, and something of that name is learned already; give "
                    'the [[data]] a name: name = "collected"'
                )
            tools = leaves[name].tools if name in leaves else ()
            streams[called] = RolloutStream(called, file, keys, entry, tools)
    return list(streams.values())


def _by_environment(file: RolloutRows, wanted: Sequence[str]) -> Iterator[tuple[str, list[RolloutKey]]]:
    keys_E: dict[str, list[RolloutKey]] = {}
    for key in file.names():
        keys_E.setdefault(key[0], []).append(key)
    for name in wanted or keys_E:
        if name not in keys_E:
            raise UsageError(f"{file.path} holds no rollouts of environment {name!r}; {nearest(name, keys_E)}")
        yield name, keys_E[name]
