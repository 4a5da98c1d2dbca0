"""The device itself: how many there are, what they say of themselves, and where tensors live."""

import os
import subprocess
import sys

import pytest
import torch

import torch_npu


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_process_that_only_imports_torch_has_the_device():
    done = run(
        "import torch; print(torch.ones(2, device='npu').device, torch.npu.device_count())",
        TORCH_NPU_EMULATOR_DEVICES="3",
    )
    assert done.stdout.split() == ["npu:0", "3"], done.stderr


def test_visible_devices_limits_the_count():
    done = run("import torch; print(torch.npu.device_count())", ASCEND_RT_VISIBLE_DEVICES="4,5")
    assert done.stdout.split() == ["2"], done.stderr


def test_memory_size_and_soc_version_come_from_the_environment():
    code = "import torch; print(torch.npu.mem_get_info()[1], torch.npu.get_soc_version())"
    done = run(code, TORCH_NPU_EMULATOR_MEMORY_GIB="0.5", TORCH_NPU_EMULATOR_SOC_VERSION="250")
    assert done.stdout.split() == [str(1 << 29), "250"], done.stderr


@pytest.mark.parametrize("value", ["many", "0", "-1", "100"])
def test_a_senseless_number_of_devices_names_the_variable(value):
    done = run("import torch; torch.npu.device_count()", TORCH_NPU_EMULATOR_DEVICES=value)
    assert done.returncode != 0
    assert "TORCH_NPU_EMULATOR_DEVICES" in done.stderr


def test_tensors_live_where_they_are_put_and_stay_there():
    x = torch.ones(3, 4, device="npu:1")
    assert {t.device for t in (x, x + 1, x @ x.T, x[0], x.sum(), torch.zeros_like(x), torch.cat((x, x)))} == {
        torch.device("npu:1")
    }
    assert x.is_npu
    assert x.cpu().device.type == "cpu"


def test_current_device_takes_tensors_without_an_index():
    with torch.npu.device(1):
        assert torch.npu.current_device() == 1
        assert torch.ones(2, device="npu").device == torch.device("npu:1")
        assert torch.arange(3, device="npu").device == torch.device("npu:1")
    assert torch.npu.current_device() == 0
    torch.npu.set_device("npu:2")
    assert torch.accelerator.current_device_index() == 2
    assert torch.ones(2).npu().device == torch.device("npu:2")


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(RuntimeError, match="there is no npu:99"):
        torch.npu.set_device(99)
    with pytest.raises(RuntimeError, match="TORCH_NPU_EMULATOR_DEVICES"):
        torch.ones(2, device="npu:63")


def test_properties_are_those_that_hosts_read():
    properties = torch.npu.get_device_properties("npu:1")
    assert properties.total_memory == torch.npu.mem_get_info("npu:1")[1] > 0
    assert properties.cube_core_num > 0
    assert properties.vector_core_num > 0
    assert properties.uuid != torch.npu.get_device_properties("npu:0").uuid
    assert "910" in torch.npu.get_device_name()


def test_what_is_not_emulated_names_itself():
    with pytest.raises(NotImplementedError, match=r"torch\.npu\.utilization"):
        torch.npu.utilization()
    with pytest.raises(NotImplementedError, match="MemPool"):
        torch.npu.memory.MemPool()
    with pytest.raises(NotImplementedError, match=r"profiler\.profile"):
        torch_npu.profiler.profile()
    with pytest.raises(AttributeError, match="no attribute"):
        torch.npu.never_heard_of  # noqa: B018


def test_modules_that_hosts_import_are_there():
    import acl.rt
    import torch_npu._inductor  # noqa: F401
    from torch_npu._C._distributed_c10d import ProcessGroupHCCL
    from torch_npu.op_plugin.atb._atb_ops import _register_atb_extensions
    from torch_npu.profiler import dynamic_profile  # noqa: F401

    _register_atb_extensions()
    assert ProcessGroupHCCL.Options().hccl_config == {}
    with pytest.raises(NotImplementedError, match=r"acl\.rt\.memcpy"):
        acl.rt.memcpy()
