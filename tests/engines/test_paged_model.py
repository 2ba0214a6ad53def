"""Models that cannot be paged are refused with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from antiphon.core.errors import ModelUnusable
from antiphon.engines.paged_model import check_model
from antiphon.engines.quiet_openvino import opset13, ov


def save(folder: Path, inputs: list[ov.Node], output: ov.Node) -> None:
    ov.save_model(ov.Model([output], inputs, "small"), str(folder / "openvino_model.xml"))


def test_a_model_without_attention_is_refused(tmp_path: Path) -> None:
    ids = opset13.parameter([-1, -1], np.int64, name="input_ids")
    weights = opset13.constant(np.ones((8, 4), np.float32))
    embedded = opset13.gather(weights, ids, opset13.constant(np.int64(0)))
    save(tmp_path, [ids], opset13.matmul(embedded, weights, False, True))
    with pytest.raises(ModelUnusable, match="no attention that can be paged"):
        check_model(tmp_path)


def test_a_model_with_inputs_of_its_own_is_refused_by_their_names(tmp_path: Path, model_folder: Path) -> None:
    model = ov.Core().read_model(str(model_folder / "openvino_model.xml"))
    strange = opset13.parameter([-1], np.float32, name="token_type_ids")
    strange.output(0).get_tensor().set_names({"token_type_ids"})
    model.add_parameters([strange])
    ov.save_model(model, str(tmp_path / "openvino_model.xml"), compress_to_fp16=False)
    with pytest.raises(ModelUnusable, match="differ from a chat model's in token_type_ids"):
        check_model(tmp_path)


def test_files_that_are_no_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "openvino_model.xml").write_text("<net/>")
    with pytest.raises(ModelUnusable, match="cannot be read by OpenVINO"):
        check_model(tmp_path)
