"""A corpus that grows by refreshes equals one made at once, and stays readable all the time."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from curate.formats.listing import find_files
from curate.refresh import incremental
from curate.refresh.inputs import find_new
from curate.refresh.state import State
from curate.steps.recipe import load
from curate.steps.shipped import names
from llmcurate.base.errors import LockHeld, RunFailed, UsageError
from llmcurate.base.messages import json_values
from tests.curate.capabilities import permissions_count
from tests.curate.refresh.growing import Home, inputs
from tests.parameters import mostly_slow

BLOOM = {"dedup_bloom": {"expected": 30_000, "ngram": 5, "threshold": 0.3, "false_positives": 0.05}}
STEPS = [{"dedup_exact": {}}, {"dedup_minhash": {}}, BLOOM]


@pytest.fixture(scope="module")
def grown(shared_bench):
    """(HOME after refreshes of A, B and C, each in its own; their files)."""
    files = [
        shared_bench.jsonl(f"{n}.jsonl", rows) for n, rows in zip("abc", inputs(), strict=True)
    ]
    home = Home(shared_bench, STEPS)
    for file in files:
        assert home.refresh(file).new
    return home, files


def test_refreshes_keep_what_one_run_over_all_inputs_keeps(grown):
    home, files = grown
    first = [
        {"dedup_exact": {"survivor": "first"}},
        {"dedup_minhash": {"survivor": "first"}},
        BLOOM,
    ]
    home.bench.run(first, *files, out="whole")
    whole = home.bench.rows("whole")
    assert [(r["id"], r["text"]) for r in home.rows()] == [(r["id"], r["text"]) for r in whole]
    rules = {(r["step"], r["id"]) for r in home.bench.rows("whole", "rejected")}
    assert {step for step, _ in rules} == {"dedup_exact", "dedup_minhash", "dedup_bloom"}
    assert any("~2" in r["id"] for r in whole) and any("~3" in r["id"] for r in whole)
    refreshed = set()
    for name in sorted(p.name for p in (home.path / "runs").iterdir()):
        rows = home.bench.rows(f"home/runs/{name}", "rejected")
        refreshed |= {(r["step"], r["id"]) for r in rows}
    assert refreshed == rules


@pytest.mark.slow
def test_lines_are_cut_as_one_run_over_all_inputs_cuts_them(bench):
    files = [bench.jsonl(f"{n}.jsonl", r) for n, r in zip("abc", inputs(15), strict=True)]
    step = {"unit": "line", "min_sentences": 1}
    home = Home(bench, [{"dedup_passages": step}])
    for file in files:
        home.refresh(file)
    bench.run([{"dedup_passages": {**step, "survivor": "first"}}], *files, out="whole")
    whole = bench.rows("whole")
    assert [(r["id"], r["text"]) for r in home.rows()] == [(r["id"], r["text"]) for r in whole]
    assert any(r["edits"] for r in whole)


def test_explain_knows_kept_and_dropped_documents_of_every_refresh(grown):
    home, _ = grown
    for name in home.ids()[::40]:
        done = home.bench.command("explain", name, "--in", home.path)
        assert done.returncode == 0 and done.stdout.startswith(f"{name}: kept"), done.stderr
    last = max((home.path / "runs").iterdir()).name
    gone = home.bench.rows(f"home/runs/{last}", "rejected")[0]
    done = home.bench.command("explain", gone["id"], "--in", home.path)
    assert f"{gone['id']}: rejected" in done.stdout and last in done.stdout


def test_parts_of_earlier_snapshots_are_the_same_files(grown):
    home, _ = grown
    first, second, third = map(home.folder, home.snapshots())
    parts = [sorted(p.name for p in s.glob("part-*")) for s in (first, second, third)]
    assert [len(p) for p in parts] == [1, 2, 3]
    assert (first / parts[0][0]).stat().st_ino == (third / parts[0][0]).stat().st_ino
    manifest = home.manifest()
    assert manifest["parent"] == second.name and list(manifest["files"]) == parts[2]
    assert manifest["documents"] == len(home.rows())
    assert (home.path / "current").resolve() == third
    leftovers = [
        p.name for p in home.path.rglob("*") if p.name.startswith(".") or p.name == "stages"
    ]
    assert leftovers == []


def test_nothing_new_makes_no_snapshot(grown):
    home, files = grown
    done = home.refresh(*files)
    assert not done.new and done.unchanged == 3
    assert len(home.snapshots()) == 3


def test_a_refresh_that_keeps_nothing_says_why(bench):
    done = Home(bench, [{"document_length": {"min": 60}}]).refresh(
        bench.jsonl("a.jsonl", [{"text": "One."}, {"text": "Two."}])
    )
    why = "nothing was kept: document_length dropped 2 of 2 (too_short 2)"
    assert f"2 documents read, 0 kept ({why}); corpus 0 documents" in done.line()
    assert json_values(done)["nothing_kept"] == why


def test_a_folder_a_pattern_and_a_list_take_in_only_what_is_new(bench):
    a, b, c = inputs(10)
    bench.jsonl("in/a.jsonl", a)
    home = Home(bench, [{"dedup_exact": {}}])
    assert home.refresh(bench.folder / "in").inputs == 1
    bench.jsonl("in/deep/b.jsonl", b)
    done = home.refresh(bench.folder / "in" / "**" / "*.jsonl")
    assert (done.inputs, done.unchanged) == (1, 1)
    bench.jsonl("in/c.jsonl", c)
    (bench.folder / "day.paths").write_text("in/a.jsonl\nin/c.jsonl\n\n")
    from curate.formats.fetched import expanded

    done = home.refresh(*expanded([str(bench.folder / "day.paths")]))
    assert (done.inputs, done.unchanged) == (1, 1)
    assert len(home.ids()) == len({r["text"] for rows in (a, b, c) for r in rows})


def test_a_list_of_common_crawl_begins_at_its_server(tmp_path):
    import gzip

    from curate.formats.fetched import expanded

    lines = "crawl-data/CC-MAIN-2026-47/warc/a.warc.gz\nother/b.warc.gz\n/abs/c.warc.gz\n"
    path = tmp_path / "warc.paths.gz"
    path.write_bytes(gzip.compress(lines.encode()))
    server = "https://data.commoncrawl.org/crawl-data/CC-MAIN-2026-47/warc/a.warc.gz"
    assert expanded([str(path), "d.jsonl"]) == [
        server,
        f"{tmp_path}/other/b.warc.gz",
        "/abs/c.warc.gz",
        "d.jsonl",
    ]
    assert expanded([], [str(path)], "s3://bucket/x/")[0] == f"s3://bucket/x/{lines.split()[0]}"


def test_an_input_that_changed_is_named_and_taken_or_left_by_option(bench):
    a, b, _ = inputs(6)
    source = bench.jsonl("in/a.jsonl", a)
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(source)
    bench.jsonl("in/a.jsonl", [*a, *b])
    assert not home.refresh(source, changed="skip").changed
    done = home.refresh(source, changed="new")
    assert done.totals.read == len(a) + len(b)
    assert sorted({r["text"] for r in home.rows()}) == sorted({r["text"] for r in [*a, *b]})
    known = home.refresh(source)  # as it is now
    assert not known.new and not known.changed


def test_an_input_that_changed_holds_no_other_up(bench):
    a, b, c = inputs(6)
    source = bench.jsonl("in/a.jsonl", a)
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(source.parent)
    bench.jsonl("in/a.jsonl", [*a, *b])
    bench.jsonl("in/c.jsonl", c)
    for new in (1, 0):
        done = home.refresh(source.parent)
        assert (done.inputs, done.changed) == (new, [str(source)])
        assert "1 changed input, left as ingested (--changed new ingests" in done.line()
    (bench.folder / "r.yaml").write_text("steps: [{dedup_exact: {}}]")
    again = bench.command("refresh", "r.yaml", source.parent, "-o", home.path, "--json", "-q")
    assert again.returncode == 65 and json.loads(again.stdout)["changed"] == [str(source)]
    assert str(source) in again.stderr


@pytest.mark.lab
@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"dedup_bloom": {}}, "give --set dedup_bloom.expected=N"),
        ({"dedup_semantic": {}}, "decides by the whole corpus"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_step_that_needs_later_documents_is_refused_by_name(bench, step, reason):
    source = bench.jsonl("a.jsonl", inputs(3)[0])
    with pytest.raises(UsageError, match=reason) as refused:
        Home(bench, [step]).refresh(source)
    assert next(iter(step)) in str(refused.value)
    assert not (bench.folder / "home").exists()


@pytest.mark.parametrize(
    ("step", "first"),
    mostly_slow(
        [
            ({"dedup_exact": {"survivor": "longest"}}, {"survivor": "first"}),
            ({"dedup_minhash": {"survivor": "newest"}}, {"survivor": "first"}),
            (
                {"dedup_passages": {"unit": "paragraph", "keep": "none"}},
                {"keep": "one", "survivor": "first"},
            ),
            ({"dedup_suffix_array": {"keep": "none", "threshold": 40}}, {"keep": "first"}),
            (
                {"dedup_suffix_array": {"survivor": "longest", "threshold": 40}},
                {"keep": "first"},
            ),
        ],
        3,
    ),
    ids=str,
)
def test_a_policy_that_needs_later_documents_becomes_first_with_a_notice(
    bench, capsys, step, first
):
    files = [bench.jsonl(f"{n}.jsonl", r) for n, r in zip("ab", inputs(8), strict=False)]
    home = Home(bench, [step])
    ((name, settings),) = step.items()
    for file in files:
        home.refresh(file, quiet=False)
        policy = f"{name} ({list(settings)[-1]}: " if name != "dedup_suffix_array" else name
        (line,) = [x for x in capsys.readouterr().err.splitlines() if "arrived first" in x]
        assert line.startswith(f"the duplicate that arrived first is kept in {policy}")
    bench.run([{name: {**settings, **first}}], *files, out="whole")
    whole = bench.rows("whole")
    assert [(r["id"], r["text"]) for r in home.rows()] == [(r["id"], r["text"]) for r in whole]
    assert bench.rows("whole", "rejected") or any(r["edits"] for r in whole)


@pytest.mark.lab
def test_every_shipped_recipe_can_be_refreshed():
    sets = {
        "ccnet-llama1": ("perplexity.cutoffs=ccnet", "perplexity.low=0"),
        "redpajama-v1": ("perplexity.cutoffs=ccnet",),
    }
    corpora = [name for name in names() if load(name).document_steps]
    for name in corpora:
        filters = [s.label for s in load(name).steps if s.name == "dedup_bloom"]
        sets.setdefault(name, tuple(f"{label}.expected=1000" for label in filters))
    with pytest.raises(UsageError, match=r"cutoffs=ccnet --set perplexity\.low=0 uses"):
        incremental.check(load("ccnet-llama1"))
    lines = {name: incremental.check(load(name, sets[name])) for name in corpora}
    assert lines["fineweb"] is None
    assert (
        lines["c4"] == "the duplicate that arrived first is kept in dedup_passages (survivor: c4)"
    )
    assert "dedup_suffix_array (keep: none)" in lines["refinedweb"]


def test_a_recipe_that_changed_is_refused_by_step_and_rebuilt_by_option(bench):
    a, b, _ = inputs(8)
    first, second = bench.jsonl("in/x/a.jsonl", a), bench.jsonl("in/x/b.jsonl", b)
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(bench.folder / "in")
    changed = [{"dedup_exact": {"normalize": True}}]
    with pytest.raises(UsageError, match=r"step dedup_exact .*normalize: None before, True now"):
        home.refresh(bench.folder / "in", steps=changed)
    with pytest.raises(UsageError, match="step document_length is new"):
        home.refresh(first, steps=[*home.steps, {"document_length": {"min": 2}}])
    before = home.ids()
    done = home.refresh(bench.folder / "in", steps=changed, rebuild=True)
    assert done.kind == "rebuild" and done.inputs == 2 and home.ids() == before
    bench.jsonl("in/y/b.jsonl", [{"text": b[0]["text"].upper()}, {"text": "Something else."}])
    assert home.refresh(bench.folder / "in", steps=changed).totals.kept == 1
    assert second.exists()


def test_unreadable_inputs_are_counted_in_the_record_of_a_refresh(bench):
    a, b, _ = inputs(8)
    bench.jsonl("in/a.jsonl", a)
    closed = bench.jsonl("in/b.jsonl", b)
    recipe = bench.folder / "r.yaml"
    recipe.write_text('{"steps": ["dedup_exact"]}')
    closed.chmod(0)
    try:
        with permissions_count():
            left = bench.command("refresh", recipe, "in", "-o", "other")
            alone = bench.command("refresh", recipe, closed, "-o", "other", "--quiet")
            done = bench.command("refresh", recipe, "in", "-o", "home", "--skip-unreadable")
    finally:
        closed.chmod(0o644)
    assert left.returncode == 65 and f"{closed} (Permission denied)" in left.stdout
    assert alone.returncode == 65 and f"{closed} (Permission denied)" in alone.stderr
    assert done.returncode == 0, done.stderr
    assert f"skipped {closed}: Permission denied" in done.stderr
    (run,) = (bench.folder / "home/runs").iterdir()
    assert json.loads((run / "run.json").read_text())["totals"]["unreadable"] == 1
    again = bench.command("refresh", recipe, "in", "-o", "home")
    assert again.returncode == 0 and "1 new input" in again.stdout


def test_other_spellings_of_a_path_are_no_new_input(bench):
    source = bench.jsonl("in/d.csv.jsonl", [{"id": "a", "text": "Text."}])
    (bench.folder / "sub").mkdir()
    home = Home(bench, [{"document_length": {"min": 1}}])
    home.refresh(source)
    folder = bench.folder
    for name in (f"{folder}/sub/../in/*", f"{folder}//in/./{source.name}", f"file://{source}"):
        assert not home.refresh(name).new


def test_a_home_that_knows_a_file_by_another_spelling_does_not_read_it_again(bench):
    source = bench.jsonl("in/d.jsonl", [{"id": "a", "text": "Text."}])
    size, *_ = (file.state for file in find_files([str(source)]).files)
    for name in (f"file://{source}", f"{bench.folder}//in/../in/d.jsonl"):
        assert find_new([str(source)], {name: (size, "")}).unchanged == 1


def test_a_rebuild_names_the_ingested_input_that_is_gone(bench):
    a, b = (bench.jsonl(f"{n}.jsonl", [{"text": n}]) for n in "ab")
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(a, b)
    a.unlink()
    with pytest.raises(
        UsageError, match=r"a\.jsonl does not exist \(1 of 2 inputs missing\): restore"
    ):
        home.refresh(b, rebuild=True)


def test_files_that_are_skipped_are_in_the_outcome(bench):
    source = bench.jsonl("in/a.jsonl", [{"text": "Text."}])
    (source.parent / "b.docx").write_bytes(b"PK")
    home = Home(bench, [{"dedup_exact": {}}])
    for _ in range(2):
        notices = json.loads(json.dumps(json_values(home.refresh(source.parent))))["notices"]
        assert notices == [f"skipped {source.parent}/b.docx: unknown format"]


def test_a_quiet_refresh_does_not_say_which_lists_it_runs_without(bench, monkeypatch, capsys):
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")
    monkeypatch.setenv("LLMCURATE_CACHE", str(bench.folder / "cache"))
    home = Home(bench, [{"url_filter": {}}])
    home.refresh(bench.jsonl("a.jsonl", [{"text": "Text."}]))
    assert capsys.readouterr().err == ""


def test_going_back_makes_later_inputs_new_again(bench):
    a, b, c = (bench.jsonl(f"{n}.jsonl", r) for n, r in zip("abc", inputs(8), strict=True))
    home = Home(bench, [{"dedup_exact": {}}])
    first = home.refresh(a)
    second = home.refresh(b)
    from curate.refresh import run
    from curate.refresh.outcome import RefreshOptions

    back = run.roll_back(home.path, "parent", RefreshOptions(quiet=True))
    assert back.name == first.name and home.ids() == home.ids(first.name)
    third = home.refresh(c)
    assert home.ids()[: len(home.ids(first.name))] == home.ids(first.name)
    fourth = home.refresh(b, keep=2)
    assert fourth.inputs == 1 and len(home.ids()) == len({r["text"] for x in inputs(8) for r in x})
    assert fourth.removed_snapshots == [first.name, second.name]
    runs = {p.name for p in (home.path / "runs").iterdir()}
    assert runs == {first.name, third.name, fourth.name}  # what nothing came from is gone
    with pytest.raises(UsageError, match="no snapshot nowhere; existing snapshots: "):
        run.roll_back(home.path, "nowhere", RefreshOptions(quiet=True))


def test_the_newest_snapshots_stay(bench):
    from datetime import timedelta

    from tests.curate.refresh.growing import START

    home = Home(bench, [{"dedup_exact": {}}])
    files = [bench.jsonl(f"{i}.jsonl", [{"text": f"Text {i}."}]) for i in range(4)]
    for day, file in enumerate(files):
        done = home.refresh(file, keep=2, now=START + timedelta(days=day))
    assert len(home.snapshots()) == 2
    done = home.refresh(*files, keep=1, now=START + timedelta(days=30))
    assert not done.new and home.snapshots() == [done.name]
    assert len(home.ids()) == 4  # all documents of those that are gone


def test_columns_of_earlier_inputs_stay_columns(bench):
    first = bench.jsonl("a.jsonl", [{"text": "One.", "score": 1}])
    second = bench.jsonl("b.jsonl", [{"text": "Two."}])
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(first)
    home.refresh(second)
    assert [(r["text"], r["score"]) for r in home.rows()] == [("One.", 1), ("Two.", None)]


def test_an_unfinished_refresh_whose_input_changed_begins_anew(bench, monkeypatch):
    from curate.refresh import run

    a, b, _ = inputs(5)
    first, second = bench.jsonl("a.jsonl", a), bench.jsonl("b.jsonl", b)
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(first)
    before = home.ids()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            run.snapshot, "point_current_to", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        home.refresh(second)
    assert home.ids() == before
    bench.jsonl("b.jsonl", b[:3])
    assert home.refresh(second).totals.read == 3


def test_a_home_in_use_or_of_something_else_is_refused(bench):
    source = bench.jsonl("a.jsonl", inputs(3)[0])
    home = Home(bench, [{"dedup_exact": {}}])
    home.refresh(source)
    held = State(home.path)
    pid = os.getppid()
    import psutil

    created = psutil.Process(pid).create_time()
    held._db.execute("UPDATE lock SET pid = ?, created = ?", (pid, created))
    with pytest.raises(LockHeld) as busy:
        home.refresh(source)
    assert busy.value.exit_code == 75
    held._db.execute("DELETE FROM lock")
    held.close()
    other = Home(bench, home.steps, "other")
    other.path.mkdir()
    (other.path / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="no refresh wrote"):
        other.refresh(source)
    with pytest.raises(UsageError, match="is inside HOME"):
        home.refresh(home.path / "current")
    shutil.rmtree(home.path)


def test_a_moved_file_is_named_and_nothing_else_is_lost(bench):
    a, b, _ = inputs(4)
    first, second = bench.jsonl("a.jsonl", a), bench.jsonl("b.jsonl", b)
    home = Home(bench, [{"dedup_exact": {}}])
    name = home.refresh(first).name
    for path in (
        home.path / "corpus" / f"{name}.json",
        home.path / "runs" / name / "ids.parquet",
    ):
        path.rename(bench.folder / "aside")
        with pytest.raises(RunFailed, match=f"{name}.*--rebuild"):
            home.refresh(second)
        (bench.folder / "aside").rename(path)
    assert home.refresh(second).totals.read == len(b)
