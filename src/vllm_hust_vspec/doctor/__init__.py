"""Checking a host before a model loads: `vllm-hust-vspec-doctor`."""

from vllm_hust_vspec.errors import not_built_yet


def main() -> None:
    not_built_yet("vllm-hust-vspec-doctor")
