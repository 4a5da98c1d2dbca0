"""Why tests of vLLM-Ascend fail on the emulated NPU.

KNOWN: (pattern of the test's name, pattern of the failure's message, reason).
"""

KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"kv_offload\.test_mooncake_.*test_executor_workers_bind_kv_cache_device",
        r"'set_device'",
        "passes alone: another module of its folder replaces torch.npu by a mock while pytest collects",
    ),
    (
        r"",
        r"NotImplementedError: .*is not emulated",
        "calls an operator outside the dense fp16, bf16 and fp32 models that the emulator is for (quantised, MLA, MoE)",
    ),
    (
        r"compilation\..*test_acl_graph\.TestPCPDCPGraphParams",
        r"device\(\) received an invalid combination of arguments - got \(MagicMock\)",
        "makes a mock the current stream, and replaces a native function that the emulator's streams do not call",
    ),
    (
        r"",
        r"Invalid repository ID.*'deepseek-ai/",
        "reads a DeepSeek configuration from the Hugging Face hub; MLA and sparse attention are not emulated",
    ),
    (
        r"",
        r"InductorError: KeyError: 'npu'",
        "compiles with Inductor, which has no code generator for the emulated device",
    ),
    (r"", r"No module named 'ray'", "needs Ray, which the emulated host does not install"),
    (
        r"",
        r"not implemented for 'Half'",
        "calls an fp16 linear algebra kernel that torch has no CPU version of",
    ),
)

# File names of the suite that are not collected at all.
NOT_RUN: tuple[str, ...] = ()

# The configurations that the suite reads from the Hugging Face hub, as far as it uses them.
MODELS: dict[str, dict[str, object]] = {
    "Qwen/Qwen3-8B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "torch_dtype": "bfloat16",
    },
}
