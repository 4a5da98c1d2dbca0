"""Tensor functions in pure torch, for any device. None of them reads a value back to the host."""
