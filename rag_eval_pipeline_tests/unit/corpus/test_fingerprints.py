import json
import os

from hypothesis import given
from hypothesis import strategies as st

from rag_eval_pipeline.corpus.decoding import decode, is_text
from rag_eval_pipeline.corpus.fingerprints import FileHasher, rows_hash, sha256_file


def test_gold_hash_ignores_order_and_formatting_and_sees_every_label(corpora):
    rows = [{"query_id": f"q{i}", "text": "x"} for i in range(3)]
    corpora.lines("gold/queries.jsonl", *rows)
    before = corpora.load().gold.hash
    corpora.put(
        "gold/queries.jsonl",
        "\r\n\r\n".join(
            json.dumps(dict(reversed(row.items())), indent=None, separators=(", ", " : ")) for row in reversed(rows)
        ),
    )
    assert corpora.load().gold.hash == before
    corpora.lines("gold/queries.jsonl", *rows[:2], {**rows[2], "split": "test"})
    assert corpora.load().gold.hash == before
    corpora.lines("gold/queries.jsonl", *rows[:2], {**rows[2], "split": "dev"})
    assert corpora.load().gold.hash != before
    corpora.lines("gold/queries.jsonl", *rows)
    corpora.put("gold/transcripts/leave.txt.txt", "another text")
    assert corpora.load().gold.hash != before


def test_documents_hash_sees_content_names_and_metadata_but_not_gold(corpora):
    seen = [corpora.load().documents_hash]
    corpora.lines("v1/documents.jsonl", {"doc_id": "leave.txt", "tenant": "a"})
    seen.append(corpora.load().documents_hash)
    corpora.lines("v1/documents.jsonl", {"tenant": "a", "doc_id": "leave.txt"})
    assert corpora.load().documents_hash == seen[-1]
    corpora.put("v1/documents/leave.txt", "edited")
    seen.append(corpora.load().documents_hash)
    (corpora.root / "c/v1/documents/leave.txt").rename(corpora.root / "c/v1/documents/moved.txt")
    corpora.put("v1/documents.jsonl", "")
    seen.append(corpora.load().documents_hash)
    corpora.lines("gold/queries.jsonl", {"query_id": "q9", "text": "x"})
    assert corpora.load().documents_hash == seen[-1]
    assert len(set(seen)) == 4


def test_an_output_s_hash_is_of_its_file(corpora):
    path = corpora.lines("v1/outputs/cleaned.jsonl", {"doc_id": "leave.txt", "text": "x"})
    assert corpora.load().output_hashes == {"cleaned.jsonl": sha256_file(path)}


def test_unchanged_files_are_hashed_once(tmp_path, monkeypatch):
    file, cache = tmp_path / "a", tmp_path / "cache" / "hashes.json"
    file.write_text("one")
    os.utime(file, (1, 1))
    calls = []
    monkeypatch.setattr(
        "rag_eval_pipeline.corpus.fingerprints.sha256_file", lambda path: calls.append(path) or sha256_file(path)
    )
    for _ in range(2):
        with FileHasher(cache) as hasher:
            assert hasher(file) == sha256_file(file)
    assert len(calls) == 1
    file.write_text("two")
    with FileHasher(cache) as hasher:
        assert hasher(file) == sha256_file(file)
    assert len(calls) == 2


def test_a_file_changed_just_now_is_not_remembered(tmp_path):
    file, cache = tmp_path / "a", tmp_path / "hashes.json"
    file.write_text("one")
    with FileHasher(cache) as hasher:
        hasher(file)
    assert not cache.exists()


def test_a_torn_cache_is_no_cache(tmp_path):
    file, cache = tmp_path / "a", tmp_path / "hashes.json"
    file.write_text("one")
    os.utime(file, (1, 1))
    cache.write_text('{"a": [')
    with FileHasher(cache) as hasher:
        assert hasher(file) == sha256_file(file)
    assert json.loads(cache.read_text())


@given(st.lists(st.lists(st.sampled_from([None, "a", "é", 1, 0]), max_size=3), max_size=4), st.randoms())
def test_rows_hash_is_one_of_sets_of_rows(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert rows_hash(rows) == rows_hash(shuffled)
    assert rows_hash([*rows, ["more"]]) != rows_hash(rows)


@given(st.binary(max_size=300))
def test_decoding_is_total_and_gives_lf(data):
    text, encoding = decode(data)
    assert "\r" not in text
    assert encoding


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\ufeff")))
def test_utf8_is_read_as_it_is(text):
    assert decode(text.encode())[0] == text
    assert decode(b"\xef\xbb\xbf" + text.encode())[0] == text


def test_old_encodings():
    spanish = "La política del año: «señor», 20 % más."
    assert decode(spanish.encode("latin-1")) == (spanish, "cp1252")
    assert decode("“sí” — 20 €".encode("cp1252")) == ("“sí” — 20 €", "cp1252")
    assert decode(spanish.encode("utf-16"))[0] == spanish
    japanese = "休暇の規則についての文書です。"
    assert decode(japanese.encode("cp932"))[0] == japanese


def test_which_files_are_their_own_reference():
    assert [is_text(name) for name in ("a.TXT", "b/c.md", "d.csv", "e.pdf", "f")] == [True, True, True, False, False]
