"""`llmcurate fetch`: lists, file names, messages, exit codes."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from curate.fetch.file_lists import is_list, wanted_files
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.command_line import run_here
from tests.curate.fetch.web import Web

PATHS = ["crawl-data/CC-MAIN-2026-01/a.warc.gz", "crawl-data/CC-MAIN-2026-01/b.warc.gz"]
SUM = hashlib.sha256(b"one").hexdigest()


def listed(tmp_path: Path, text: str, **options) -> list[tuple[str, str, str | None]]:
    """(URL, path below the folder, checksum) of a list's files."""
    (tmp_path / "list").write_text(text)
    files = wanted_files([str(tmp_path / "list")], Path("D"), **options)
    return [(f.url, f.target.relative_to("D").as_posix(), f.checksum) for f in files]


@pytest.mark.parametrize("where", ["file", "URL"])
def test_a_list_of_common_crawl_is_fetched_below_its_base(
    web: Web, tmp_path: Path, where: str
) -> None:
    for path in PATHS:
        web.put(f"/{path}", path.encode())
    packed = gzip.compress("\n".join(PATHS).encode())
    (tmp_path / "warc.paths.gz").write_bytes(packed)
    source = web.put("/warc.paths.gz", packed) if where == "URL" else tmp_path / "warc.paths.gz"
    out = tmp_path / "out"
    line = ["fetch", source, "--base", web.url, "-o", out, "--json"]
    done = run_here(*line)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["files"], summary["fetched"], summary["there"], summary["failed"]) == (
        2,
        2,
        0,
        [],
    )
    assert summary["bytes"] == sum(map(len, PATHS))
    assert [Path(p).read_text() for p in summary["paths"]] == PATHS
    assert sorted(p.name for p in out.iterdir()) == ["a.warc.gz", "b.warc.gz"]
    again = json.loads(run_here(*line).stdout)
    assert (again["fetched"], again["there"], again["paths"]) == (0, 2, summary["paths"])


def test_failed_urls_are_named_and_the_others_fetched(web: Web, tmp_path: Path) -> None:
    urls = [web.put("/a", b"one"), f"{web.url}/none", web.put("/b", b"two", "403")]
    (tmp_path / "list").write_text("".join(f"{u}\n" for u in [*urls, web.put("/c", b"three")]))
    done = run_here("fetch", tmp_path / "list", "-o", tmp_path / "out")
    assert done.returncode == 1
    assert f"{urls[1]}: the server answers 404 Not Found\n" in done.stderr
    assert f"{urls[2]}: the server answers 403 Forbidden\n" in done.stderr
    assert "2 of 4 files could not be fetched; run the same command to retry" in done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["a", "c"]
    again = run_here("fetch", tmp_path / "list", "-o", tmp_path / "out", "--json")
    summary = json.loads(again.stdout.splitlines()[-1])
    assert again.returncode == 1 and (summary["fetched"], summary["there"]) == (1, 2)  # b came now
    assert summary["failed"] == [{"url": urls[1], "reason": "the server answers 404 Not Found"}]
    assert web.ranges("/a") == [None]


def test_a_file_that_does_not_match_its_listed_checksum_is_a_failure(
    web: Web, tmp_path: Path
) -> None:
    (tmp_path / "sums").write_text(f"{SUM}  {web.put('/a', b'one')}\n{SUM} *b\n")
    web.put("/b", b"two")
    done = run_here("fetch", tmp_path / "sums", "-o", tmp_path / "out", "--base", web.url)
    assert done.returncode == 1 and f"/b: the received file has sha256 {'3fc4ccfe'}" in done.stderr
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a"]


