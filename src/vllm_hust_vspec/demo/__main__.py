"""`python -m vllm_hust_vspec.demo`."""

from vllm_hust_vspec.demo.cli import main

main()
