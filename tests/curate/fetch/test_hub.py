"""hf:// URLs: parsing names in any case, without a request."""

from __future__ import annotations

import pytest

from curate.fetch.hub import is_hub, is_repository, with_commits, without_commits
from llmcurate.base.errors import UsageError

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize("url", ["hf://datasets/Org/Name", "HF://DataSets/Org/Name"])
def test_schemes_and_kinds_are_read_in_any_case_and_names_as_they_are(url: str) -> None:
    assert is_hub(url) and is_repository(url) and is_repository(f"{url}@main/")
    assert not is_repository(f"{url}/a.parquet") and not is_hub("https://huggingface.co/Org/Name")
    whole = f"hf://datasets/Org/Name@{COMMIT}/a.parquet"
    assert with_commits([f"{url}@{COMMIT}/a.parquet", "b"]) == ([whole, "b"], [])
    assert without_commits(whole) == "hf://datasets/Org/Name/a.parquet"
    assert without_commits("hf://datasets/Org/Name@main/a") == "hf://datasets/Org/Name@main/a"


@pytest.mark.parametrize("url", ["hf://datasets/a", "hf://", "hf://a", "HF://datasets//b"])
def test_a_hub_url_without_a_repository_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="write hf://datasets/ORG/NAME"):
        with_commits([url])
