"""Declare a measure: its range, direction, unit and meaning; and the reasons why a value is missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


class Unmeasured(ValueError):  # noqa: N818 - a state, not a fault
    """A value that cannot be measured; `reason` becomes the row's status, its value is NULL."""

    def __init__(self, reason: str, message: str = "") -> None:
        self.reason = reason
        super().__init__(message or reason)


class Valued:
    """What has a `value`, or a `status` that says why it has none."""

    value: float | None
    status: str

    def require(self) -> float:
        """The value.

        Raises:
            Unmeasured: there is none.
        """
        if self.value is None:
            raise Unmeasured(self.status)
        return self.value


@dataclass(frozen=True)
class Metric:
    """A measure as people see it. `low` and `high` bound a single item's value and may be infinite."""

    name: str
    description: str
    better: Literal["higher", "lower", "neither"]
    low: float = 0.0
    high: float = 1.0
    unit: str = "ratio"
