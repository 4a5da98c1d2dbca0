"""Comparing and simulating controllers: `vllm-hust-vspec-bench`."""

from vllm_hust_vspec.errors import not_built_yet


def main() -> None:
    not_built_yet("vllm-hust-vspec-bench")
