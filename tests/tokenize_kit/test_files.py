"""Files written aside: a name for each process, and nothing left of those that were killed."""

from __future__ import annotations

from tokenize_kit.files import write_atomic


def test_what_a_killed_process_left_goes_and_that_of_a_live_one_stays(tmp_path):
    live = tmp_path / ".part-1-0123abcd-a.json"
    for path in (live, tmp_path / f".part-{2**22 + 1}-0123abcd-a.json"):
        path.write_bytes(b"half")
    write_atomic(tmp_path / "a.json", b"{", b"}")
    assert (tmp_path / "a.json").read_bytes() == b"{}"
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", live.name}
