"""A hook of hatchling: puts the kernels' machine code into a wheel for the Python that builds it.

It acts where MACHINE_CODE names a folder that `llmcurate warmup` filled, as `make wheel` says.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MachineCode(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if folder := os.environ.get("MACHINE_CODE"):
            build_data.update(pure_python=False, infer_tag=True)
            build_data["force_include"][folder] = "llmcurate/machine_code"
