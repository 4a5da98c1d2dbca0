import pytest

from vllm_hust_vspec.demo.prompts import KINDS, prompts


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_are_the_same_every_time_and_all_different(kind: str) -> None:
    first, again = prompts(kind, 64), prompts(kind, 64)
    assert first == again
    assert len(set(first)) == 64
    assert prompts(kind, 8, seed=1) != first[:8]


@pytest.mark.parametrize("kind", KINDS)
def test_a_longer_list_begins_with_the_shorter_one(kind: str) -> None:
    assert prompts(kind, 32)[:8] == prompts(kind, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_leave_room_for_the_answer(kind: str) -> None:
    longest = max(len(prompt) for prompt in prompts(kind, 64))
    assert longest < 700, f"a {kind} prompt has {longest} characters; prompt and answer must fit 1024 tokens"


def test_code_comes_out_of_pythons_own_library() -> None:
    assert all(prompt.startswith(("def ", "class ")) for prompt in prompts("code", 16))
