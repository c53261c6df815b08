"""Types that the configs of several stages share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator


def _null_is_no(value: Any) -> Any:
    return False if value is None else value


Switch = Annotated[bool, BeforeValidator(_null_is_no)]
"""A yes or no in corpus.yaml, where `null` means no."""
