"""Options of the server that vLLM starts."""

from typing import ClassVar, Literal

from vllm_hust_vspec.settings.option import File, Float, GraphMode, Int, Method, Option, Section, Switch, Text

GRAPHS = ("piecewise", "full-decode-only", "full")
DRAFTERS = ("draft", "eagle", "eagle3")
ASYNC = (*DRAFTERS, "mtp")


class ServeSettings(Section):
    """What is served, how wide, and in which graph and scheduling mode."""

    title: ClassVar[str] = "Serving"

    method: Method | None = Option(
        None,
        help="Who proposes tokens: a draft model, an EAGLE head, or n-grams of the prompt.",
        built_values=("draft", "eagle", "eagle3", "ngram"),
        default_text="from the preset",
    )
    target_model: Text | None = Option(
        None,
        help="The model that answers: a Hugging Face repository id or a local directory.",
        default_text="from the preset",
        metavar="MODEL",
    )
    draft_model: Text | None = Option(
        None,
        help=(
            "The drafter: a repository id or a local directory. It has no variable of its own: HUST_VSPEC_DRAFT_MODEL "
            "(method draft) and HUST_VSPEC_EAGLE_MODEL (method eagle) name the model store's two drafters."
        ),
        variable=False,
        methods=DRAFTERS,
        default_text="from the preset",
        metavar="MODEL",
    )
    served_model_name: Text | None = Option(
        None, help="The model name in the API.", default_text="from the preset", metavar="NAME"
    )
    gamma: Int = Option(
        4,
        ge=1,
        help=(
            "Most tokens that the drafter proposes at a step: the bound for buffers, graph capture and the controller, "
            "not a fixed length once gamma adapts."
        ),
    )
    ngram_min: Int = Option(2, ge=1, help="Shortest n-gram that is looked up in the prompt.", methods=("ngram",))
    ngram_max: Int = Option(4, ge=1, help="Longest n-gram that is looked up in the prompt.", methods=("ngram",))
    max_num_seqs: Int = Option(128, ge=1, help="Most requests in a step.")
    max_num_batched_tokens: Int = Option(8192, ge=1, help="Most tokens in a step.")
    max_model_len: Int = Option(32768, ge=1, help="Most tokens in a request, prompt and answer together.")
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = Option("float16", help="Data type of the weights.")
    tensor_parallel_size: Int = Option(1, ge=1, help="Devices that share the target.")
    draft_tensor_parallel_size: Int = Option(
        1, ge=1, help="Devices that share the drafter: 1 or --tensor-parallel-size.", methods=DRAFTERS
    )
    gpu_memory_utilization: Float = Option(0.85, gt=0, le=1, help="Share of the device's memory for this server.")
    graph_mode: GraphMode = Option(
        "full-decode-only",
        help=(
            "How much of a step is captured as a device graph. "
            "While gamma adapts, full graphs need --adaptive-full-graph."
        ),
    )
    capture_policy: Literal["auto", "exact", "power2", "steady"] = Option(
        "auto",
        help="Which sizes (requests by width) are captured; auto leaves the choice to vLLM.",
        built_values=("auto",),
        graph_modes=GRAPHS,
    )
    generation_config: Literal["vllm", "auto"] = Option(
        "vllm", help="Sampling defaults: vLLM's own, or auto: those in the model's generation_config.json."
    )
    async_scheduling: Switch = Option(
        True,
        help="Schedule the next step while this one runs. While gamma adapts, this needs --adaptive-async.",
        methods=ASYNC,
    )
    prefix_caching: Switch = Option(False, help="Reuse the KV cache of shared prompt beginnings.")
    chunked_prefill: Switch = Option(True, help="Split long prompts over several steps.")
    device: Text | None = Option(
        None,
        help="NPUs to use, such as 2 or 0,1; sets ASCEND_RT_VISIBLE_DEVICES.",
        default_text="all that are visible",
        metavar="IDS",
    )
    host: Text = Option("127.0.0.1", help="Address to listen on.", metavar="ADDRESS")
    port: Int = Option(8000, ge=1, le=65535, help="Port to listen on.")
    steering_socket: File | None = Option(
        None, help="Unix socket on which a local tool may pin gamma and read counters.", default_text="off"
    )
