"""Adaptive speculative decoding for vLLM and vLLM-Ascend."""

from vllm_hust_vspec._version import __version__

__all__ = ["__version__"]
