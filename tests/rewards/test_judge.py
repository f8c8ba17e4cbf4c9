"""JudgeRubric against real servers: a judge that answers, and judges that do not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import polygym as pg
from policies.loopback import Loopback, dead_url, ok, status
from polygym.environments.episode import play
from polygym.errors import UsageError
from polygym.messages import Message
from polygym.policies.base import Policy, Request, Sampling
from polygym.rewards.judge import JudgeRubric, read_verdict
from polygym.rollout import Rollout, Turn, Usage
from serve.model_servers import Scripted, said, served


def judge_of_the_prompt(request: Request) -> Turn:
    """Says yes where the right answer stands in the response."""
    parts = request.messages[-1].content.split("\n\n")
    answer, response = (next(part for part in parts if part.startswith(head)) for head in ("Right", "Response"))
    right = answer.splitlines()[1] in response
    return said("Yes." if right else "No.")


def play_with(rubric: JudgeRubric, answer: str = "It is Paris.") -> Rollout:
    environment = pg.SingleTurnEnv(
        [{"question": "What is the capital of France?", "answer": "Paris"}], rubric=rubric, held_out=0.0
    )
    policy: Policy = Scripted(lambda request: said(answer))
    return asyncio.run(play(environment, environment.tasks()[0], policy, sampling=Sampling(), seed=1))


def test_a_judge_behind_the_model_server_pays_what_it_says() -> None:
    judge = Scripted(judge_of_the_prompt)
    with served(judge) as url:
        right = play_with(JudgeRubric("judge", f"{url}/v1"))
        wrong = play_with(JudgeRubric("judge", f"{url}/v1"), "It is {Lyon} \\boxed{Lyon}.")
    assert (right.reward, right.rewards) == (1.0, {"judge": 1.0})
    assert (wrong.reward, wrong.rewards) == (0.0, {"judge": 0.0})
    asked = judge.requests[0]
    assert "What is the capital of France?" in asked.messages[0].content
    assert "It is {Lyon} \\boxed{Lyon}." in judge.requests[1].messages[0].content
    assert asked.sampling.temperature == 0
    assert asked.seed != judge.requests[1].seed


def test_the_same_question_has_the_same_seed() -> None:
    judge = Scripted(judge_of_the_prompt)
    for _ in range(2):
        play_with(JudgeRubric(judge))
    assert judge.requests[0].seed == judge.requests[1].seed


def test_other_reward_functions_and_their_weights_stand_beside_the_judge() -> None:
    def brief(completion: str) -> float:
        return float(len(completion) < 20)

    rubric = JudgeRubric(Scripted(judge_of_the_prompt))
    rubric.add_reward_func(brief, 0.5)
    assert play_with(rubric).reward == 1.5
    assert play_with(rubric, "It is Paris, which everybody knows.").rewards == {"judge": 1.0, "brief": 0.0}


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([ok("It may well be so.")], "gave no verdict: 'It may well be so.'"),
        ([ok("Let me think", "length")], "cut after 512 tokens; raise max_tokens"),
        ([status(401, "bad key")], "did not answer"),
        ([status(400, "This model's maximum context length is 10 tokens")], "does not fit the context"),
    ],
)
def test_a_judge_that_gives_no_verdict_leaves_the_rollout_unscored(answers: list[Any], words: str) -> None:
    with Loopback(answers) as endpoint:
        rollout = play_with(JudgeRubric("judge", endpoint.url))
    assert rollout.reward is None
    assert rollout.rewards == {"judge": None}
    assert rollout.cause is not None
    assert rollout.cause.kind == "grader"
    assert words in rollout.cause.message


def test_a_judge_that_is_not_there_leaves_the_rollout_unscored_in_time() -> None:
    rollout = play_with(JudgeRubric("judge", dead_url(), deadline_seconds=1.0))
    assert rollout.reward is None
    assert rollout.cause is not None
    assert "the judge did not answer" in rollout.cause.message


def test_a_prompt_and_a_scale_of_ones_own() -> None:
    judge = Scripted(lambda request: said("7 of 10"))
    prompt = "Rate {response} for {{style}} from 0 to 10."
    rubric = JudgeRubric(judge, prompt=prompt, read=lambda reply: int(reply.split()[0]) / 10)
    assert play_with(rubric).reward == 0.7
    assert judge.requests[0].messages == [Message("user", "Rate It is Paris. for {style} from 0 to 10.")]


def test_a_reader_that_fails_leaves_the_rollout_unscored() -> None:
    rollout = play_with(JudgeRubric(Scripted(lambda request: said("good")), read=lambda reply: float(reply)))
    assert rollout.reward is None
    assert rollout.cause is not None
    assert "ValueError" in rollout.cause.message


def test_reasoning_is_no_verdict() -> None:
    turn = Turn(Message("assistant", "no", reasoning="yes yes yes"), "stop", Usage())
    assert play_with(JudgeRubric(Scripted(lambda request: turn))).reward == 0.0


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("yes", 1.0),
        ("**No**", 0.0),
        ("Yes, both say 4.", 1.0),
        ("Both say 4, so: yes.", 1.0),
        ("", None),
        ("Yes and no.", None),
        ("yesterday", None),
        ("There is no way to say yes here", None),
    ],
)
def test_a_verdict_is_the_first_or_the_last_word(reply: str, verdict: float | None) -> None:
    assert read_verdict(reply) == verdict


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Is {respone} right?", r"unknown placeholder {respone}; did you mean 'response'"),
        ("Is it right?", r"lacks {response}"),
        ("Is {response} right? {", "cannot be filled in"),
        ("Is {response} right? {}", "unknown placeholder {}"),
        ("Is {response.__class__} right?", "unknown placeholder"),
    ],
)
def test_a_prompt_that_cannot_be_filled_in_is_refused_at_once(prompt: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        JudgeRubric("judge", "http://localhost:1/v1", prompt=prompt)


def test_an_address_beside_a_policy_is_refused() -> None:
    with pytest.raises(UsageError, match="goes with the name of a model"):
        JudgeRubric(Scripted(judge_of_the_prompt), "http://localhost:1/v1")
