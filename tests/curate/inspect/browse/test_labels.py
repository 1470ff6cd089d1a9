"""Labels: set only from the server's own pages, kept in a file, used to train a classifier."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from curate.inspect.browse.labels import Labels
from curate.inspect.browse.library import Query, library
from curate.inspect.browse.server import Server
from llmcurate.base.errors import UsageError
from tests.curate.conftest import Bench
from tests.curate.inspect.browse.served import STEPS, get, rows


@pytest.fixture
def out(bench: Bench) -> Path:
    bench.run(STEPS, bench.jsonl("in.jsonl", rows()))
    return bench.folder / "out"


@pytest.fixture
def server(out: Path) -> Iterator[Server]:
    with library(out) as books, Server(books, 0) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def post(server: Server, id: str, label: str, **other: str) -> Any:
    """(status, Location). other: headers, and the token, in place of a page's own."""
    own = f"127.0.0.1:{server.server_port}"
    body = urlencode({"label": label, "token": other.pop("token", server.token)})
    headers = {"Host": own, "Origin": f"http://{own}", **other}
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("POST", f"/document?lang=en&id={quote(id, safe='')}", body, headers)
    answer = connection.getresponse()
    connection.close()
    return answer.status, answer.getheader("Location")


def test_a_label_redirects_back_and_appears_in_the_file_and_on_the_pages(
    server: Server, out: Path
) -> None:
    assert post(server, "d3", "good") == (303, "/document?lang=en&id=d3")
    (line,) = map(json.loads, (out / "labels.jsonl").read_text().splitlines())
    assert (line["id"], line["label"], len(line["digest"])) == ("d3", "good", 64)
    page = get(server, "/document?id=d3")[1]
    assert 'value="good" aria-keyshortcuts=g aria-pressed' in page
    assert "<span>good</span> <b>1</b>" in get(server, "/")[1]


def test_the_last_label_of_a_document_counts(server: Server, out: Path) -> None:
    for label in ("good", "bad", "", "bad"):
        assert post(server, "d3", label)[0] == 303
    post(server, "d5", "good")
    post(server, "d5", "")
    assert len((out / "labels.jsonl").read_bytes().splitlines()) == 6
    with library(out) as again:
        assert [id for id, _ in again.places(Query(label="bad"), 0, 9)] == ["d3"]
        assert again.counts(Query(label="none"))["label"] == {"good": 0, "bad": 1, "none": 69}
        assert len(again.places(Query(label="none"), 0, 99)) == 69


@pytest.mark.parametrize("other", [
    {"token": ""}, {"token": "x"}, {"Origin": "null"}, {"Origin": "http://evil.test"},
    {"Origin": ""}, {"Host": "evil.test"}, {"Host": "evil.test", "Origin": "http://evil.test"},
    {"Content-Length": "99999"}, {"Content-Length": "-1"}, {"Content-Length": "x"},
], ids=str)  # fmt: skip
def test_forged_and_malformed_requests_cannot_label(
    server: Server, out: Path, other: dict[str, str]
) -> None:
    assert post(server, "d3", "good", **other)[0] == 403
    assert not (out / "labels.jsonl").exists()


def test_only_document_pages_contain_the_label_token(server: Server) -> None:
    assert server.token in get(server, "/document?id=d3")[1]
    assert all(server.token not in get(server, path)[1] for path in ("/", "/report", "/nothing"))


def test_wrong_labels_and_documents_are_refused(server: Server, out: Path) -> None:
    assert post(server, "d3", "<b>")[0] == 400 and post(server, "no", "good")[0] == 404
    assert get(server, f"/document?id=d3&label=good&token={server.token}")[0] == 200
    assert not (out / "labels.jsonl").exists()


def test_a_file_that_cannot_be_written_is_named(server: Server, out: Path) -> None:
    (out / "labels.jsonl").mkdir()
    assert post(server, "d3", "good")[0] == 400


def test_a_damaged_file_is_named_by_its_line(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text('{"id": "a"}\n')
    with pytest.raises(UsageError, match="jsonl:1: not a label"):
        Labels(tmp_path / "labels.jsonl")


def test_writing_labels_replaces_a_link_and_leaves_its_target_alone(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "labels.jsonl"
    link.symlink_to(victim)
    Labels(link).put("a", "good", "text")
    assert not victim.exists() and len(Labels(link).of("good")) == 1


def test_labelled_documents_train_a_classifier(server: Server, out: Path, bench: Bench) -> None:
    for number in range(8):
        assert post(server, f"d{10 + number}", "good" if number % 2 else "bad")[0] == 303
    lines = (out / "labels.jsonl").read_text().splitlines()
    changed = json.loads(lines[0]) | {"id": "d30"}
    (out / "labels.jsonl").write_text("\n".join([*lines, json.dumps(changed)]) + "\n")
    done = bench.command("browse", "out", "--export-labels", "labels")
    assert done.returncode == 0 and "wrote 4 of 4 good documents" in done.stdout, done
    good = [json.loads(x) for x in (bench.folder / "labels/good.jsonl").read_text().splitlines()]
    assert [r["id"] for r in good] == ["d11", "d13", "d15", "d17"] and "mill" in good[0]["text"]
    pytest.importorskip("fasttext_pybind")
    command = done.stderr.splitlines()[-1].removeprefix("next: llmcurate ").split()
    done = bench.command(*command)
    assert done.returncode == 0 and (bench.folder / "model/quality.bin").exists(), done.stderr
