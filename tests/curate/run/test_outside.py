"""An OUT or HOME from somebody else cannot make a run touch files outside of it."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest

from curate.documents.edits import Edit
from curate.inspect.browse.originals import Originals
from curate.run.ledger import packed
from curate.run.records import StageRecord
from llmcurate.base.errors import RunFailed
from tests.parameters import mostly_slow

RECIPE = "steps:\n  - c4: {min_sentences: 2}\n  - dedup_exact\n"
WHOLE = "steps:\n  - dedup_exact\n  - tokenizer: {vocab: 300}\n  - export\n"


@pytest.fixture(scope="module")
def made(shared_bench, make_pages):
    """A finished run with products."""
    shared_bench.jsonl("in.jsonl", make_pages(40))
    (shared_bench.folder / "recipe.yaml").write_text(WHOLE)
    shared_bench.run(WHOLE, shared_bench.folder / "in.jsonl", out="made")
    return shared_bench


class Case:
    """A copy of that OUT, beside a folder that is somebody else's."""

    def __init__(self, bench, name: str) -> None:
        self.bench, self.folder = bench, bench.folder / name
        self.out, self.victim = self.folder / "out", self.folder / "victim"
        (self.victim / "deep").mkdir(parents=True)
        (self.victim / "deep/file").write_text("mine")
        (self.victim / "manifest.json").write_text("mine")
        shutil.copytree(bench.folder / "made", self.out)

    def sql(self, text: str, *values: str) -> None:
        with sqlite3.connect(self.out / "ledger.db") as db:
            db.execute(text, values)
        db.close()

    def run(self, *sets: str):
        more = [x for s in sets for x in ("--set", s)]
        return self.bench.command(
            "run", "recipe.yaml", "in.jsonl", "-o", self.out, "--workers", 1, "--quiet", *more
        )

    def untouched(self) -> bool:
        names = sorted(p.relative_to(self.victim).as_posix() for p in self.victim.rglob("*"))
        texts = [(self.victim / n).read_text() for n in ("deep/file", "manifest.json")]
        return names == ["deep", "deep/file", "manifest.json"] and texts == ["mine", "mine"]

    def refuses(self, *parts: str, sets: tuple[str, ...] = ("tokenizer.vocab=310",)) -> None:
        done = self.run(*sets)
        assert done.returncode == 1 and done.stderr.strip().count("\n") == 0, done.stderr
        assert all(part in done.stderr for part in parts), done.stderr
        assert self.untouched()


@pytest.fixture
def case(made, request):
    return Case(made, request.node.name)


@pytest.mark.parametrize(
    "name", mostly_slow(["../victim/deep/file", "{victim}/deep/file", "../victim", ""])
)
def test_the_list_of_files_beside_an_index_names_none_elsewhere(case, name):
    listed = case.out / "index/files.json"
    listed.write_text(json.dumps([name.format(victim=case.victim)]))
    case.refuses("files.json names ", sets=("dedup_exact.survivor=first",))


def test_an_index_that_is_a_link_is_not_followed(case):
    shutil.rmtree(case.out / "index")
    (case.out / "index").symlink_to(case.victim)
    case.refuses(
        "index/", "was not removed: it is not inside", sets=("dedup_exact.survivor=first",)
    )


def test_files_that_the_ledger_calls_published_lie_in_out(case):
    key = "published:tokenizer"
    for files, message in (
        (["../victim/manifest.json", "tokenizer.json"], "names '../victim/manifest.json'"),
        (7, "is damaged"),
    ):
        row = packed((key,), {"key": "x", "files": files})
        case.sql(f"UPDATE stages SET result = ? WHERE stage = '{key}'", row)
        case.refuses(f"ledger.db {message}")


def test_a_product_is_not_put_through_a_link(case):
    shutil.rmtree(case.out / "jsonl")
    (case.out / "jsonl").symlink_to(case.victim)
    case.refuses("jsonl", "through a link", sets=("export.compression=gz",))


@pytest.mark.parametrize("link", ["stages", "stages/*export*"])
def test_stages_that_are_links_are_not_followed(case, link):
    (path,) = case.out.glob(link)
    shutil.rmtree(path)
    path.symlink_to(case.victim)
    (case.victim / ".spill-x").mkdir()  # as a killed run would leave it
    (case.victim / ".part-x").touch()
    case.sql("DELETE FROM stages WHERE stage NOT LIKE 'published%'")
    case.sql("UPDATE runs SET done = 0")
    done = case.run()
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert (case.victim / ".spill-x").is_dir() and (case.victim / ".part-x").exists()


def test_a_product_empties_no_folder_that_a_link_leads_to(case):
    (path,) = case.out.glob("stages/*export*/jsonl")
    shutil.rmtree(path)
    path.symlink_to(case.victim / "deep")
    case.sql("DELETE FROM stages WHERE stage NOT LIKE 'published%'")
    case.sql("UPDATE runs SET done = 0")
    case.refuses("jsonl/file was not removed", sets=())


@pytest.mark.parametrize("name", mostly_slow([".corpus-new", "corpus", "rejected", ".corpus-old"]))
def test_a_link_in_the_place_of_a_folder_goes_and_what_it_leads_to_stays(case, name):
    shutil.rmtree(case.out / name, ignore_errors=True)
    (case.out / name).symlink_to(case.victim)
    done = case.run("dedup_exact.survivor=first")
    assert done.returncode == 0 and case.untouched(), done.stderr
    assert not (case.out / name).is_symlink()


def test_a_store_refuses_names_outside_its_folder(tmp_path):
    from llmcurate.base.disk.store import LIST, Mirror, Store
    from llmcurate.base.errors import RunFailed

    (tmp_path / "victim").write_text("mine")
    store = Store(Mirror("memory://outside/out", tmp_path / "mirror"))
    for work in (
        lambda: store.delete(["../victim"]),
        lambda: store.write("../victim", b"x"),
        lambda: store.put(tmp_path / "mirror/a/../../victim"),
    ):
        with pytest.raises(RunFailed, match="is not inside it"):
            work()
    store.write(LIST, b'{"version": 1, "files": ["../victim"]}')
    assert store.listed() == {} and sorted(store.listing) == [LIST]


@pytest.mark.parametrize("deep", mostly_slow(["{resolve}/phase-x/deep/file", "{resolve}/phase-x"]))
def test_a_link_deep_in_the_folder_of_a_resolve_is_not_followed(case, deep):
    done = case.run("dedup_exact.survivor=first")  # which says what the folder is called
    assert done.returncode == 0, done.stderr
    (folder,) = case.out.glob("stages/00-*")
    case.sql("DELETE FROM stages WHERE stage LIKE '%:resolved'")
    case.sql("UPDATE runs SET done = 0")
    for resolve in folder.glob("resolve-*"):
        path = case.folder / deep.format(resolve=resolve)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(case.victim)
    case.refuses("is a link, which no run creates there", sets=("dedup_exact.survivor=first",))


@pytest.mark.parametrize("name", ["../../victim", "{victim}"])
def test_a_stage_in_the_record_of_a_run_lies_in_out(case, name):
    stages = [StageRecord(folder=name.format(victim=case.victim), steps=["c4"])]
    with pytest.raises(RunFailed, match=r"which is not inside|leads out"):
        Originals(case.out, stages).find(
            ("part-00000.parquet", 0), "a", "text", [Edit("c4", "short", 0, 1, None)]
        )
