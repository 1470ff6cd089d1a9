"""Workers that share no folder with the driver: the same bytes, all through the exchange."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest

import curate
from curate.api.outcome import carry_out, run_plan
from curate.corpus.sizes import Sizes
from curate.corpus.stage_files import read_kept
from curate.engines import exchange_engine, exchange_worker
from curate.engines.exchange import NOTE, Exchange, open_exchange
from curate.inspect.check import check
from curate.inspect.whatif.apply import apply
from curate.run.ledger import Ledger
from curate.run.outcome import Options
from curate.run.plan import make_plan
from curate.run.records import read_record
from curate.steps.recipe import parse
from llmcurate.base.disk.elsewhere import all_files
from llmcurate.base.disk.files import TEMPORARY, file_digest
from llmcurate.base.disk.publish import LIST
from llmcurate.base.errors import RunFailed
from tests.curate.command_line import environment
from tests.curate.conftest import Bench, pages
from tests.curate.engines.two_machines import Apart
from tests.curate.filters.robots_archives import record
from tests.curate.refresh.growing import Home

SMALL = {"partition_bytes": 4096, "batch_rows": 8}
# So small that resolves are tasks.
TASK_SIZES = Sizes(
    task_documents=20,
    partition_pairs=100,
    query_documents=0,
    slice_candidates=8,
    task_passages=100,
    sort_bytes=6 * 1000,
    task_sketch_bytes=4096,
    task_windows=2000,
    task_embeddings=20,
    task_cosines=100,
    task_products=100,
)
C4 = {"c4": {"min_sentences": 2}}
RECIPES: dict[str, list[Any]] = {
    "a single stage": [C4],
    "exact and minhash": [C4, "dedup_exact", {"dedup_minhash": {"verify": 0.8}}],
    "files that settings name": [
        {"opt_out": {"robots_txt": ["robots.warc"]}},
        {"c4": {"min_sentences": 2, "badwords": "lists/words.txt"}},
        {"url_filter": {"urls": ["lists/urls.txt"], "exclude": ["other.test", "@lists/hosts.txt"]}},
        {"decontaminate": {"evals": ["mine=lists/items.txt"]}},
    ],
}
# Beside partitions.
TASKS = {
    "a single stage": {"gather_ids", "key_ids", "share_ids", "name_ids", "query_group"},
    "exact and minhash": {"write_buckets", "write_rows", "write_members", "shingle_group"},
    "signatures": {"sign_group"},
    "embeddings and passages": {"write_pieces"},
    "other dedups": {"sort_chunk"},
}
LISTS = {
    "words.txt": "cold cold",
    "urls.txt": "https://host.test/7",
    "hosts.txt": "nowhere.test",
    "items.txt": "the house stands on a hill and the river below it runs clear and cold",
}
SLOW: dict[str, list[Any]] = {
    "signatures": [{"dedup_minhash": {"verify": 0.8, "verify_by": "signature", "bits": 4}}],
    "other dedups": [
        "dedup_bloom",
        # Keeping an index, the driver would write into OUT while it is hidden.
        {"dedup_suffix_array": {"threshold": 100, "unit": "bytes", "keep_index": False}},
    ],
    "embeddings and passages": [{"dedup_semantic": {"embedding": "hashed"}}, "dedup_passages"],
}


class Cluster:
    """Runs with the engine `ray` and an exchange go to workers apart."""

    def __init__(self, apart: Apart, home: Path) -> None:
        self.apart, self.url, self.store = apart, f"file://{home}/exchange", home / "exchange"

    def run(self, bench: Bench, *args: Any, hidden: list[Path], **options: Any) -> list[str]:
        """Returns the tasks that were done. hidden: what is not on the workers' machines."""
        self.apart.done.clear()
        self.apart.hidden = hidden
        bench.run(*args, engine="ray", exchange=self.url, **options)
        return self.apart.done

    def objects(self, out: Path) -> set[str]:
        """What is in the store, of that OUT."""
        run = json.loads((out / NOTE).read_text(encoding="utf-8"))["run"]
        return {path.name for path in (self.store / run).iterdir()}

    def remove(self, out: Path, version: str) -> None:
        """Takes an object of that OUT away."""
        run = json.loads((out / NOTE).read_text(encoding="utf-8"))["run"]
        (self.store / run / version).unlink()


def elsewhere(out: Path) -> dict[str, str]:
    """The version of each file below OUT whose content is not here."""
    return {entry.path: version for entry, version in all_files(out) if version}


