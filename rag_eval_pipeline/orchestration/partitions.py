"""The one partition dimension: the subject of an evaluation."""

import dagster as dg

SUBJECTS = dg.DynamicPartitionsDefinition(name="corpus_version")
"""Keys are `corpus@version` or `corpus@version#pipeline`; `rag-eval register` and the sensor add them."""
