"""From turns to token samples."""

import pytest

from case_rows import parametrize
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.rollout import Turn
from polygym.train.samples import TokenSample, join_turns


def turn(prompt, completion, logprobs=None):
    return Turn(Message("assistant"), prompt_token_ids=prompt, token_ids=completion, logprobs=logprobs)


def as_case(sample, with_logprobs):
    row = {"ids": sample.ids_T, "mask": sample.mask_T}
    row |= {"logprobs": sample.logprobs_T} if with_logprobs else {}
    return row | {"truncated": True} if sample.truncated else row


def joined_case(given):
    turns = [turn(step["prompt"], step["completion"], step.get("logprobs")) for step in given["steps"]]
    return join_turns(turns, given.get("max_len")).samples


@parametrize("token_join")
def test_token_join_case(case):
    given, expected = case["input"], case["expected"]
    if "error" in expected:
        with pytest.raises(ValueError):
            joined_case(given)
        return
    with_logprobs = any("logprobs" in row for row in expected)
    assert [as_case(sample, with_logprobs) for sample in joined_case(given)] == expected


def test_logprobs_stand_where_their_tokens_stand():
    joined = join_turns([turn([1, 2], [3], [-0.5]), turn([1, 2, 3, 8], [5, 6], [-0.25, -2.0])])
    assert joined.samples == (TokenSample([1, 2, 3, 8, 5, 6], [0, 0, 1, 0, 1, 1], [0.0, 0.0, -0.5, 0.0, -0.25, -2.0]),)
    assert (joined.splits, joined.trained_tokens, joined.truncated) == (0, 3, False)


def test_a_rewritten_history_is_split_and_counted():
    joined = join_turns([turn([1], [2, 3], [-1.0, -1.0]), turn([1, 4], [5], [-2.0])])
    assert joined.splits == 1
    assert joined.samples[1] == TokenSample([1, 4, 5], [0, 0, 1], [0.0, 0.0, -2.0])


def test_ids_mask_and_logprobs_are_cut_together_and_flagged():
    joined = join_turns([turn([1, 2], [3, 4, 5], [-1.0, -2.0, -3.0])], max_len=4)
    assert joined.samples == (TokenSample([1, 2, 3, 4], [0, 0, 1, 1], [0.0, 0.0, -1.0, -2.0], truncated=True),)
    assert joined.truncated


def test_a_prompt_as_long_as_the_limit_leaves_no_sample():
    assert join_turns([turn([1, 2, 3, 4], [5])], max_len=4).samples == ()


def test_a_turn_without_logprobs_makes_those_of_its_sample_unknown():
    joined = join_turns([turn([1], [2], [-1.0]), turn([1, 2], [3])])
    assert joined.samples[0].logprobs_T is None
    assert joined.samples[0].ids_T == [1, 2, 3]


def test_a_turn_of_a_policy_without_token_ids_adds_nothing():
    assert join_turns([Turn(Message("assistant", "hello"))]).samples == ()


def test_a_turn_without_sampled_ids_between_two_others_does_not_split():
    joined = join_turns([turn([1], [2]), turn([1, 2, 7], []), turn([1, 2, 7, 8], [9])])
    assert (joined.splits, [sample.ids_T for sample in joined.samples]) == (0, [[1, 2, 7, 8, 9]])


def test_a_first_token_without_context_carries_no_loss():
    assert join_turns([turn([], [5, 6], [-1.0, -2.0])]).samples == (TokenSample([5, 6], [0, 1], [0.0, -2.0]),)


def test_misaligned_logprobs_are_refused_with_both_lengths():
    with pytest.raises(ValueError, match="turn 0 has 2 token ids but 1 logprobs"):
        join_turns([turn([1], [2, 3], [-1.0])])


def test_a_limit_below_one_is_refused():
    with pytest.raises(UsageError, match="max_len=0"):
        join_turns([], max_len=0)
