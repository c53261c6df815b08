"""Tables of the answering room: answers, what they claim and what they cite."""

from rag_eval_pipeline.warehouse.table import Table, boolean, integer, integers, number, string, table


@table(
    "answers", "One row an answer; a query without one has a row whose status says why. Several a query are samples."
)
class Answers(Table):
    answer_id = string("Answer: the imported id, else the query's", key=True)
    query_id = string("Query")
    # The name hides dataframely's generator of random rows, which nothing calls here.
    sample = integer(  # type: ignore[assignment]
        "Which answer of its query, from 1; measured is the first"
    )
    answer = string("What was said; empty where there is no answer", privacy="masked")
    language = string("Language of the query, chooses the rules", null=True)
    outcome = string("refused | hedged | answered | empty; NULL where there is no answer", null=True)
    refused = boolean("Whether it refuses, as stated or else by its words; NULL where there is no answer", null=True)
    refusal_origin = string("stated | detected", null=True)
    confidence = number("Stated confidence, 0 to 1", null=True)
    answerer = string("extractive | import | openai | import path")
    model = string("Model that made it", null=True)
    status = string(
        "ok | missing (no answer imported) | empty_context … or a failure of the answerer: http_429, timeout …"
    )
    input_tokens = integer("Tokens read", unit="tokens", null=True)
    output_tokens = integer("Tokens written", unit="tokens", null=True)
    cost = number("Price", unit="USD", null=True)
    first_token_s = number("Time to the first token", unit="s", null=True, volatile=True)
    total_s = number("Time to the last one", unit="s", null=True, volatile=True)


@table("answer_claims", "One row a claim of an answer. Blank, repeated and overlapping ones are refused.")
class AnswerClaims(Table):
    answer_id = string("Answer", key=True)
    claim_id = string("Claim, unique in its answer", key=True)
    position = integer("Place among the claims, from 1")
    text = string("What it says, without citation marks", privacy="masked")
    start = integer("First code point in the answer; NULL where it has no place there", null=True)
    end = integer("One past the last code point", null=True)
    origin = string("given (stands in the answer file) | split (cut by rule) | answerer")


@table("answer_citations", "One row a citation of an answer, as it resolves against what the answer was given.")
class AnswerCitations(Table):
    answer_id = string("Answer", key=True)
    position = integer("Place among the citations, from 1", key=True)
    cited = string("As it was cited", privacy="masked")
    kind = string("chunk | passage (a place in the context) | document | unknown")
    status = string("resolved | not_given (exists, but was not in the context) | dangling (does not exist)")
    chunk_id = string("Chunk, the first of a cited document; NULL unless resolved", null=True)
    doc_id = string("Document; NULL unless resolved", null=True)
    passages = integers("Places in the context that it points to; empty unless resolved")
    claim_id = string("Claim that it belongs to; NULL: the answer as a whole", null=True)
