"""The model cards of the drafters: data, recipe, figures, licence."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path
from typing import Any

from safetensors import safe_open

_WHAT = {
    "draft": (
        "A Llama of two layers with hidden size 256 and the target's vocabulary of 49,152 tokens; embedding and output "
        "matrix are one. It has no tokenizer files: it uses the target's. For vLLM's method `draft_model`."
    ),
    "eagle": (
        "One Llama layer without its first norm, behind a matrix that joins the embedding of the newest token and the "
        "target's hidden state before it. Embedding and output matrix are the target's. For vLLM's method `eagle`."
    ),
}
_TITLES = {"draft": "Draft model", "eagle": "EAGLE head"}
_RECIPE = {
    "draft": (
        "The embedding starts as the target's in its 256 main directions, the layers at random. Cross-entropy against "
        "the target's eight most likely tokens, over the tokens of a batch and 1,024 others."
    ),
    "eagle": (
        "It starts from the target's last layer. Cross-entropy against the target's eight most likely tokens, over the "
        "tokens of a batch and 1,024 others, and a smooth L1 distance to the target's hidden state, weight 0.2. The "
        "first 400 steps train one draft; then every other step trains three in a row, each from the head's own "
        "features (weights 1, 0.8, 0.6)."
    ),
}
_DATA = (
    "Greedy continuations of the target, 144 tokens each, of generated prompts (logs, records, copying, code, sums, "
    "tales, explanations, passages) and, a quarter of the shards, text that the target only reads: the standard "
    "library's sources and docstrings, licence texts of installed packages, passages again and again, long generated "
    "logs. No prompt template and no module of the evaluation is in it."
)


def write_card(drafter: str, directory: Path, figures: dict[str, Any], prompts: int, tokens: int) -> None:
    """README.md beside the weights, with figures as `evaluate` reports them."""
    with safe_open(directory / "model.safetensors", "pt") as file:
        about = file.metadata()
    seen = f"{int(about['tokens']):,} tokens, each with the target's hidden state and best tokens."
    how = (
        "Muon for matrices and AdamW for the rest; the weights are a running average over "
        f"{int(about['steps']):,} steps. `docs/demo-models.md` says how to make it again."
    )
    measured = (
        f"Share of verifications that accept each draft token, gamma 3, greedy: {prompts} prompts of each kind of the "
        f"demo, {tokens} tokens each. The last column counts the target's own token too."
    )
    parts = (
        f"---\nlicense: apache-2.0\n---\n\n# {_TITLES[drafter]} for SmolLM2-135M-Instruct",
        _fill(_WHAT[drafter]),
        f"## Data\n\n{_fill(f'{_DATA} {seen}')}",
        f"## Recipe\n\n{_fill(f'{_RECIPE[drafter]} {how}')}",
        f"## Figures\n\n{_fill(measured)}\n\n{_table(figures)}\n\n{_fill(_goals(figures))}",
        "## Licence\n\nApache-2.0, as the target's.",
    )
    partial = directory / f".{os.getpid()}.partial"
    partial.write_text("\n\n".join(parts) + "\n")
    os.replace(partial, directory / "README.md")


def _table(figures: dict[str, Any]) -> str:
    lines = ["| text | 1st | 2nd | 3rd | tokens per verification |", "|---|---:|---:|---:|---:|"]
    for name, row in figures["rows"].items():
        shares = " | ".join(f"{share:.2f}" for share in row["per_position"])
        lines.append(f"| {name} | {shares} | {row['mean_length']:.2f} |")
    return "\n".join(lines)


def _goals(figures: dict[str, Any]) -> str:
    goal = figures["goal"]
    lacking = [f"{lack:.2f} is missing on {name}" for name, lack in figures["missing"].items() if lack]
    met = " and ".join(lacking) or "both are met"
    return f"Goals: {goal['easy']} on easy kinds (log lines, copying, code), {goal['all']} on all kinds; {met}."


def _fill(text: str) -> str:
    return textwrap.fill(text, 118, break_on_hyphens=False)
