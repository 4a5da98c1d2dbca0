"""Measuring step times and fitting them: `vllm-hust-vspec-profile` and `vllm-hust-vspec-fit-profile`."""

from vllm_hust_vspec.errors import not_built_yet


def main() -> None:
    not_built_yet("vllm-hust-vspec-profile")


def fit_main() -> None:
    not_built_yet("vllm-hust-vspec-fit-profile")
