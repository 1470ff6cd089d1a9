"""Stack Exchange dumps: a question and its answers, best first, are one document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.curate.formats.portions import corrupt, events, rows, skipped
from tests.curate.lab.formats.stackexchange_dumps import POSTS, dump, packed, post


def test_answers_follow_their_question_by_score(tmp_path: Path) -> None:
    folder = tmp_path / "mills.stackexchange.com"
    folder.mkdir()
    (folder / "Posts.xml").write_text(dump(POSTS), encoding="utf-8")
    found = events(folder / "Posts.xml")
    first, second = rows(found)
    assert first.text == (
        "Q:\n\nQuestion 1?\n\nHow do I grind?\n\n"
        "A:\n\nThe better:\n\nif a < b:\n    grind()\n\nA:\n\nThe worse."
    )
    assert second.text == "Q:\n\nQuestion 2?\n\nLonely & old"
    assert first.url == "https://mills.stackexchange.com/questions/1"
    assert first.id == "mills.stackexchange.com/1"
    assert first.date is not None and first.date.isoformat() == "2011-01-01T00:00:00+00:00"
    assert first.extra is not None
    assert json.loads(first.extra["stackexchange.scores"]) == [7, 2]
    assert first.extra["stackexchange.score"] == 5 and first.extra["stackexchange.accepted"]
    assert skipped(found) == ["stackexchange:answer-without-question", "stackexchange:type-5"]


def test_answers_with_equal_scores_are_sorted_by_age(tmp_path: Path) -> None:
    text = post(9, "c", 1, 2) + post(5, "b", 1, 2) + post(1, "a") + post(7, "d", 1, -1)
    (tmp_path / "Posts.xml").write_text(dump(text), encoding="utf-8")
    (row,) = rows(events(tmp_path / "Posts.xml"))
    assert row.text == "Q:\n\nQuestion 1?\n\na\n\nA:\n\nb\n\nA:\n\nc\n\nA:\n\nd"


def test_a_7z_file_is_read_as_its_posts(tmp_path: Path) -> None:
    members = {"Badges.xml": "<badges />", "Posts.xml": dump(POSTS)}
    found = events(packed(tmp_path / "mills.stackexchange.com.7z", members))
    (tmp_path / "Posts.xml").write_text(dump(POSTS), encoding="utf-8")
    assert [r.text for r in rows(found)] == [r.text for r in rows(events(tmp_path / "Posts.xml"))]
    assert rows(found)[0].url == "https://mills.stackexchange.com/questions/1"


def test_posts_are_read_wherever_lines_end(tmp_path: Path) -> None:
    lines = dump(POSTS).replace("\r\n", "")
    spread = dump(POSTS).replace(" Score=", "\nScore=").replace(" />", ' New="a /> b"></row>')
    found = {}
    for name, text in (("as.xml", dump(POSTS)), ("one.xml", lines), ("many.xml", spread)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        found[name] = [row.text for row in rows(events(tmp_path / name))]
    assert len(found["as.xml"]) == 2
    assert found["one.xml"] == found["many.xml"] == found["as.xml"]


def test_a_bad_post_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    bad = '  <row Id="x" PostTypeId="1" />\n  <row Id="3" Body="&bomb;" />\n'
    (tmp_path / "Posts.xml").write_text(dump(bad + post(1, "<p>Whole</p>")), encoding="utf-8")
    found = events(tmp_path / "Posts.xml")
    assert len(rows(found)) == 1
    assert [what.partition(":")[0] for what in corrupt(found)] == ["not a post", "not XML"]


def test_a_post_beyond_the_limit_is_rejected(tmp_path: Path) -> None:
    posts = post(1, "x" * 5000) + post(2, "<p>Short</p>")
    (tmp_path / "Posts.xml").write_text(dump(posts), encoding="utf-8")
    long, short = rows(events(tmp_path / "Posts.xml", max_record=2000))
    assert long.reject is not None and long.reject[0] == "record_too_large"
    assert short.text == "Q:\n\nQuestion 2?\n\nShort"


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda data: data[:40] + bytes(20) + data[60:], "7z: "),
        (lambda data: data[: len(data) // 2], "7z: "),
    ],
)
def test_a_damaged_7z_file_is_named(tmp_path: Path, spoil, what: str) -> None:
    path = packed(tmp_path / "a.7z", {"Posts.xml": dump(POSTS)})
    path.write_bytes(spoil(path.read_bytes()))
    found = events(path)
    assert not rows(found) and corrupt(found)[0].startswith(what)


def test_a_7z_bomb_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.7z", {"Posts.xml": " " * (70 << 20)})
    assert corrupt(events(path)) == ["7z: it would unpack to more than 200 times its size"]


def test_a_7z_file_of_another_kind_is_passed_over_in_a_folder(tmp_path: Path) -> None:
    from curate.formats.listing import find_files

    packed(tmp_path / "other.7z", {"notes.txt": "nothing"})
    packed(tmp_path / "site.7z", {"Posts.xml": dump("")})
    listed = find_files([str(tmp_path)])
    assert [f.rel for f in listed.files] == ["site.7z"]
    assert listed.notices == [f"skipped {tmp_path}/other.7z: no Posts.xml in it: unpack it first"]
