"""Package of torch_npu's operator plug-ins."""