def test_offline_is_wrong_use(web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")
    for url in (web.put("/a", b"one"), web.put("/warc.paths.gz", b"a")):
        done = run_here("fetch", url, "-o", tmp_path / "out")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "LLMCURATE_OFFLINE is set and forbids fetching" in done.stderr
    assert web.asked == []


@pytest.mark.parametrize(
    ("line", "checksum"),
    [
        ("https://x.test/f", None),
        (f"https://x.test/f  {SUM}", f"sha256:{SUM}"),
        (f"{SUM.upper()}  https://x.test/f", f"sha256:{SUM}"),
        (f"https://x.test/f sha256:{SUM}", f"sha256:{SUM}"),
        (f"SHA256:{SUM.upper()} https://x.test/f", f"sha256:{SUM}"),
        (f"https://x.test/f Md5:{SUM[:32]}", f"md5:{SUM[:32]}"),
        (f"md5:{SUM[:32]} https://x.test/f", f"md5:{SUM[:32]}"),
        (f"{SUM[:32]} *f", f"md5:{SUM[:32]}"),
        ("  f  ", None),
        ("# what this is\n\nf\r", None),
    ],
)
def test_a_line_is_a_url_or_path_and_a_checksum_or_none(
    tmp_path: Path, line: str, checksum: str | None
) -> None:
    assert listed(tmp_path, line, base="https://x.test") == [("https://x.test/f", "f", checksum)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("f", "'f' is not a URL; for paths give the URL they are relative to, such as --base http"),
        ("https://x.test/a https://x.test/b", "give one URL per line"),
        (SUM, "give one URL per line"),
        (f"https://x.test/a sha256:{SUM[:32]}", "is not a sha256"),
        ("https://x.test/a\0", "give one URL per line"),
        ("https://x.test/", "names no file"),
        ("http://[x/a", "is not a URL: Invalid IPv6"),
        ("https://x.test/../../etc/passwd", "its path is not a valid file name"),
        ("https://x.test/a/f\nhttps://x.test/b/f", "would both be called f; --keep-paths"),
        ("https://x.test/a/F\nhttps://x.test/b/f", "would both be called f; --keep-paths"),
        (f"https://x.test/a {SUM}\nhttps://x.test/a {SUM[::-1]}", "with different checksums"),
        ("", "nothing to fetch"),
    ],
)
def test_a_wrong_list_is_refused_in_one_line(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        listed(tmp_path, line)
    assert why in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "lists"),
    [
        ("https://x.test/warc.paths.gz", True), ("HTTPS://x.test/WARC.PATHS.GZ?v=1", True),
        ("https://x.test/MD5SUMS", True), ("s3://b/a.SHA256", True), ("https://x.test/a", False),
        ("https://x.test/a.warc.gz?a.txt", False), ("a.warc.gz", True), ("C:/a.txt", True),
    ],
)  # fmt: skip
def test_a_url_is_a_list_by_its_ending_and_a_file_always_is(argument: str, lists: bool) -> None:
    assert is_list(argument) == lists


def test_kept_paths_stand_below_the_host(tmp_path: Path) -> None:
    text = "https://me:secret@x.test:8/a/f\nhttps://x.test/b/f?v=1\ns3://bucket/b/f\n"
    names = [name for _, name, _ in listed(tmp_path, text, keep_paths=True)]
    assert names == ["x.test_8/a/f", "x.test/b/f", "bucket/b/f"]


def test_limit_takes_the_first_files_without_repeats(tmp_path: Path) -> None:
    text = "https://x.test/a\nhttps://x.test/a\nhttps://x.test/b\nhttps://x.test/c\n"
    assert [name for _, name, _ in listed(tmp_path, text, limit=2)] == ["a", "b"]


@pytest.mark.parametrize(
    "data", [b"\x1f\x8bdamaged", gzip.compress(b"x" * 9999)[:-20]], ids=["no gzip", "cut off"]
)
def test_a_damaged_list_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "list").write_bytes(data)
    done = run_here("fetch", tmp_path / "list", "-o", tmp_path / "out")
    assert done.returncode == 2 and "a damaged .gz file" in done.stderr


