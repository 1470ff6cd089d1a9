"""Files written aside: a name for each process, and nothing left of those that were killed."""

from __future__ import annotations

from llmcurate.base.disk.atomic import write_atomic
from tests.disk_calls import disk_calls


def test_what_a_killed_process_left_goes_and_that_of_a_live_one_stays(tmp_path):
    live = tmp_path / ".part-1-0123abcd-a.json"
    for path in (live, tmp_path / f".part-{2**22 + 1}-0123abcd-a.json"):
        path.write_bytes(b"half")
    write_atomic(tmp_path / "a.json", b"{", b"}")
    assert (tmp_path / "a.json").read_bytes() == b"{}"
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", live.name}


def test_a_file_and_its_name_are_on_disk_before_it_counts_as_written(tmp_path):
    with disk_calls(tmp_path) as calls:
        write_atomic(tmp_path / "a.json", b"{}")
    assert calls == ["sync a.json", "rename a.json", "sync ."]