@pytest.fixture(scope="module")
def _apart(tmp_path_factory) -> Iterator[tuple[Apart, Path]]:
    home = tmp_path_factory.mktemp("elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        paths = [environment()["PYTHONPATH"], str(Path(__file__).parent / "plugins")]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("TMPDIR", str(home))
        patch.setattr(exchange_worker.tempfile, "tempdir", str(home))
        apart = Apart()
        yield apart, home
        apart.close()
        exchange_worker.sweep()
        assert [*home.glob(f"{exchange_worker.PREFIX}*")] == []


@pytest.fixture
def cluster(_apart, monkeypatch) -> Cluster:
    apart, home = _apart
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "plugins"))
    monkeypatch.setattr("curate.run.driver.open_engine", apart.opened)
    return Cluster(apart, home)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RECIPES, *SLOW])
def test_all_steps_give_the_bytes_of_one_machine(bench, cluster, monkeypatch, name):
    steps = (RECIPES | SLOW)[name]
    monkeypatch.chdir(bench.folder)
    robots = record("https://host.test/robots.txt", b"User-agent: GPTBot\nDisallow: /1")
    Path("robots.warc").write_bytes(robots)
    Path("lists").mkdir()
    for list_, line in LISTS.items():
        Path("lists", list_).write_text(f"{line}\n")
    hidden = [bench.folder / name for name in ("here", "robots.warc", "lists")]
    rows = pages(45)
    rows[40]["id"] = rows[2]["id"]  # so that ids are settled
    source = bench.jsonl("in.jsonl", rows)
    bench.run(steps, source, out="here", read=SMALL)
    sizes = TASK_SIZES
    if name == "a single stage":  # ids and the report as tasks, too
        sizes = replace(TASK_SIZES, task_partitions=2, report_bytes=6000)
    done = cluster.run(bench, steps, source, out="there", read=SMALL, hidden=hidden, sizes=sizes)
    assert {*done} >= TASKS.get(name, set())
    assert done.count("run_partition") >= 3 and done.count("assemble_partition") >= 3
    assert bench.bytes_of("there") == bench.bytes_of("here")
    assert "could not be read" not in str(read_record(Path("there"))["notices"])
    figures = [read_record(Path(out))["figures"] for out in ("here", "there")]
    assert figures[0] == figures[1]
    assert cluster.objects(Path("there")) == set(elsewhere(Path("there")).values())
    if name == "files that settings name":
        why = [x for row in bench.rows("there", "rejected") for x in row["reasons"]]
        assert {(x["step"], x["rule"]) for x in why} >= {
            ("opt_out", "robots_txt"),
            ("c4", "bad_word"),
            ("url_filter", "url"),
        }


@pytest.mark.slow
def test_a_document_that_kills_its_worker_is_blamed_as_on_one_machine(bench, cluster):
    rows = [{"id": f"d{i}", "text": f"document number {i}"} for i in range(12)]
    rows[7]["text"] += " KILL-WITH:11"
    source = bench.jsonl("in.jsonl", rows)
    cluster.run(bench, ["crash"], source, out="there", read=SMALL, hidden=[])
    (held,) = bench.rows("there", "rejected")
    assert (held["id"], held["step"], held["rule"]) == ("d7", "engine", "quarantine")


@pytest.mark.slow
def test_earlier_corpora_are_compared_with_though_no_worker_sees_them(bench, cluster):
    first = bench.jsonl("one.jsonl", pages(60)[:40])
    second = bench.jsonl("two.jsonl", pages(60)[20:])
    bench.run([{"dedup_minhash": {"verify": 0.8}}], first, out="a", read=SMALL)
    steps = [{"dedup_minhash": {"verify": 0.8, "against": [str(bench.folder / "a")]}}]
    bench.run(steps, second, out="here", read=SMALL)
    hidden = [bench.folder / "a", bench.folder / "here"]
    done = cluster.run(
        bench, steps, second, out="there", read=SMALL, hidden=hidden, sizes=TASK_SIZES
    )
    assert bench.bytes_of("there") == bench.bytes_of("here")
    assert "write_keys" in done and len(bench.ids("there")) < 30


@pytest.mark.slow
def test_other_settings_give_the_same_bytes_on_a_cluster(bench, cluster):
    source = bench.jsonl("in.jsonl", pages(45))
    bench.run(["document_length", C4, "dedup_exact"], source, out="out", read=SMALL)
    sets = ("document_length.min=20", "c4.min_sentences=5")
    cluster.apart.hidden = [bench.folder / "here", bench.folder / "out"]
    cluster.apart.done.clear()
    for out, where in (("here", ()), ("there", ("ray", None, cluster.url))):
        apply(bench.folder / "out", sets, bench.folder / out, Options(1, True, *where))
    assert bench.bytes_of("there") == bench.bytes_of("here") != bench.bytes_of("out")
    there = bench.folder / "there"
    assert cluster.apart.done.count("run_partition") >= 6
    assert cluster.objects(there) == set(elsewhere(there).values())


