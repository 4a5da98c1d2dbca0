"""The only floor that touches vLLM and vLLM-Ascend."""
