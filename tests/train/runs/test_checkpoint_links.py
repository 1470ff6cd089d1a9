"""Checkpoints are only removed inside their own folder."""

from __future__ import annotations

import pytest

from llmcurate.base.disk.files import remove
from llmcurate.base.errors import LlmcurateError
from train.runs.checkpoint import refuse_link


def test_a_link_is_removed_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/state.json").touch()
    (tmp_path / "step-0000002").symlink_to("victim")
    remove(tmp_path / "step-0000002", inside=tmp_path, must=True)
    assert [p.name for p in tmp_path.iterdir()] == ["victim"]
    assert (tmp_path / "victim/state.json").exists()


def test_a_folder_of_checkpoints_that_is_a_link_is_refused_in_one_line(tmp_path):
    (tmp_path / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(
        LlmcurateError, match=r"checkpoints: is a link to .*; checkpoints are"
    ) as error:
        refuse_link(tmp_path / "checkpoints")
    assert "\n" not in str(error.value)
    refuse_link(tmp_path)
