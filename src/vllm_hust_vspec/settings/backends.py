"""Options of the draft-model and EAGLE backends."""

from typing import ClassVar, Literal

from vllm_hust_vspec.settings.option import File, Float, Int, Option, Section, Switch, TokenIds

FULL_GRAPHS = ("full-decode-only", "full")
DRAFT = ("draft",)
EAGLE = ("eagle", "eagle3")
MARGIN = "confidence_accept_margin"


class DraftSettings(Section):
    """Options of method draft."""

    title: ClassVar[str] = "Draft"

    shared_tokenizer_padding: Switch | None = Option(
        None,
        help="Target and drafter share token ids but pad the vocabulary differently; the two tokenizers are compared.",
        built_values=(None, False),
        methods=DRAFT,
        default_text="on for the verified pair",
    )
    merged_full: Switch | None = Option(
        None,
        help="Capture the whole draft loop as one graph.",
        built=False,
        methods=DRAFT,
        graph_modes=FULL_GRAPHS,
        off=(False,),
        default_text="as the batch decides",
    )
    merged_full_max_batch: Int = Option(
        0,
        ge=0,
        help="Largest batch that uses the merged graph; 0 is no limit.",
        built=False,
        methods=DRAFT,
        graph_modes=FULL_GRAPHS,
        needs=("merged_full",),
    )
    confidence_accept_margin: Float | None = Option(
        None,
        ge=0,
        help="Accept a draft token whose logit is at most this far below the target's best.",
        methods=DRAFT,
        lossless=False,
        default_text="off",
    )
    confidence_accept_from_position: Int = Option(
        0,
        ge=0,
        help="First draft of a step, counted from 0, to which the margin applies.",
        methods=DRAFT,
        needs=(MARGIN,),
    )
    confidence_accept_after_tokens: Int = Option(
        0, ge=0, help="Tokens that a request generates before the margin applies to it.", methods=DRAFT, needs=(MARGIN,)
    )
    confidence_protected_token_ids: TokenIds = Option(
        (),
        help="Token ids that the margin never accepts, with commas between them; those that end an answer and special "
        "tokens are always among them.",
        methods=DRAFT,
        needs=(MARGIN,),
        off=((),),
        default_text="none",
        metavar="IDS",
    )


class EagleSettings(Section):
    """Options of method eagle, and its diagnostics, which synchronise with the device or write to disk."""

    title: ClassVar[str] = "EAGLE"
    prefix: ClassVar[str] = "eagle_"

    draft_active_vocab_size: Int | None = Option(
        None,
        ge=1024,
        help="Draft over this many tokens of the vocabulary only.",
        built=False,
        methods=EAGLE,
        default_text="off",
    )
    draft_active_vocab_ids: File | None = Option(
        None, help="File of the token ids to draft over.", built=False, methods=EAGLE, default_text="off"
    )
    target_active_vocab_ids: File | None = Option(
        None,
        help="File of the token ids to verify over; requests must be pure greedy.",
        built=False,
        methods=EAGLE,
        lossless=False,
        default_text="off",
    )
    draft_lm_head_quantization: Literal["none", "w8a16", "w8a8"] = Option(
        "none", help="Integer format of the drafter's LM head.", built=False, methods=EAGLE, off=("none",)
    )
    relaxed_accept_topk: Int = Option(
        1,
        ge=1,
        help="Accept a draft token that is among the target's best K; 1 is strict.",
        methods=EAGLE,
        lossless=False,
        off=(1,),
    )
    relaxed_accept_after_tokens: Int = Option(
        0,
        ge=0,
        help="Tokens that a request generates before the relaxed rule applies to it.",
        methods=EAGLE,
        needs=("eagle_relaxed_accept_topk",),
    )
    spec_metadata_cache: Switch = Option(
        False, help="Reuse speculative metadata between uniform batches.", built=False, methods=EAGLE
    )
    uniform_state_kernel: Switch = Option(
        False, help="Use the host's uniform-state kernel.", built=False, methods=EAGLE
    )
    graph_event_ordering: Switch = Option(
        False,
        help="Order graph replays and parameter updates by device events.",
        key="graph_event_ordering",
        built=False,
        methods=EAGLE,
        graph_modes=("piecewise", *FULL_GRAPHS),
    )
    tree_width: Int = Option(
        1, ge=1, help="Width of the host's EAGLE tree; 1 is linear.", built=False, methods=EAGLE, off=(1,)
    )
    zero_draft_kv_first_step: Switch = Option(
        False, help="Clear the drafter's KV cache before its first step.", built=False, methods=EAGLE
    )
    draft_trace: Switch = Option(False, help="Diagnostic: log the draft tokens.", built=False, methods=EAGLE)
    draft_io_trace_dir: File | None = Option(
        None,
        help="Diagnostic: directory for the host's draft input and output.",
        built=False,
        methods=EAGLE,
        default_text="off",
    )
    target_hidden_trace_dir: File | None = Option(
        None,
        help="Diagnostic: directory for the target's hidden states.",
        built=False,
        methods=EAGLE,
        default_text="off",
    )
    target_argmax_trace_path: File | None = Option(
        None, help="Diagnostic: file for the target's best tokens.", built=False, methods=EAGLE, default_text="off"
    )
