"""No secret is ever shown."""

import pytest

from vllm_hust_vspec.launcher.masking import mask_command, mask_environment

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", SECRET],
        ["--api-key", SECRET, SECRET + "2"],
        [f"--api-key={SECRET}"],
        ["--api_key", SECRET],
        ["--hf-token", SECRET],
        [f"--hf_token={SECRET}"],
        ["--some-password", SECRET],
        ["--x-secret", SECRET],
        ["--kv-transfer-config", f'{{"a": {{"api_key": "{SECRET}"}}}}'],
        [f'--kv-transfer-config={{"list": [{{"auth_token": "{SECRET}"}}]}}'],
        ["--model", f"https://user:{SECRET}@host/model"],
        ["--kv-transfer-config", f'{{"url": "redis://u:{SECRET}@h"}}'],
        ["--watermark-config.key", SECRET],
    ],
)
def test_secret_arguments_are_masked(words):
    shown = mask_command(["vllm", *words, "--port", "8000"])
    assert SECRET not in " ".join(shown)
    assert "***" in " ".join(shown)
    assert shown[-2:] == ["--port", "8000"]


@pytest.mark.parametrize(
    "words",
    [["--max-num-batched-tokens", "8192"], ["--tokenizer", "org/t"], ["--ssl-keyfile", "k.pem"], ["--spec-tokens", "4"],
     ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}']],
)  # fmt: skip
def test_other_arguments_stay_readable(words):
    assert mask_command(words) == words


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET", "DB_PASSWORD", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY"]
)
def test_secret_variables_are_masked(name):
    assert mask_environment({name: SECRET, "HUST_VSPEC_GAMMA": "4"}) == {name: "***", "HUST_VSPEC_GAMMA": "4"}
