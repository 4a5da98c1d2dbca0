"""The demo: real vLLM serves a small language model with adaptive speculation, and is measured against itself."""
