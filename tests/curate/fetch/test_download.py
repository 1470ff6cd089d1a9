"""Downloads from servers that fail: files arrive whole, or the reason is reported."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import io
import json
import random
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from curate.fetch.download import Outcome, download, fetch_one
from curate.fetch.sources import Answer, Http, Refused, _checked_redirects
from curate.fetch.transfer import FileToFetch, Options, Rate, transfer
from llmcurate.base.disk.units import parse_rate
from llmcurate.base.errors import RunFailed, UsageError
from tests.curate.durability import deeds
from tests.curate.fetch.web import Web

DATA = random.Random(5).randbytes(5000)
SHA = "sha256:" + hashlib.sha256(DATA).hexdigest()


def get(url: str, target: Path, checksum: str | None = None, **options) -> Outcome:
    settings = {"tries": 3, "pause": 0.001, "seconds": 5.0} | options
    return download([FileToFetch(url, target, checksum)], **settings)


def reason(outcome: Outcome) -> str:
    assert not outcome.fetched
    (only,) = outcome.failed.values()
    return only


def is_alone(target: Path, data: bytes = DATA) -> bool:
    return target.read_bytes() == data and list(target.parent.iterdir()) == [target]


def test_a_file_comes_whole_by_an_agent_that_says_its_name(web: Web, tmp_path: Path) -> None:
    from llmcurate.version import __version__

    outcome = get(web.put("/a", DATA), tmp_path / "a")
    assert outcome.bytes == 5000 and is_alone(tmp_path / "a")
    assert web.agents == {f"llmcurate/{__version__}"}


@pytest.mark.parametrize("end", ["slow", "drop", "500", "503 0", "429 junk", "408"])
def test_a_temporary_download_failure_is_retried(web: Web, tmp_path: Path, end: str) -> None:
    assert not get(web.put("/a", DATA, end), tmp_path / "a").failed
    assert is_alone(tmp_path / "a")


def test_a_cut_file_continues_where_it_ended(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA, "cut 1000", "cut 3000", "cut 3500", "cut 4900")
    assert not get(url, tmp_path / "a", tries=2).failed  # each try brought something
    assert is_alone(tmp_path / "a")
    assert web.asked == [
        ("/a", None, None),
        *(("/a", f"bytes={n}-", '"v1"') for n in (1000, 3000, 3500, 4900)),
    ]


def test_a_download_resumes_by_modification_date_but_not_by_a_weak_etag(
    web: Web, tmp_path: Path
) -> None:
    when = "Sun, 01 Feb 2026 10:00:00 GMT"
    get(web.put("/a", DATA, "cut 10", etag=None, modified=when), tmp_path / "a")
    assert web.asked[1] == ("/a", "bytes=10-", when)
    get(web.put("/b", DATA, "cut 10", etag='W/"1"'), tmp_path / "b")
    assert web.ranges("/b") == [None, None]
    get(web.put("/c", DATA, "cut 10", etag=None), tmp_path / "c", SHA)  # its checksum will tell
    assert web.ranges("/c") == [None, "bytes=10-"]
    assert {(tmp_path / n).read_bytes() for n in "abc"} == {DATA}


def test_a_chunked_body_that_is_cut_is_not_taken_for_whole(web: Web, tmp_path: Path) -> None:
    assert not get(web.put("/a", DATA, "cut 700", chunked=True), tmp_path / "a").failed
    assert is_alone(tmp_path / "a") and web.ranges("/a") == [None, "bytes=700-"]


@pytest.mark.parametrize("if_range", [True, False], ids=["if-range", "no if-range"])
def test_a_file_that_changed_meanwhile_is_fetched_anew(
    web: Web, tmp_path: Path, if_range: bool
) -> None:
    new = "y" * 4000
    url = web.put("/a", DATA, "cut 1500", f"change {new}", if_range=if_range)
    assert not get(url, tmp_path / "a").failed
    assert is_alone(tmp_path / "a", new.encode())


def test_a_file_that_shrank_below_what_came_is_fetched_anew(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA, "cut 1500", "change short", if_range=False)
    assert not get(url, tmp_path / "a").failed
    assert is_alone(tmp_path / "a", b"short")


def test_a_server_without_ranges_sends_all_again(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA, "cut 4000", "cut 2000", ranges=False)
    assert not get(url, tmp_path / "a").failed
    assert is_alone(tmp_path / "a")


def test_a_server_without_ranges_that_always_cuts_is_given_up(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA, *["cut 4000"] * 9, ranges=False)
    assert "ended early, 1000 bytes are missing, 3 times" in reason(get(url, tmp_path / "a"))
    assert len(web.asked) == 3 and not (tmp_path / "a").exists()


def test_a_longer_length_than_the_file_has_is_no_whole_file(web: Web, tmp_path: Path) -> None:
    why = reason(get(web.put("/a", DATA, length=6000, ranges=False), tmp_path / "a"))
    assert "1000 bytes are missing" in why and not (tmp_path / "a").exists()


def test_a_shorter_length_is_found_by_the_checksum(web: Web, tmp_path: Path) -> None:
    why = reason(get(web.put("/a", DATA, length=4000), tmp_path / "a", SHA))
    assert why.startswith("the received file has sha256 ") and not list(tmp_path.iterdir())
    assert len(web.asked) == 1  # the server has no other


def test_a_damaged_part_is_found_by_the_checksum_and_fetched_anew(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA)
    (tmp_path / "a.part").write_bytes(b"x" * 100)
    note = {"url": url, "validator": None, "size": None}
    (tmp_path / "a.part.json").write_text(json.dumps(note))
    assert not get(url, tmp_path / "a", SHA).failed
    assert is_alone(tmp_path / "a") and web.ranges("/a") == ["bytes=100-", None]


def test_a_partial_download_of_another_url_is_not_resumed(web: Web, tmp_path: Path) -> None:
    first = web.put("/a", b"z" * 5000, *["cut 10", "drop", "drop", "drop"])
    reason(get(first, tmp_path / "a"))
    assert (tmp_path / "a.part").stat().st_size == 10
    assert not get(web.put("/b", DATA), tmp_path / "a").failed
    assert is_alone(tmp_path / "a") and web.ranges("/b") == [None]


@pytest.mark.parametrize("kind", ['7, "size": 1', '"v1", "size": "x"', 'null, "size": null'])
def test_a_partial_download_with_an_invalid_note_is_started_again(
    web: Web, tmp_path: Path, kind: str
) -> None:
    url = web.put("/a", DATA)
    (tmp_path / "a.part").write_bytes(b"x" * 100)
    (tmp_path / "a.part.json").write_text(f'{{"url": "{url}", "validator": {kind}}}')
    assert not get(url, tmp_path / "a").failed and is_alone(tmp_path / "a")


@pytest.mark.parametrize("note", [None, "", "[]", '{"url": 1}', '{"files": ["a.part"]}'])
def test_a_finished_file_of_that_name_is_not_taken_for_a_part(
    web: Web, tmp_path: Path, note: str | None
) -> None:
    url = web.put("/a", DATA)
    (tmp_path / "a.part").write_bytes(b"somebody's")
    if note is not None:
        (tmp_path / "a.part.json").write_text(note)
    assert reason(get(url, tmp_path / "a")).startswith(f"{tmp_path}/a.part is in the way, ")
    assert (tmp_path / "a.part").read_bytes() == b"somebody's" and not web.asked
    assert note is None or (tmp_path / "a.part.json").read_text() == note


def test_a_file_with_the_name_of_a_note_stays(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA)
    (tmp_path / "a.part.json").write_text('{"mine": 1}')
    assert f"{tmp_path}/a.part.json is in the way, " in reason(get(url, tmp_path / "a"))
    (tmp_path / "a").write_bytes(DATA)
    assert get(url, tmp_path / "a").there == [tmp_path / "a"]
    assert (tmp_path / "a.part.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "pipe"])
def test_a_link_or_anything_else_in_place_of_a_part_is_not_followed(
    web: Web, tmp_path: Path, kind: str
) -> None:
    import os

    victim, part = tmp_path / "victim", tmp_path / "a.part"
    if kind == "link":
        victim.write_text("mine")
    if "link" in kind:
        part.symlink_to(victim)
    elif kind == "folder":
        part.mkdir()
    else:
        os.mkfifo(part)
    why = reason(get(web.put("/a", DATA), tmp_path / "a"))
    assert why.startswith(f"{part} is in the way, ") and not web.asked
    assert victim.read_text() == "mine" if kind == "link" else not victim.exists()


def test_redirects_are_followed_with_the_range(web: Web, tmp_path: Path) -> None:
    web.put("/real", DATA, "cut 100")
    assert not get(web.put("/a", b"", location="/real"), tmp_path / "a").failed
    assert is_alone(tmp_path / "a") and web.ranges("/real") == [None, "bytes=100-"]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ({"location": "/a"}, "more than 10 redirects"),
        ({"location": "file:///etc/passwd"}, "redirects to, is not a web address"),
        ({"headers": {"Content-Encoding": "gzip"}}, r"sends it compressed \(gzip\)"),
    ],
    ids=["round and round", "to a file", "packed"],
)
def test_a_permanent_download_failure_is_not_retried(
    web: Web, tmp_path: Path, page: dict, why: str
) -> None:
    import re

    assert re.search(why, reason(get(web.put("/a", DATA, **page), tmp_path / "a")))
    assert len(web.asked) <= 11 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("url", "ways", "refused"),
    [
        ("https://x.test/a", ["/b", "https://y.test/c"], False),
        ("http://x.test/a", ["https://x.test/a", "/b"], False),
        ("https://x.test/a", ["https://y.test/c", "http://y.test/d"], True),
        ("https://x.test/a", ["//y.test/c"], False),
        ("HTTPS://x.test/a", ["HTTPS://y.test/c"], False),
        ("HTTPS://x.test/a", ["HTTP://y.test/c"], True),
    ],
)
def test_no_redirect_leads_out_of_https(url: str, ways: list[str], refused: bool) -> None:
    from types import SimpleNamespace

    history = [SimpleNamespace(redirect_location=way) for way in ways]
    response = SimpleNamespace(retries=SimpleNamespace(history=history))
    with pytest.raises(Refused, match=r"(?i)from https to http:") if refused else nullcontext():
        _checked_redirects(response, url)


def test_the_proxy_of_the_environment_is_asked(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", web.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    web.put("http://far.test/a", DATA)
    assert not get("http://far.test/a", tmp_path / "a").failed
    assert not get(web.put("/b", DATA), tmp_path / "b").failed
    assert [path for path, _, _ in web.asked] == ["http://far.test/a", "/b"]


def test_a_missing_file_is_asked_for_once(web: Web, tmp_path: Path) -> None:
    why = reason(get(f"{web.url}/none", tmp_path / "a"))
    assert why == "the server answers 404 Not Found"
    assert len(web.asked) == 1 and not list(tmp_path.iterdir())


def test_retry_after_is_waited_for(web: Web, tmp_path: Path) -> None:
    begun = time.monotonic()
    get(web.put("/a", DATA, "503 1"), tmp_path / "a")
    assert is_alone(tmp_path / "a") and time.monotonic() - begun >= 1


def test_a_wait_beyond_patience_is_a_failure(web: Web, tmp_path: Path) -> None:
    why = reason(get(web.put("/a", DATA, "503 7200"), tmp_path / "a"))
    assert why == "the server answers 503 Service Unavailable and asks to wait 7200 seconds"


def test_a_wait_as_long_as_patience_is_waited(web: Web, tmp_path: Path) -> None:
    how = Options(tries=2, pause=0.01, patience=0.01)
    assert transfer(FileToFetch(web.put("/a", DATA, "drop"), tmp_path / "a"), Http(), how) == 5000
    how.patience = 0.0099
    with pytest.raises(RunFailed, match="asks to wait"):
        transfer(FileToFetch(web.put("/b", DATA, "drop"), tmp_path / "b"), Http(), how)


def test_a_download_is_synced_before_it_is_renamed(web: Web, tmp_path: Path, monkeypatch) -> None:
    done = deeds(monkeypatch)
    get(web.put("/a", DATA), tmp_path / "a")
    of_file = [deed for deed in done if "json" not in deed[1]]
    assert of_file[-3:] == [
        ("sync", "a.part", 5000), ("rename", "a", 5000), ("sync", tmp_path.name, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(("size", "why"), [(4, "more bytes than"), (5, ""), (6, "1 bytes are mis")])
def test_a_file_is_as_long_as_its_source_says(tmp_path: Path, size: int, why: str) -> None:
    class Source:
        def open(self, url: str, offset: int, validator: str | None) -> Answer:
            return Answer(0, size, None, io.BytesIO(b"12345").read, lambda: None)

        def about(self, url: str) -> tuple[int | None, str | None]:
            return size, None

    expected = pytest.raises(RunFailed, match=why) if why else nullcontext()
    with expected:
        assert transfer(FileToFetch("x://a", tmp_path / "a"), Source(), Options(tries=1)) == 5


def test_a_scheme_in_upper_case_is_the_web_too(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA).replace("http://", "HTTP://")
    assert not get(url, tmp_path / "a").failed and is_alone(tmp_path / "a")


def test_a_silent_server_is_left(web: Web, tmp_path: Path) -> None:
    why = reason(get(web.put("/a", DATA, "stall"), tmp_path / "a", tries=1, seconds=0.1))
    assert why == "the server was silent for too long"


def test_a_refused_connection_is_reported_in_words(tmp_path: Path) -> None:
    why = reason(get("http://127.0.0.1:9/a", tmp_path / "a"))
    assert why == "no connection: Connection refused, 3 times in a row"


def test_fetching_one_file_fails_quickly_without_a_network(tmp_path: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(RunFailed, match=r"no such host, or no network$"):
        fetch_one(FileToFetch("http://no-host.invalid/a", tmp_path / "a"), tries=5, pause=30)
    assert time.monotonic() - begun < 25


def test_a_complete_file_is_not_fetched_again(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA)
    for checksum in (None, None, SHA):
        get(url, tmp_path / "a", checksum)
    assert len(web.asked) == 1
    (tmp_path / "a").write_bytes(b"damaged")
    assert get(url, tmp_path / "a", SHA).bytes == 5000 and is_alone(tmp_path / "a")


def test_a_file_of_more_bytes_than_allowed_is_refused(web: Web, tmp_path: Path) -> None:
    exactly = FileToFetch(web.put("/b", DATA, chunked=True), tmp_path / "b", most=5000)
    assert download([exactly]).fetched == [tmp_path / "b"]
    (tmp_path / "b").unlink()
    wanted = FileToFetch(web.put("/a", DATA, chunked=True), tmp_path / "a", most=4999)
    assert "more than the expected 4999 bytes" in reason(download([wanted]))
    assert not list(tmp_path.iterdir())


def test_offline_forbids_what_is_missing_only(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = web.put("/a", DATA)
    get(url, tmp_path / "a")
    monkeypatch.setenv("LLMCURATE_OFFLINE", "1")
    assert get(url, tmp_path / "a").there
    with pytest.raises(UsageError, match="LLMCURATE_OFFLINE is set and forbids fetching"):
        get(url, tmp_path / "b")


def test_one_failed_download_does_not_stop_the_others(web: Web, tmp_path: Path) -> None:
    files = [FileToFetch(web.put(f"/{n}", DATA + b"%d" % n), tmp_path / f"{n}") for n in range(8)]
    del web.pages["/3"]
    outcome = download(files, tries=2, parallel=4, pause=0.001)
    assert list(outcome.failed) == [files[3].url]
    assert outcome.fetched == [f.target for f in files if f != files[3]]
    assert (tmp_path / "7").read_bytes() == DATA + b"7"


def test_a_full_disk_ends_all_of_it_in_one_line(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(size: int) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "0.part"))

    def opened(*arguments: Any) -> Answer:
        return dataclasses.replace(opens(*arguments), read=full)

    opens = Http.open
    monkeypatch.setattr(Http, "open", opened)
    files = [FileToFetch(web.put(f"/{n}", DATA), tmp_path / f"{n}") for n in range(20)]
    with pytest.raises(RunFailed, match="disk full while writing"):
        download(files, tries=1)
    assert len(web.asked) < 20


def test_a_second_process_does_not_write_into_the_same_part(web: Web, tmp_path: Path) -> None:
    import fcntl

    with open(tmp_path / "a.part", "wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        why = reason(get(web.put("/a", DATA), tmp_path / "a"))
    assert why == "another process is fetching it"


def test_after_kill_9_it_continues(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA * 40)
    command = [sys.executable, "-m", "curate.cli.app", "fetch", url, "-o", str(tmp_path)]
    slow = subprocess.Popen([*command, "--rate", "40kB/s"], stderr=subprocess.DEVNULL)
    part = tmp_path / "a.part"
    while not part.exists() or part.stat().st_size < 10_000:
        assert slow.poll() is None
        time.sleep(0.005)
    slow.send_signal(signal.SIGKILL)
    slow.wait()
    there = part.stat().st_size
    assert json.loads((tmp_path / "a.part.json").read_text())["size"] == 200_000
    fetch_one(FileToFetch(url, tmp_path / "a"))
    assert is_alone(tmp_path / "a", DATA * 40)
    assert web.ranges("/a") == [None, f"bytes={there}-"]


def test_ctrl_c_ends_it_soon_and_says_that_it_continues(web: Web, tmp_path: Path) -> None:
    url = web.put("/a", DATA * 40)
    command = [sys.executable, "-m", "curate.cli.app", "fetch", url, "-o", str(tmp_path)]
    slow = subprocess.Popen([*command, "--rate", "10kB/s"], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "a.part.json").exists():
        assert slow.poll() is None
        time.sleep(0.005)
    slow.send_signal(signal.SIGINT)
    _, errors = slow.communicate(timeout=10)
    assert (slow.returncode, errors) == (130, "stopped; run the same command to resume\n")
    assert (tmp_path / "a.part").exists()


class Shaky(MemoryFileSystem):
    """A store whose reads fail while `failures_left` says so."""

    protocol = "shaky"
    failures_left = 0

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.replace("shaky://", "memory://"))

    def _open(self, path: str, mode: str = "rb", **more):
        file = super()._open(path, mode, **more)
        read = file.read

        def failing(size: int = -1) -> bytes:
            if Shaky.failures_left and file.tell() > 0:
                Shaky.failures_left -= 1
                raise RuntimeError("SlowDown: please reduce your request rate")
            return read(min(size, 2000))

        if mode == "rb":
            file.read = failing
        return file


def test_a_store_is_resumed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LLMCURATE_OFFLINE", raising=False)
    fsspec.register_implementation("shaky", Shaky, clobber=True)
    fsspec.filesystem("shaky").pipe("/bucket/a", DATA)
    Shaky.failures_left = 1
    assert not get("shaky://bucket/a", tmp_path / "a", SHA).failed
    assert is_alone(tmp_path / "a") and Shaky.failures_left == 0
    assert reason(get("shaky://bucket/none", tmp_path / "b")) == "there is no such file"
    with pytest.raises(UsageError, match="nosuch"):
        get("nosuch://bucket/a", tmp_path / "c")


def test_the_limit_holds_for_all_together() -> None:
    now = [0.0]
    waits: list[float] = []
    rate = Rate(1000, waits.append, lambda: now[0])
    for _ in range(3):  # three connections at the same moment
        rate.pace(500)
    assert waits == [0.5, 1.0, 1.5]
    now[0] = 10.0  # what was not used before is not made up for
    rate.pace(1000)
    assert waits[-1] == 1.0 and rate.block == 250


@pytest.mark.parametrize(
    ("text", "rate"), [("5MB/s", 5e6), ("500kB/s", 5e5), ("1.5MiB", 1.5 * 2**20), ("100", 100)]
)
def test_rates_are_read_as_people_write_them(text: str, rate: float) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0", "-5MB/s", "5 MB/h"])
def test_an_invalid_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give bytes per second"):
        parse_rate(text)
