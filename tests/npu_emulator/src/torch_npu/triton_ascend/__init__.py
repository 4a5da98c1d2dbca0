"""The surface of triton-ascend over upstream Triton's interpreter, so that the hosts' own kernels run unmodified."""

import os
import sys


def install() -> None:
    """Set Triton up for the emulated device. Must run before the host decorates its first kernel."""
    os.environ.setdefault("TRITON_INTERPRET", "1")
    if os.environ["TRITON_INTERPRET"] != "1":
        raise RuntimeError("the emulated NPU interprets Triton kernels: set TRITON_INTERPRET=1 or unset it")
    # Hosts accept a Triton with no active driver of its own when no device of another kind is to be seen.
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    _import_gluon()

    from torch_npu import import_hooks
    from torch_npu.triton_ascend import driver, language, launch

    for part in (driver, language, launch, import_hooks):
        part.install()


def _import_gluon() -> None:
    """Import the real Gluon, which the interpreter needs; vllm_ascend would put empty modules in its place."""
    for name in ("triton.experimental.gluon", "triton.experimental.gluon.language"):
        if name in sys.modules and not hasattr(sys.modules[name], "__file__"):
            del sys.modules[name]
    import triton.experimental.gluon
    import triton.experimental.gluon.language
    import triton.experimental.gluon.nvidia.hopper  # noqa: F401
