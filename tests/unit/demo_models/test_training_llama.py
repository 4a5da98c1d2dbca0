from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from demo_models.export import llama_config
from demo_models.llama import Cache, Llama, causal_mask

LIKE = {"vocab_size": 260, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
TOKENS = torch.randint(4, 260, (2, 20), generator=torch.Generator().manual_seed(1))


def test_hidden_states_are_those_of_transformers(target: Llama) -> None:
    theirs = LlamaForCausalLM(LlamaConfig(**llama_config(target.shape, LIKE, "float32"))).eval()
    theirs.load_state_dict({f"model.{name}": one for name, one in target.state_dict().items()}, strict=False)
    with torch.no_grad():
        expected = theirs.model(input_ids=TOKENS).last_hidden_state
    assert torch.allclose(target(target.embed_tokens(TOKENS)), expected, atol=1e-4)


def test_decoding_in_pieces_equals_reading_at_once(target: Llama) -> None:
    caches = [Cache(2, 20, target.shape, torch.float32) for _ in target.layers]
    mask = causal_mask(20, torch.float32)[None, None, None]
    pieces = [
        target.decode(TOKENS[:, start:end], torch.arange(start, end)[None], mask[..., start:end, :], caches)
        for start, end in ((0, 7), (7, 8), (8, 20))
    ]
    assert torch.allclose(torch.cat(pieces, 1), target(target.embed_tokens(TOKENS)), atol=1e-4)
