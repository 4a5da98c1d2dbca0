"""Every option, declared once: `Settings` and its sections."""

from vllm_hust_vspec.settings.adaptive import AdaptiveSettings
from vllm_hust_vspec.settings.backends import DraftSettings, EagleSettings
from vllm_hust_vspec.settings.catalog import OPTIONS, Spec
from vllm_hust_vspec.settings.schema import Settings
from vllm_hust_vspec.settings.serve import ServeSettings

__all__ = ["OPTIONS", "AdaptiveSettings", "DraftSettings", "EagleSettings", "ServeSettings", "Settings", "Spec"]