@pytest.mark.slow
def test_a_driver_that_is_killed_puts_nothing_twice_and_leaves_nothing_unnamed(
    bench, cluster, monkeypatch
):
    source = bench.jsonl("in.jsonl", pages(60))
    steps = [C4, "cut", "gopher_quality"]
    bench.run(steps, source, out="here", read=SMALL)
    commit = Ledger.commit_part
    remaining = [6]  # of some eight partitions in two stages

    def dies(*args: Any) -> None:
        remaining[0] -= 1
        if remaining[0] < 0:
            raise KeyboardInterrupt
        commit(*args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Ledger, "commit_part", dies)
        cluster.run(bench, steps, source, out="there", read=SMALL, hidden=[])
    there = bench.folder / "there"
    before = cluster.objects(there)
    assert len(before) > 10
    put: list[str] = []
    real = exchange_engine.Exchange.put
    monkeypatch.setattr(
        exchange_engine.Exchange,
        "put",
        lambda e, path, version: put.append(version) or real(e, path, version),
    )
    done = cluster.run(bench, steps, source, out="there", read=SMALL, hidden=[])
    assert 0 < done.count("run_partition") <= 5
    assert not before & {*put}
    assert bench.bytes_of("there") == bench.bytes_of("here")
    assert cluster.objects(there) == set(elsewhere(there).values())


FINEWEB = [C4, {"dedup_minhash": {"verify": 0.8}}, {"pii": {"emails": True}}]


@pytest.fixture
def fetched(monkeypatch) -> dict[str, int]:
    """The bytes that this process, the driver, gets out of exchanges, by the file's name."""
    bytes_of: dict[str, int] = {}
    get, read = Exchange.get, Exchange._read

    def counted(name: str, size: int) -> None:
        bytes_of[name] = bytes_of.get(name, 0) + size

    def noted(exchange: Exchange, version: str, path: Path) -> None:
        get(exchange, version, path)
        counted(path.name.removeprefix(TEMPORARY).partition("-")[2], path.stat().st_size)

    def range_noted(exchange: Exchange, version: str, first: int, end: int) -> bytes:
        counted("footers", end - first)
        return read(exchange, version, first, end)

    monkeypatch.setattr(Exchange, "get", noted)
    monkeypatch.setattr(Exchange, "_read", range_noted)
    return bytes_of


def test_the_driver_fetches_what_readers_get_and_little_else(bench, cluster, fetched):
    """Of each function that is mapped: nothing that a stage keeps or rejects, no keys of the
    shuffle, no shingles; sketches for the index alone."""
    source = bench.jsonl("in.jsonl", pages(45))
    sizes = Sizes(task_documents=20, slice_candidates=8)
    cluster.run(bench, FINEWEB, source, out="out", read=SMALL, hidden=[], sizes=sizes)
    out = bench.folder / "out"
    kinds = {re.sub(r"-?[0-9a-f]{5,}", "", name) for name in fetched}
    of_stages = {"part.ids.parquet", "part.sketch.parquet", "footers"}
    of_minhash = {"starts.npy", "members.u32", "sizes.u32", "rows.parquet", "matches.bin"}
    assert kinds == {"part.parquet"} | of_stages | of_minhash
    names = ("corpus", "rejected", "index")
    files = [path for name in names for path in (out / name).rglob("*.parquet")]
    carried = read_record(out)["driver"]["exchange"]
    assert carried["fetched"] == sum(fetched.values()) > sum(p.stat().st_size for p in files)
    assert carried["put"] < carried["fetched"] / 4


@pytest.mark.slow
def test_other_settings_find_the_stages_that_stand_in_the_exchange(bench, cluster, fetched):
    source = bench.jsonl("in.jsonl", pages(60))
    steps = [C4, "cut", "gopher_quality"]
    cluster.run(bench, steps, source, out="there", read=SMALL, hidden=[])
    steps[2] = {"gopher_quality": {"min_words": 60}}
    bench.run(steps, source, out="here", read=SMALL)
    there = bench.folder / "there"
    parts = len([*(there / "corpus").iterdir()])
    kept = min(there.glob("stages/00-*/part-*.kept.parquet"))
    cluster.remove(there, elsewhere(there)[str(kept)])
    done = cluster.run(bench, steps, source, out="there", read=SMALL, hidden=[])
    assert done.count("run_partition") == parts + 1 > 3
    assert bench.bytes_of("there") == bench.bytes_of("here")


