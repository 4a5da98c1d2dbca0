"""A simulator of a serving engine with speculative decoding, to try controllers on. Neither torch nor vLLM."""
