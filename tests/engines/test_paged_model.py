"""What is made of a model's graph."""

from __future__ import annotations

from pathlib import Path

from antiphon.engines.paged_model import _read
from antiphon.engines.quiet_openvino import ov


def test_what_nobody_samples_ends_with_the_last_attention(model_folder: Path) -> None:
    """Every matrix product behind it, the head's too, reads gathered rows; none before it does."""
    kinds = [kind for _, kind in _gathered(_read(ov.Core(), model_folder))]
    assert kinds.count("MatMul") == 5, "output projection, gate, up, down, head"
    assert kinds.count("PagedAttentionExtension") == 0


def _gathered(model: ov.Model) -> set[tuple[str, str]]:
    """Name and kind of all that depends on which rows are sampled."""
    parameter = next(node for node in model.get_parameters() if "sampled_tokens_indices" in node.output(0).get_names())
    found: set[tuple[str, str]] = set()
    left: list[ov.Node] = [parameter]
    while left:
        node = left.pop()
        name = node.get_name(), node.get_type_name()
        if name not in found:
            found.add(name)
            left += [reader.get_node() for output in node.outputs() for reader in output.get_target_inputs()]
    return found
