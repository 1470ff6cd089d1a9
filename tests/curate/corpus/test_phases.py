"""Phases of a resolve: committed as a whole, resumed, and freed when nothing reads them."""

from __future__ import annotations

import json

import pytest

from curate.corpus import journal
from curate.corpus.phases import Done, Phase, forget, run_phases
from llmcurate.base.errors import Damaged


class Stop(Exception):
    pass


def chain(ran: list[str], fails: str = "") -> list[Phase]:
    def phase(name, before, frees=()):
        def make(folder, done: Done):
            ran.append(name)
            (folder / "data").write_text(name)
            if before:
                assert done.file(before, "data").read_text() == before
            if name == fails:
                raise Stop
            return {name: len(ran)}

        return Phase(name, make, frees)

    return [phase("a", ""), phase("b", "a", ("a",)), phase("c", "b", ("b",)), phase("d", "c")]


def test_a_failed_phase_is_repeated_and_earlier_phases_are_not(tmp_path):
    for fails in "abcd":
        home = tmp_path / fails
        home.mkdir()
        ran: list[str] = []
        with pytest.raises(Stop):
            run_phases(home, chain(ran, fails))
        assert ran == list("abcd"[: "abcd".index(fails) + 1])
        ran.clear()
        done = run_phases(home, chain(ran))
        assert ran == list("abcd"["abcd".index(fails) :])
        assert sorted(done.facts) == list("abcd")
        assert sorted(p.name for p in home.iterdir()) == ["phase-c", "phase-d"]


@pytest.mark.parametrize("name", ["data", "facts.json"])
def test_phases_begin_anew_where_a_file_is_not_what_was_written(tmp_path, name):
    home = tmp_path / "own"
    home.mkdir()
    with pytest.raises(Stop), journal.resolving(home):
        run_phases(home, chain([], fails="d"))
    path = home / "phase-c" / name
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(Damaged, match=f"phase-c/{name} is not what"), journal.resolving(home):
        pass
    assert not home.exists()


def test_a_phases_input_is_verified_before_it_is_removed(tmp_path):
    home = tmp_path / "own"
    home.mkdir()

    def damages(folder, done):
        (folder / "data").write_text("b")
        done.file("a", "data").write_text("?")
        return {}

    phases = [chain([])[0], Phase("b", damages, ("a",))]
    with pytest.raises(Damaged, match="phase-a/data is not"), journal.resolving(home):
        run_phases(home, phases)


def test_a_killed_resolve_resumes_and_unsealed_files_are_removed(tmp_path):
    home = tmp_path / "own"
    home.mkdir()
    with pytest.raises(Stop), journal.resolving(home):
        run_phases(home, chain([], fails="d"))
        raise AssertionError
    (home / "left").write_text("by nobody")
    ran: list[str] = []
    with journal.resolving(home):
        assert not (home / "left").exists()
        run_phases(home, chain(ran))
    assert ran == ["d"]
    left = [f"phase-{name}/{file}" for name in "cd" for file in ("data", "facts.json")]
    assert sorted(journal.finish(home)) == left
    assert sorted(p.name for p in home.iterdir()) == ["phase-c", "phase-d"]


def test_the_last_phase_folder_holds_the_facts_of_all_phases(tmp_path):
    run_phases(tmp_path, chain([]))
    facts = json.loads((tmp_path / "phase-d/facts.json").read_text())
    assert facts == {"a": 1, "b": 2, "c": 3, "d": 4}
    ran: list[str] = []
    assert run_phases(tmp_path, chain(ran)).facts == facts
    assert ran == []


def test_leftover_phase_folders_are_removed_at_the_next_start(tmp_path):
    run_phases(tmp_path, chain([]))
    (tmp_path / "phase-b").mkdir()
    (tmp_path / ".part-1-b").mkdir()
    run_phases(tmp_path, chain([]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["phase-b", "phase-c", "phase-d"]
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == []
