"""Options of hccl groups."""

from typing import Any


class _Options:
    """What a host asks of a group. Only kept: gloo has nothing to ask."""

    def __init__(self, is_high_priority_stream: bool = False) -> None:
        self.is_high_priority_stream = is_high_priority_stream
        self.hccl_config: dict[str, Any] = {}
        self.global_ranks_in_group: list[int] = []
        self.group_id = ""
        self.group_name = ""
        self.op_timeout = 0


class ProcessGroupHCCL:
    """There for its options; groups are made by torch.distributed with backend "hccl"."""

    Options = _Options
