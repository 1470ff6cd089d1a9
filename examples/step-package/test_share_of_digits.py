"""The documents that share_of_digits drops and keeps."""

from curate.documents.documents import documents
from curate.steps.recipe import make_step


def test_documents_of_mostly_digits_are_dropped_with_their_share() -> None:
    step = make_step("share_of_digits", {"max_share": 0.5})
    texts = ["The 2nd of 3 words.", "1234 5678"]
    docs = documents({"id": ["prose", "table"], "text": texts})
    kept, rejected = step.apply(docs.within(step.label)).split()
    assert kept["id"].to_pylist() == ["prose"]
    assert rejected["rule"].to_pylist() == ["too_high"]
    assert rejected["value"].to_pylist() == [8 / 9]
