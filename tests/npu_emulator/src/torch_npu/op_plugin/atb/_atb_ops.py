"""The hook that hosts call before they use operators of ATB."""


def _register_atb_extensions() -> None:
    """Nothing to do: importing torch_npu registered them."""
