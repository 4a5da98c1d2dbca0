"""From settings to a running vLLM: its environment, its command, and the checks before it starts."""

from vllm_hust_vspec.launcher.host import Host, detect
from vllm_hust_vspec.launcher.models import safetensors_size
from vllm_hust_vspec.launcher.plan import Plan, make_plan
from vllm_hust_vspec.launcher.prechecks import check_start

__all__ = ["Host", "Plan", "check_start", "detect", "make_plan", "safetensors_size"]
