"""OpenVINO without its reports: the only place that imports it.

Its import would report to its maker over the network, from a forked child. Without the package ``openvino_telemetry`` it falls
back to a stub of its own, so an empty module stands in for that package first. Another stands in for its model converter,
which we never call and which is most of the import's time; OpenVINO does without it too.
"""

from __future__ import annotations

import sys
from types import ModuleType

sys.modules["openvino_telemetry"] = ModuleType("openvino_telemetry")
sys.modules.setdefault("openvino.tools.ovc", ModuleType("openvino.tools.ovc"))

import openvino as ov  # noqa: E402
from openvino import opset13  # noqa: E402
from openvino._offline_transformations import paged_attention_transformation  # noqa: E402

__all__ = ["opset13", "ov", "paged_attention_transformation"]
