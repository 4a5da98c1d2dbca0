from __future__ import annotations

from pathlib import Path

import pytest
import torch

from demo_models import corpus as corpus_module
from demo_models.corpus import Encode, best_tokens, go_on, make_shard, missing, prompt_pool
from demo_models.llama import Llama
from demo_models.shards import Sequence, read_corpus, read_shard, shard_path, write_shard


def _same(ours: Sequence, theirs: Sequence) -> bool:
    fields = ("tokens", "hidden", "best", "odds")
    return ours.kind == theirs.kind and all(torch.equal(getattr(ours, one), getattr(theirs, one)) for one in fields)


@pytest.mark.parametrize("index", [0, 3], ids=["greedy", "text"])
def test_a_shard_depends_on_seed_and_index_alone(
    target: Llama, encode: Encode, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_module, "NEW_TOKENS", 4)
    monkeypatch.setattr(corpus_module, "BATCH", 6)
    first, again, other = (make_shard(target, encode, seed, index) for seed in (1, 1, 2))
    assert all(_same(ours, theirs) for ours, theirs in zip(first, again, strict=True))
    assert not all(torch.equal(ours.tokens, theirs.tokens) for ours, theirs in zip(first, other, strict=True))


def test_prompts_of_a_pool_are_short_and_sorted(encode: Encode) -> None:
    lengths = [len(tokens) for _, tokens in prompt_pool(encode, 0, 0)]
    assert lengths == sorted(lengths)
    assert lengths[-1] <= corpus_module.LONGEST_PROMPT


def test_padded_batches_go_on_as_each_prompt_alone(target: Llama, encode: Encode) -> None:
    prompts = [("a", encode("one")), ("b", encode("a longer prompt")), ("c", encode("two, three"))]
    for made, (_, prompt) in zip(go_on(target, prompts, 12), prompts, strict=True):
        tokens = torch.tensor([prompt])
        for _ in range(12):
            hidden = target(target.embed_tokens(tokens))
            tokens = torch.cat((tokens, (hidden[:, -1:] @ target.embed_tokens.weight.T).argmax(-1)), 1)
        assert made.tokens.tolist() == tokens[0, :-1].tolist()
        assert torch.allclose(made.hidden, hidden[0], atol=1e-3)
        assert made.prompt_length == len(prompt)


def test_best_tokens_are_the_most_likely_ones_with_their_probabilities(target: Llama) -> None:
    hidden = torch.randn(2, 5, target.shape.hidden, generator=torch.Generator().manual_seed(2))
    ids, odds = best_tokens(target, hidden)
    expected = (hidden @ target.embed_tokens.weight.T).softmax(-1)
    assert torch.equal(ids[..., 0].long(), expected.argmax(-1))
    assert torch.allclose(odds.float(), expected.gather(-1, ids.long()), atol=2e-3)


def test_shards_are_read_as_written_and_only_missing_ones_are_made(corpus: list[Sequence], tmp_path: Path) -> None:
    write_shard(shard_path(tmp_path, 0), corpus[:3])
    write_shard(shard_path(tmp_path, 2), corpus[3:5])
    assert all(_same(ours, theirs) for ours, theirs in zip(read_shard(shard_path(tmp_path, 0)), corpus, strict=False))
    assert len(read_corpus(tmp_path)) == 5
    assert list(missing(tmp_path, 4)) == [1, 3]


def test_a_missing_corpus_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="demo_models corpus"):
        read_corpus(tmp_path)
