"""corpus.yaml as typed settings. A stage's own section is validated by the stage's config, so `pipeline` stays a mapping here."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from rag_eval_pipeline.text.entities import EXTRA_MODEL, missing_model

Language = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*$")]
LAYERS = ("pipeline", "evaluate", "ledger", "gates", "publish")
PIPELINE_SECTIONS = (
    "source", "parsing", "enriching", "metadata", "cleaning", "dedup", "pii", "chunking", "embedding", "indexing", "querying",
    "filtering", "retrieval", "fusion", "reranking", "context", "answering", "judging",
)  # fmt: skip
"""Sections that `pipeline` may hold: one a room."""


class Section(BaseModel):
    """A frozen section that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Evaluate(Section):
    """What is measured: cut-offs, the retriever that is served, the split, slices."""

    k: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = (1, 3, 5, 10)
    serve: str | None = None
    serve_k: int = Field(default=10, ge=1, le=1_000_000)
    split: Literal["dev", "calibration", "test", "monitor"] = "test"
    subset: Literal["smoke"] | None = None
    subset_size: int = Field(default=50, ge=1, le=1_000_000)
    subset_seed: int = Field(default=0, ge=0)
    leakage: Literal["warn", "refuse"] = "warn"
    tokenizer: Literal["bundled", "words", "chars"] = "bundled"
    slices: tuple[Literal["intent", "language", "doc_class", "answerable", "tags"], ...] = (
        "intent",
        "language",
        "doc_class",
    )
    budgets: tuple[Annotated[int, Field(ge=1)], ...] = (500, 1500)
    tie_policy: Literal["run", "trec", "id"] = "run"
    rel_level: int = 1

    @field_validator("k")
    @classmethod
    def _some(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value:
            raise ValueError("at least one cut-off")
        return value

    @property
    def cuts(self) -> tuple[int, ...]:
        """Every k that is measured: those asked for, and the one that is served."""
        return tuple(sorted({*self.k, self.serve_k}))


class Ledger(Section):
    """When an output holds a piece of evidence, and how far causes are priced."""

    min_similarity: float = Field(default=0.6, gt=0, le=1)
    hold: float = Field(default=0.9, gt=0, le=1)
    normalise: Literal["none", "nfc", "nfc+ws", "nfc+ws+casefold"] = "nfc+ws"
    entities: Literal["off", "spacy"] = "off"
    repairs: Literal["off", "single", "shapley"] = "single"
    entity_models: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _models(self) -> Ledger:
        if self.entities == "spacy":
            for language, model in (self.entity_models or {"en": EXTRA_MODEL}).items():
                if why := missing_model(language, model):
                    raise ValueError(why)
        return self


def _no_switch(value: Any) -> Any:
    """`min: true` is 1.0 to pydantic, and surely a slip."""
    if isinstance(value, bool):
        raise ValueError("a number")
    return value


Limit = Annotated[float, BeforeValidator(_no_switch), Field(allow_inf_nan=False)]
Cut = Annotated[int, BeforeValidator(_no_switch), Field(ge=0, le=1_000_000)]


class Rule(Section):
    """One pre-registered release rule. Decided in `release`; whether it can decide anything, in `stages.rules`."""

    metric: str
    k: Cut = 0
    unit: str = ""
    retriever: str | None = None
    slice: dict[str, str] = Field(default_factory=dict)
    min: Limit | None = None
    max: Limit | None = None
    max_drop: Limit | None = Field(default=None, ge=0)
    max_rise: Limit | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _some_limit(self) -> Rule:
        if (self.min, self.max, self.max_drop, self.max_rise) == (None, None, None, None):
            raise ValueError("a rule needs a limit: min, max, max_drop or max_rise")
        return self


class Gates(Section):
    """Release rules and what they compare with."""

    baseline: str = "previous"
    min_coverage: float = Field(default=0.9, ge=0, le=1)
    rules: tuple[Rule, ...] = ()


class Publish(Section):
    """What the DuckDB file may show."""

    source_text: bool = False


class Settings(Section):
    """corpus.yaml with a candidate pipeline laid over it."""

    languages: tuple[Language, ...] = Field(("en", "es"), min_length=1)
    pipeline: dict[str, Any] = Field(default_factory=dict)
    evaluate: Evaluate = Evaluate()
    ledger: Ledger = Ledger()
    gates: Gates = Gates()
    publish: Publish = Publish()
