"""The entry point that vLLM calls in each of its processes.

It must import nothing but the standard library: vLLM swallows an import error here and would serve without the plugin.
"""

import os

ENABLED = "HUST_VSPEC_ENABLED"


def register() -> None:
    """Install vSpec's hooks where HUST_VSPEC_ENABLED=1; otherwise leave vLLM as it is."""
    if os.environ.get(ENABLED) != "1":
        return
    from vllm_hust_vspec import errors

    try:
        from vllm_hust_vspec.host.hooks import register_stage

        register_stage()
    except errors.VSpecError as error:
        errors.fail(str(error))
    except ImportError as error:
        errors.fail(
            f"the plugin cannot start: {error}; reinstall vllm-hust-vspec, or unset {ENABLED} to serve without it"
        )