@pytest.mark.slow
def test_without_the_exchange_what_lies_there_is_made_anew_and_a_line_says_so(
    bench, cluster, capsys
):
    source = bench.jsonl("in.jsonl", pages(60))
    steps = [C4, "cut", "dedup_exact"]
    cluster.run(bench, steps, source, out="there", read=SMALL, hidden=[])
    out = bench.folder / "there"
    checked = check(out, Options(1, True))
    assert checked.passed and checked.elsewhere == len(elsewhere(out)) > 6
    assert "lie in the exchange" in checked.text()
    with pytest.raises(RunFailed, match=r"part-00000.kept.parquet lies in an exchange"):
        next(read_kept(min(out.glob("stages/01-*")), 0, 10))
    (out / "corpus/part-00000.parquet").write_bytes(b"damaged")
    capsys.readouterr()
    parsed = parse(json.dumps({"steps": steps, "read": SMALL}), "recipe.yaml")
    carry_out(parsed, [str(source)], out, Options(1))
    lines = [line for line in capsys.readouterr().err.splitlines() if cluster.url in line]
    assert len(lines) == 1 and re.search(r"computed anew where .*: give --exchange", lines[0])
    bench.run(steps, source, out="here", read=SMALL)
    assert bench.bytes_of("there") == bench.bytes_of("here")


def test_a_refresh_leaves_nothing_in_the_exchange(bench, cluster):
    """Its stages go, and with them what somebody may want to be forgotten."""
    before = {*cluster.store.rglob("*")}
    home = Home(bench, [C4, "dedup_exact"])
    cluster.apart.hidden = []
    for rows in (pages(40)[:20], pages(40)[20:]):
        source = bench.jsonl(f"{len(rows)}-{rows[0]['id']}.jsonl", rows)
        home.refresh(source, engine="ray", exchange=cluster.url)
    assert len(home.rows()) > 10
    assert [*home.path.glob(f"runs/*/{NOTE}")] == [] == [*home.path.glob("runs/*/stages")]
    assert not any(path.is_file() for path in {*cluster.store.rglob("*")} - before)


KILLED = """
import os, signal, sys
from pathlib import Path
from curate.run import driver
from curate.run.ledger import Ledger
from tests.curate.conftest import Bench
from tests.curate.engines.two_machines import Apart

commit, remaining = Ledger.commit_part, [int(sys.argv[4])]

def dies(ledger, *args):
    remaining[0] -= 1
    if remaining[0] < 0:
        ledger.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    commit(ledger, *args)

Ledger.commit_part = dies
driver.open_engine = Apart().opened
steps, read = __import__("json").loads(sys.argv[3])
Bench(Path(sys.argv[1])).run(
    steps, "in.jsonl", out="there", read=read, engine="ray", exchange=sys.argv[2]
)
"""


@pytest.mark.slow
def test_what_neither_out_nor_the_exchange_has_after_a_kill_is_made_anew(bench, cluster, capsys):
    source = bench.jsonl("in.jsonl", pages(60))
    steps = [C4, "cut", "gopher_quality"]
    bench.run(steps, source, out="here", read=SMALL)
    line = [sys.executable, "-c", KILLED, bench.folder, cluster.url, json.dumps([steps, SMALL]), 6]
    killed = subprocess.run([*map(str, line)], cwd=bench.folder, env=environment())
    assert killed.returncode == -signal.SIGKILL
    there = bench.folder / "there"
    hidden = there.with_name("hidden-there")
    assert there.exists() and not hidden.exists()
    kept = sorted(there.glob("stages/00-*/part-*.kept.parquet"))
    cluster.remove(there, elsewhere(there)[str(kept[1])])
    capsys.readouterr()
    parsed = parse(json.dumps({"steps": steps, "read": SMALL}), "recipe.yaml")
    cluster.apart.done.clear()
    cluster.apart.hidden = []
    carry_out(parsed, [str(source)], there, Options(1, False, "ray", None, cluster.url))
    parts = len([*(bench.folder / "here/corpus").iterdir()])
    assert cluster.apart.done.count("run_partition") == 2 * parts - 6 + 1
    assert f"{kept[1].parent} lacks files of 1 partition: computed anew" in capsys.readouterr().err
    assert bench.bytes_of("there") == bench.bytes_of("here")


