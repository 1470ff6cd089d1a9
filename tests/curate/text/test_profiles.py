"""Language profiles: those shipped and the user's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate.steps.recipe import make_step
from curate.text import languages
from curate.text.languages import chosen, shipped
from llmcurate.base.errors import UsageError

STEPS = ("gopher_quality", "gopher_repetition", "fineweb_quality", "language", "c4")


@pytest.mark.parametrize("label", ["th", "tha", "tha_Thai", "th-TH", "TH", "th_TH", "Tha", "TH-x"])
def test_a_profile_is_known_by_any_label_of_its_language(label: str) -> None:
    profile = chosen("auto").of(label)
    assert profile is not None and profile.name == "th"


@pytest.mark.parametrize("label", ["en", "eng_Latn", "nl", None, ""])
def test_english_and_what_has_no_profile_keep_the_rules_own_limits(label: str | None) -> None:
    assert chosen("auto").of(label) is None


def test_a_named_profile_is_for_every_document() -> None:
    named = chosen("tha")
    assert {p.name for p in map(named.of, ("th", "en", None)) if p} == {"th"}
    assert chosen("none").of("th") is None


def test_every_shipped_limit_is_a_setting_of_its_step() -> None:
    for profile in shipped().values():
        assert set(profile.limits) <= set(STEPS), profile.name
        for name in profile.limits:
            make_step(name, {"profile": profile.name}).limits()


def test_the_languages_of_the_issue_have_profiles() -> None:
    names = {profile.name for profile in shipped().values()}
    assert names >= {"en", "th", "zh", "ja", "de", "fr", "ru", "hi", "ta", "bn", "lo", "km", "my"}
    assert {p.name for p in shipped().values() if p.clusters} == {
        "th",
        "zh",
        "ja",
        "lo",
        "km",
        "my",
    }


def test_ones_own_profile_comes_before_the_shipped_one(tmp_path: Path) -> None:
    (tmp_path / "profiles.yaml").write_text("de: {stop_words: [zu]}\n", "utf-8")
    own = chosen(str(tmp_path))
    german, thai = own.of("deu_Latn"), own.of("th")
    assert german is not None and german.stop_words == ("zu",) and not german.limits
    assert thai == shipped()["tha"]
    # Of one profile in the file it is clear which is meant where nothing says the language.
    assert own.of(None) == german
    assert languages.read(tmp_path) == languages.read(tmp_path / "profiles.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "it holds no profile"),
        ("de: [", "not YAML"),
        ("de: 3", "profile de must be a mapping"),
        ("de: {stopwords: [a]}", "profile de: unknown key 'stopwords'"),
        ("de: {stop_words: [3]}", "stop_words must be a list of words"),
        ("th: {clusters: 0.5}", "clusters must be a number from 1 to 20"),
        ("th: {limits: {gopher_quality: 3}}", "limits must hold settings by step"),
    ],
)
def test_an_invalid_profile_file_is_named_with_its_mistake(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError, match=message) as error:
        chosen(str(path))
    assert str(path) in str(error.value)


def test_a_name_without_a_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match=r"profile tlh: neither a language with a profile \(bn, de,"
    ):
        chosen("tlh")


@pytest.mark.parametrize(("key", "value"), [("max_wrds", "9"), ("max_words", "[many]")])
def test_a_limit_that_the_step_does_not_have_is_named(key: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"nl: {{limits: {{gopher_quality: {{{key}: {value}}}}}}}\n", "utf-8")
    with pytest.raises(UsageError, match=rf"profile nl: .*gopher_quality\.{key}"):
        make_step("gopher_quality", {"profile": str(path)}).limits()
