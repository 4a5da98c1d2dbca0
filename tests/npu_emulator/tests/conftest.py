"""The tests of the emulated device run inside its environment: torch_npu is what they are about."""

import pytest
import torch

import torch_npu  # noqa: F401


@pytest.fixture(autouse=True)
def leave_the_device_as_it_was():
    """A test that fails in the middle of a capture or a replay must not take the others with it."""
    torch.set_num_threads(1)
    yield
    from torch_npu.graph import state

    if state.per_thread.capture is not None:
        state.per_thread.capture.abandon()
    if state.waiting is not None:
        state.waiting.reset()
    state.per_thread.update = None
    torch.npu.set_device(0)
    torch.npu.set_stream(torch.npu.default_stream())
