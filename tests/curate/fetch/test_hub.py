"""URLs of the hub: what they name, in whatever case, without asking it."""

from __future__ import annotations

import pytest

from curate.fetch.hub import is_hub, is_repository, pinned, unpinned
from llmcurate.base.errors import UsageError

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize("url", ["hf://datasets/Org/Name", "HF://DataSets/Org/Name"])
def test_schemes_and_kinds_are_read_in_any_case_and_names_as_they_are(url: str) -> None:
    assert is_hub(url) and is_repository(url) and is_repository(f"{url}@main/")
    assert not is_repository(f"{url}/a.parquet") and not is_hub("https://huggingface.co/Org/Name")
    whole = f"hf://datasets/Org/Name@{COMMIT}/a.parquet"
    assert pinned([f"{url}@{COMMIT}/a.parquet", "b"]) == ([whole, "b"], [])
    assert unpinned(whole) == "hf://datasets/Org/Name/a.parquet"
    assert unpinned("hf://datasets/Org/Name@main/a") == "hf://datasets/Org/Name@main/a"


@pytest.mark.parametrize("url", ["hf://datasets/a", "hf://", "hf://a", "HF://datasets//b"])
def test_what_names_no_repository_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="write hf://datasets/ORG/NAME"):
        pinned([url])
