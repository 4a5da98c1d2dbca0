"""Options of adaptive speculation: how gamma is chosen at each step."""

from typing import ClassVar, Literal

from vllm_hust_vspec.settings.option import File, Float, Int, Option, Policy, Section, Switch

GRAPHS = ("full-decode-only", "full")
DRAFTERS = ("draft", "eagle", "eagle3")
STOP = ("adaptive_entropy_stop",)
LEARNERS = ("online", "profile")
OWN = "the controller's own"


class AdaptiveSettings(Section):
    """The adaptive options without their prefix. Unset (None) leaves the choice to the controller."""

    title: ClassVar[str] = "Adaptive"
    prefix: ClassVar[str] = "adaptive_"

    speculation: Switch = Option(True, help="Choose gamma at each step from what is measured; off: always --gamma.")
    policy: Policy = Option(
        "online",
        help="online learns while it serves; profile starts from measured latencies; fixed always drafts --gamma.",
        adaptive=True,
    )
    profile: File | None = Option(
        None,
        help="Measured latency profile (docs/adaptive.md). Given without a policy, it selects the policy profile.",
        policies=("profile",),
        default_text="none",
    )
    ewma_weight: Float = Option(
        0.1, gt=0, le=1, help="Weight of the newest sample in the acceptance estimate.", policies=LEARNERS
    )
    control_interval: Int | None = Option(
        None,
        ge=1,
        help="Decisions between two changes of gamma.",
        policies=LEARNERS,
        default_text=f"{OWN} (online), 4 (profile)",
    )
    hysteresis: Float | None = Option(
        None,
        ge=0,
        help="Relative gain that a change of gamma must promise.",
        policies=LEARNERS,
        default_text=f"{OWN} (online), 0.05 (profile)",
    )
    min_gamma: Int | None = Option(
        None,
        ge=0,
        help=(
            "Smallest gamma that the controller may choose, 0..gamma; 0 lets it stop speculating. "
            "Default: 0 where speculation can resume without loss, else 1."
        ),
        policies=LEARNERS,
        default_text="0 (1 with gamma-0 mode sticky)",
    )
    min_observations: Int = Option(
        32, ge=1, help="Trials before an acceptance estimate is trusted.", policies=("profile",)
    )
    max_gamma_step: Int | None = Option(
        None,
        ge=1,
        help="Largest change of gamma at once.",
        policies=LEARNERS,
        default_text=f"{OWN} (online), 1 (profile)",
    )
    latency_calibration: Switch = Option(
        True, help="Correct predicted step times by measured ones, gamma by gamma.", policies=LEARNERS
    )
    latency_ewma_weight: Float = Option(
        0.2, gt=0, le=1, help="Weight of the newest sample in that correction.", policies=LEARNERS
    )
    gamma0_mode: Literal["sticky", "sync", "catchup"] | None = Option(
        None,
        help=(
            "What the drafter does while gamma is 0. sync: one shadow pass keeps its KV in step; sticky: nothing, "
            "and requests alive meanwhile stay target-only; catchup: nothing, and one replay when speculation resumes."
        ),
        built_values=(None, "sync", "catchup"),
        policies=LEARNERS,
        default_text="catchup for a draft model on vLLM, else sync",
    )
    online_window: Int | None = Option(
        None, ge=1, help="Steps that the controller remembers.", policies=("online",), default_text=OWN
    )
    online_exploration: Float | None = Option(
        None, ge=0, help="Price that it may pay for probing.", policies=("online",), default_text=OWN
    )
    online_warmup_samples: Int | None = Option(
        None, ge=1, help="Samples before a gamma is trusted.", policies=("online",), default_text=OWN
    )
    online_warmup_return: Literal["best", "incumbent"] | None = Option(
        None,
        help="Where the first climb ends: at the best gamma seen, or at the one it started from.",
        policies=("online",),
        default_text=OWN,
    )
    refill_batch: Int = Option(
        0,
        ge=0,
        help="Requests that are admitted together once a batch has run down; 1 disables, 0 is the method's default.",
        built_values=(0, 1),
        adaptive=True,
        off=(0, 1),
        default_text="0 (this version: no grouping)",
    )
    entropy_stop: Switch = Option(
        False,
        help="Stop drafting a request after the first position whose draft distribution is too uncertain.",
        built=False,
        methods=DRAFTERS,
        adaptive=True,
    )
    entropy_topk: Int = Option(
        2,
        ge=2,
        help="Tokens over which that entropy is taken.",
        built=False,
        methods=DRAFTERS,
        adaptive=True,
        needs=STOP,
    )
    entropy_threshold: Float = Option(
        0.3,
        ge=0,
        help="Stop where entropy (nats) times scale exceeds the square of this.",
        built=False,
        methods=DRAFTERS,
        adaptive=True,
        needs=STOP,
    )
    entropy_scale: Float = Option(
        0.15,
        gt=0,
        help="Factor on the entropy.",
        built=False,
        methods=DRAFTERS,
        adaptive=True,
        needs=STOP,
    )
    full_graph: Switch = Option(
        False,
        help="Keep the full graphs of --graph-mode while gamma adapts; off: PIECEWISE, the compatible choice.",
        policies=LEARNERS,
        graph_modes=GRAPHS,
    )
    async_: Switch = Option(
        False,
        help="Keep asynchronous scheduling while gamma adapts; off: synchronous, the compatible choice.",
        policies=LEARNERS,
        methods=(*DRAFTERS, "mtp"),
        needs=("async_scheduling",),
    )
    trace: File | None = Option(
        None,
        help=(
            "File that gets one JSON object for each decision, with its outcome (docs/adaptive.md); rotated once to "
            "FILE.1 at 64 MiB, so it never takes more than twice that."
        ),
        adaptive=True,
        default_text="off",
    )
    memory: Switch = Option(
        True,
        help="Keep what was learnt in a file, and begin the next run of the same models on the same host with it.",
        policies=LEARNERS,
    )
    state_file: File | None = Option(
        None,
        help="That file. Servers may share it; it keeps each one's state apart.",
        policies=LEARNERS,
        needs=("adaptive_memory",),
        default_text="vllm-hust-vspec/controllers.json in the user's state directory",
    )