def test_a_name_that_is_neither_url_nor_file_is_refused(tmp_path: Path) -> None:
    done = run_here("fetch", "nowhere.txt", "-o", tmp_path / "out")
    assert done.returncode == 2
    assert "nowhere.txt: No such file or directory; give a URL (https://...)" in done.stderr


@pytest.mark.parametrize("options", [["--rate", "fast"], ["--tries", "0"], ["--parallel", "0"]])
def test_wrong_options_are_wrong_use(tmp_path: Path, options: list[str]) -> None:
    done = run_here("fetch", "https://x.test/a", "-o", tmp_path, *options)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_an_input_on_the_web_is_to_be_fetched_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "aiohttp", None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    done = run_here("stats", "https://x.test/a.warc.gz")
    assert done.returncode == 2 and "in a run with --set read.fetch=DIR" in done.stderr


@pytest.mark.parametrize(
    "line",
    [
        "file:///{secret}",
        "FILE:///{secret}",
        "local:///{secret}",
        "simplecache::file:///{secret}",
        "https://h.test/x::file:///{secret}",
        "file:{secret}",
        "zip://a::/{secret}",
        "reference://{secret}",
        "git://x:main@a",
    ],
)
def test_a_list_from_elsewhere_names_no_file_of_this_machine(
    web: Web, tmp_path: Path, line: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    text = f"{web.url}/ok\n{line.format(secret=secret)}\n"
    source = web.put("/files.txt", text.encode())
    done = run_here("fetch", source, "--base", web.url, "-o", tmp_path / "out")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{source}:2: " in done.stderr and not (tmp_path / "out").exists()


def test_a_list_of_this_machine_may_name_its_files(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("mine")
    (tmp_path / "list").write_text(f"file://{tmp_path}/own\n")
    done = run_here("fetch", tmp_path / "list", "-o", tmp_path / "out")
    assert done.returncode == 0 and (tmp_path / "out/own").read_text() == "mine", done.stderr


def test_a_list_of_inputs_from_elsewhere_names_no_file_of_this_machine(
    web: Web, tmp_path: Path
) -> None:
    from curate.formats.fetched import listed as inputs

    for line in ("/etc/hostname", "file:///etc/hostname", "simplecache::file:///etc/hostname"):
        source = web.put("/warc.paths", f"crawl-data/a.gz\n\n{line}\n".encode())
        with pytest.raises(UsageError, match=r"warc\.paths:3: a remote list"):
            inputs(source)
    (tmp_path / "own.paths").write_text("/etc/hostname\nfile:///etc/hostname\n")
    assert inputs(str(tmp_path / "own.paths")) == ["/etc/hostname", "file:///etc/hostname"]


def test_a_file_named_like_the_temporary_file_of_another_is_refused(tmp_path: Path) -> None:
    for other in ("x.part", "x.part.json"):
        with pytest.raises(
            UsageError, match=rf"x/{other} would be called {other}, the .* of .*/x:"
        ):
            wanted_files([f"https://h.test/x/{other}", "https://h.test/x"], tmp_path)


def test_a_link_in_the_folder_leads_no_file_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "out/h.test").symlink_to(tmp_path / "victim")
    with pytest.raises(RunFailed, match=r"leads out of .* through a link"):
        wanted_files(["https://h.test/x"], tmp_path / "out", keep_paths=True)


def test_joined_lists_hold_no_byte_order_marks(tmp_path: Path) -> None:
    from curate.fetch.file_lists import read_list
    from curate.formats.fetched import listed as inputs

    lines = ["https://h.test/a", "https://h.test/b"]
    path = tmp_path / "list.paths"
    path.write_text("".join(f"\ufeff{line}\n" for line in lines))
    assert inputs(str(path)) == lines
    assert read_list(str(path), None, "list", "sha256").decode().split() == lines
    assert [url for url, *_ in listed(tmp_path, path.read_text())] == lines
