"""Tables of the judging room: verdicts on claims, judgments of answers, and what shakes a judge."""

from rag_eval_pipeline.warehouse.table import Table, boolean, integer, number, string, strings, table


@table("claim_verdicts", "One row a claim and verifier; a verifier that failed has a row without a label.")
class ClaimVerdicts(Table):
    answer_id = string("Answer", key=True)
    claim_id = string("Claim of it", key=True)
    verifier = string("lexical | nli | hhem | llm:<model>", key=True)
    label = string("supported | contradicted | unsupported; NULL where status says why", null=True)
    status = string("judged | judge_error, or why the judge gave none: over_budget, timeout, http_429 …")
    score = number("How sure the verifier is, in its own unit", null=True)
    reason = string("A short code, or the judge's words", privacy="masked", null=True)
    passages = strings("Places in the context that the label stands on, from 1")
    prompt_hash = string("Under which the judge's reply is stored; NULL where nobody was asked", null=True)


@table("judge_evals", "One row an answer, judge and rubric; empty where no judge is configured.")
class JudgeEvals(Table):
    answer_id = string("Answer", key=True)
    judge = string("llm:<model>", key=True)
    rubric = string("Name, version and hash of what was asked", key=True)
    query_id = string("Query")
    score = integer("0 (useless) to 5 (nothing to add); NULL where status says why", null=True)
    weighted_score = number("Mean of the ratings by their probabilities, where the endpoint gives them", null=True)
    reason = string("The judge's words; a line an item", privacy="masked", null=True)
    is_unsatisfactory = boolean("Whether the answer fails", null=True)
    failure_code = string("Why it fails; NULL where it does not", null=True)
    items = string(
        "Rubrics citation and nugget: a JSON list of [claim, place in the context, supports] or [gold claim, assignment]",
        null=True,
    )
    status = string("ok, or why there is no judgment: over_budget, timeout, schema_violation, inconsistent …")
    prompt_hash = string("Under which the reply is stored; of several prompts the first")
    model = string("As the endpoint names it", null=True)
    input_tokens = integer("Tokens read", unit="tokens", null=True)
    output_tokens = integer("Tokens written", unit="tokens", null=True)
    cost = number("Price, in the currency of the prices", null=True)
    latency_s = number("Time to the reply", unit="s", null=True, volatile=True)
    day = string("Day of the reply, UTC", null=True)


@table("judge_probes", "One row a judgment that was shaken on purpose: did the judge stay with what it had said?")
class JudgeProbes(Table):
    answer_id = string("Answer; of orders the first of two", key=True)
    judge = string("llm:<model>", key=True)
    kind = string("injection | repeat | order", key=True)
    probe = string("Which injection, which repetition, or the other answer", key=True)
    query_id = string("Query")
    expected = string("What it had said", null=True)
    found = string("What it said then", null=True)
    held = boolean("Whether both are the same; NULL where status says why", null=True)
    status = string("ok, or why there is no judgment")
    longer = integer("Orders: characters of the first answer less those of the second", unit="chars", null=True)
    prompt_hash = string("Under which the reply is stored")
