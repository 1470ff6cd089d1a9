"""Times in the forms that records give them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any


def parse_date(value: Any) -> datetime | None:
    """A time from ISO text or from seconds since 1970; UTC where no zone is given."""
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, timezone.utc)
        if isinstance(value, str) and value:
            text = value.strip().replace("Z", "+00:00")
            when = datetime.fromisoformat(text)
            when = when if when.tzinfo else when.replace(tzinfo=timezone.utc)
            return when.astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError):
        pass
    return None
