"""Operators of the Ascend Transformer Boost library; they are in torch_npu.ops."""
