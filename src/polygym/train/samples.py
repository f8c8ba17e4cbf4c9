"""From the turns of a rollout to the token sequences that are trained on.

The one idea: only ids that the policy sampled carry loss. A turn whose prompt extends what came before continues the
same sequence; a turn whose history was rewritten (re-tokenised, shortened) starts a new one, and the split is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from polygym.errors import UsageError
from polygym.rollout import Turn


@dataclass(slots=True)
class TokenSample:
    """One token sequence; the three lists are of equal length.

    `mask_T` is 1 where a token was sampled and carries loss. `logprobs_T` holds the sampler's log-probability there and
    0.0 elsewhere; it is None when a turn came without them. `truncated` says that `max_len` cut the sequence.
    """

    ids_T: list[int] = field(default_factory=list)
    mask_T: list[int] = field(default_factory=list)
    logprobs_T: list[float] | None = field(default_factory=list)
    truncated: bool = False

    @property
    def trained_tokens(self) -> int:
        """Tokens that carry loss."""
        return sum(self.mask_T)


@dataclass(frozen=True, slots=True)
class JoinedTurns:
    """The samples of a rollout. `splits` counts turns that did not extend the ids before them."""

    samples: tuple[TokenSample, ...]
    splits: int

    @property
    def truncated(self) -> bool:
        """Whether `max_len` cut a sample."""
        return any(sample.truncated for sample in self.samples)

    @property
    def trained_tokens(self) -> int:
        """Tokens of all samples that carry loss."""
        return sum(sample.trained_tokens for sample in self.samples)


def join_turns(turns: Sequence[Turn], max_len: int | None = None) -> JoinedTurns:
    """Join turns into as few samples as their token ids allow.

    Turns without sampled ids (written by a harness, cut by the context, or from a policy that tells no ids) carry no
    loss and add nothing; what they showed reaches a later turn through its prompt. A first token without any prompt
    has no context to be predicted from and carries no loss. A sample in which nothing is left to train is dropped.

    Args:
        turns: the turns of one rollout, in order.
        max_len: longest sample in tokens; ids, mask and log-probabilities are cut there together.

    Raises:
        UsageError: for a `max_len` below 1.
        ValueError: when a turn's log-probabilities do not match its ids.
    """
    if max_len is not None and max_len < 1:
        raise UsageError(f"max_len={max_len!r} must be at least 1 token, or None for no limit")
    samples: list[TokenSample] = []
    splits = 0
    for position, turn in enumerate(turns):
        if not turn.token_ids or turn.prompt_token_ids is None:
            continue
        if turn.logprobs is not None and len(turn.logprobs) != len(turn.token_ids):
            raise ValueError(f"turn {position} has {len(turn.token_ids)} token ids but {len(turn.logprobs)} logprobs")
        prompt = list(turn.prompt_token_ids)
        if not samples:
            samples.append(TokenSample())
        elif samples[-1].ids_T != prompt[: len(samples[-1].ids_T)]:
            splits += 1
            samples.append(TokenSample())
        _extend(samples[-1], prompt[len(samples[-1].ids_T) :], turn)
    if max_len is not None:
        for sample in samples:
            _cut(sample, max_len)
    return JoinedTurns(tuple(sample for sample in samples if sample.trained_tokens), splits)


def _extend(sample: TokenSample, context: Sequence[int], turn: Turn) -> None:
    sampled = list(turn.token_ids or ())
    predicted = [1] * len(sampled)
    if not sample.ids_T and not context:
        predicted[0] = 0
    sample.ids_T += [*context, *sampled]
    sample.mask_T += [0] * len(context) + predicted
    if turn.logprobs is None:
        sample.logprobs_T = None
    elif sample.logprobs_T is not None:
        sample.logprobs_T += [0.0] * len(context) + [
            float(logprob) if trained else 0.0 for logprob, trained in zip(turn.logprobs, predicted, strict=True)
        ]


def _cut(sample: TokenSample, max_len: int) -> None:
    sample.truncated = len(sample.ids_T) > max_len
    del sample.ids_T[max_len:]
    del sample.mask_T[max_len:]
    if sample.logprobs_T is not None:
        del sample.logprobs_T[max_len:]