@pytest.fixture
def flaky(cluster, monkeypatch) -> Any:
    """A store that answers late and fails now and then, which workers reach as well."""
    import flaky

    fsspec.register_implementation("flaky", flaky.Flaky, clobber=True)
    monkeypatch.setattr("curate.run.driver.open_exchange", partial(open_exchange, wait=0.001))
    cluster.url = cluster.url.replace("file://", "flaky://")
    flaky.requests.clear()
    flaky.failed.clear()
    return flaky


@pytest.mark.slow
def test_a_store_that_fails_now_and_then_changes_no_byte(bench, cluster, flaky):
    source = bench.jsonl("in.jsonl", pages(45))
    steps = [C4, "dedup_exact"]
    bench.run(steps, source, out="here", read=SMALL)
    cluster.run(bench, steps, source, out="there", read=SMALL, hidden=[])
    assert len(flaky.failed) > 2
    assert bench.bytes_of("there") == bench.bytes_of("here")


@pytest.mark.slow
def test_a_corpus_goes_from_the_exchange_to_the_store_that_out_is(bench, cluster, flaky):
    """Which copies it by itself; on the driver it is no longer than it reads it."""
    source = bench.jsonl("in.jsonl", pages(45))
    bench.run([C4, "dedup_exact"], source, out="here", read=SMALL)
    recipe = parse(json.dumps({"steps": [C4, "dedup_exact"], "read": SMALL}), "recipe.yaml")
    plan, scratch, store = make_plan(recipe, [str(source)]), bench.folder / "s", bench.folder / "o"
    options = Options(1, True, "ray", None, cluster.url)
    cluster.apart.hidden = []
    for put in (True, False):
        flaky.requests.clear()
        outcome = run_plan(plan, scratch, options, f"flaky://{store}")
        assert outcome.nothing_new is not put and (outcome.published["put"] > 0) is put
        copied = [r for r in flaky.requests if r.startswith("cp_file")]
        assert len(copied) >= 6 * put and (put or not copied)
        assert not [r for r in flaky.requests if "put_file" in r and "/corpus/part" in r]
    assert not [
        p for name in ("corpus", "rejected") for p in scratch.glob(f"{name}/*") if p.exists()
    ]
    here = bench.folder / "here"
    for path in (*here.glob("corpus/*"), *here.glob("rejected/*"), here / "decisions.parquet"):
        assert (store / path.relative_to(here)).read_bytes() == path.read_bytes()
    published = json.loads((store / LIST).read_text())["files"]
    assert published["corpus/part-00000.parquet"] == [
        (store / "corpus/part-00000.parquet").stat().st_size,
        file_digest(store / "corpus/part-00000.parquet"),
    ]


@pytest.mark.slow
def test_of_a_large_corpus_that_goes_to_a_store_the_driver_reads_what_the_report_quotes(
    bench, cluster, flaky, fetched
):
    source = bench.jsonl("in.jsonl", pages(150))
    recipe = parse(json.dumps({"steps": ["gopher_quality"], "read": SMALL}), "recipe.yaml")
    plan, scratch, store = make_plan(recipe, [str(source)]), bench.folder / "s", bench.folder / "o"
    cluster.apart.hidden = []
    read = {}
    for name, most in (("one group", 1 << 30), ("a group each", 1)):
        fetched.clear()
        options = Options(1, True, "ray", None, cluster.url, sizes=Sizes(report_bytes=most))
        run_plan(plan, scratch / name, options, f"flaky://{store}/{most}")
        read[name] = [n for n in fetched if re.fullmatch(r"part-\d+\.parquet", n)]
    assert len(read["a group each"]) < len(read["one group"]) - 2
    records = [read_record(scratch / name)["figures"] for name in read]
    assert records[0] == records[1]


def test_every_function_that_is_mapped_says_which_files_it_touches():
    home = Path(curate.__file__).parent
    functions = set()
    for path in home.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(home.parent).with_suffix("").parts)
        functions |= {*re.findall(r'"(curate\.[\w.]+:[a-z_]+)"', text)}
        functions |= {f"{module}:{name}" for name in re.findall(r'\{__name__\}:([a-z_]+)"', text)}
    # A language model is trained by a worker of its own; a worker that starts calls `warm_up`; WORK
    # is what does the others elsewhere.
    functions -= {"curate.scoring.language.train:fit", "curate.run.worker.partition:warm_up"}
    # Nobody reads what a rehearsal writes; one partition is decided on where its files are.
    functions = {f for f in functions if ".rehearsal:" not in f}
    functions -= {"curate.run.resolve:resolve_one_partition"}
    functions -= {exchange_engine.WORK}
    # Experiments have no exchange: their machines see OUT.
    functions -= {"curate.experiment.runs:train_run"}
    assert len(functions) >= 10
    for function in functions:
        assert exchange_engine.files_of(function)
