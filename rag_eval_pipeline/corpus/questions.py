"""A spreadsheet of questions as people keep them: a CSV with any of the usual separators, encodings and column names.

Here: which column means what, which document a cell names, and each row's faults. What is written of it belongs in `starting`.
No message holds text of a question, answer or quote.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import get_args

from rag_eval_pipeline.corpus.decoding import decode
from rag_eval_pipeline.corpus.faults import Faults, several, suggestion
from rag_eval_pipeline.corpus.lines import LONGEST_QUERY, LONGEST_QUOTE, Split

ROLES: dict[str, tuple[str, ...]] = {
    "question": ("question", "query", "questions", "user_input", "user question", "pregunta", "preguntas", "consulta", "cuestion", "frage"),
    "answer": (
        "answer", "answers", "expected answer", "gold answer", "ground_truth", "ground_truths", "reference", "reference answer",
        "respuesta", "respuestas", "respuesta esperada", "respuesta correcta", "solucion", "antwort",
    ),
    "document": (
        "document", "documents", "doc", "docs", "doc_id", "document id", "file", "files", "filename", "file name", "path", "source",
        "sources", "url", "documento", "documentos", "archivo", "fichero", "nombre del archivo", "fuente", "fuentes", "origen", "datei",
    ),
    "quote": (
        "quote", "quotes", "evidence", "passage", "excerpt", "snippet", "supporting text", "context", "reference_contexts",
        "cita", "citas", "evidencia", "pasaje", "fragmento", "extracto", "texto de apoyo", "contexto", "zitat",
    ),
    "id": ("id", "query_id", "qid", "question_id", "question id", "id pregunta", "identificador", "nr", "no", "num", "numero", "#"),
    "language": ("language", "lang", "idioma", "lengua", "sprache"),
    "intent": ("intent", "category", "type", "question type", "intencion", "categoria", "tipo", "tipo de pregunta"),
    "tags": ("tags", "labels", "topics", "etiquetas", "temas"),
    "split": ("split", "set", "conjunto", "particion"),
    "answerable": ("answerable", "in scope", "respondible", "contestable", "tiene respuesta"),
}  # fmt: skip
"""What a column may mean → its usual names, without accents and in lower case."""
SEVERAL = ("answer", "document", "quote")
"""Roles that may have numbered columns: quote 1, quote 2."""
SEPARATORS = (",", ";", "\t", "|")
NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
YES = frozenset({"yes", "y", "true", "1", "x", "si", "s", "verdadero", "ja"})
NO = frozenset({"no", "n", "false", "0", "falso", "nein"})
LIMIT = 200 * 2**20
UNCLOSED = 'close each " that begins a cell, and double each one inside of it'
LONGEST_PATH = 4096
LONGEST_NAME = 200
"""Characters of a column's name from which on it is none that we know."""
_NUMBERED = re.compile(r"^(.*?)[ _\-]?(\d{1,2})$")
_PAGE = re.compile(
    r"(?:#.*|[\s,;:(\[]+(?:pp?|pages?|pags?|páginas?|página|págs?|seiten?|s)\.?\s*\d[\d\s,\-–]*[)\]]?)$", re.IGNORECASE
)
_ONLY_PAGES = re.compile(r"(?:pp?|pages?|págs?|pags?|páginas?)\.?\s*[\d\s,\-–]+", re.IGNORECASE)


@dataclass(frozen=True)
class Quote:
    """A passage that answers a question.

    Attributes:
        text: as written in the sheet.
        documents: where it may stand; none: nobody said.
        line: line of the sheet.
    """

    text: str
    documents: tuple[str, ...]
    line: int


@dataclass
class Question:
    """One question with all that the sheet's rows say of it."""

    query_id: str
    text: str
    line: int
    answers: list[str] = field(default_factory=list)
    documents: list[str] = field(default_factory=list)
    quotes: list[Quote] = field(default_factory=list)
    language: str | None = None
    intent: str | None = None
    tags: list[str] = field(default_factory=list)
    split: str | None = None
    answerable: bool = True


@dataclass(frozen=True)
class Sheet:
    """A sheet as it was understood.

    Attributes:
        file: its name.
        encoding: in which it was read.
        separator: comma | semicolon | tab | bar.
        columns: column → what it was taken for.
        unused: columns that nothing was made of.
        questions: in the sheet's order.
        rows: rows below the header.
    """

    file: str
    encoding: str
    separator: str
    columns: Mapping[str, str]
    unused: tuple[str, ...]
    questions: tuple[Question, ...]
    rows: int


@dataclass(frozen=True)
class _Column:
    index: int
    name: str
    role: str
    number: int


def plain(name: str) -> str:
    """A name as it is compared: no accents, lower case, runs of white space and punctuation as one space."""
    folded = unicodedata.normalize("NFKD", name.casefold())
    return re.sub(r"[\s_\-.:/]+", " ", "".join(c for c in folded if not unicodedata.combining(c))).strip(" ¿?¡!*\"'")


_ROLE_OF = {plain(name): role for role, names in ROLES.items() for name in names}


def read_questions(path: Path, documents: Sequence[str], given: Mapping[str, str], faults: Faults) -> Sheet | None:
    """Read a sheet.

    Args:
        path: CSV with a header; separated by comma, semicolon, tab or bar; UTF-8 (BOM or not), UTF-16 with BOM, or cp1252.
        documents: ids of the version's documents, which are their paths.
        given: role → column, for names that are not known.
        faults: gets every row's faults: file, line, field.

    Returns:
        The sheet, or None where not even its header can be read.
    """
    file = path.name
    data = path.read_bytes() if path.stat().st_size <= LIMIT else b""
    if not data:
        faults.add(
            file,
            None,
            "",
            f"{path.stat().st_size:,} bytes",
            f"a CSV of 1 to {LIMIT:,} bytes",
            "name the file with the questions",
        )
        return None
    if data.startswith(b"PK\x03\x04"):
        faults.add(file, None, "", "a workbook or archive", "a CSV", "save the sheet as CSV UTF-8")
        return None
    csv.field_size_limit(LIMIT)
    text, encoding = decode(data)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        faults.add(file, line, "", "a NUL sign", "text", "save the sheet as CSV UTF-8")
        return None
    separator = _separator(text, given)
    rows = _rows(text, separator, file, faults)
    if not rows:
        return None
    head_line, head = rows[0]
    columns = _columns(head, head_line, file, given, faults)
    if columns is None:
        return None
    reader = _Reader(file, len(head), columns, Documents(documents), faults)
    for line, cells in rows[1:]:
        reader.row(line, cells)
    if len(rows) == 1:
        faults.add(file, head_line, "", "a header and no rows", "one question a row")
    named = {column.name: column.role for column in columns}
    unused = tuple(
        name.strip() for number, name in enumerate(head) if name.strip() and number not in {c.index for c in columns}
    )
    return Sheet(file, encoding, NAMES[separator], named, unused, tuple(reader.questions.values()), len(rows) - 1)


def _separator(text: str, given: Mapping[str, str]) -> str:
    """The sign under which the header has most known columns; else the one that parts it most."""
    head = text.lstrip("\n").split("\n", 1)[0]
    wanted = {plain(name) for name in given.values()}

    def fit(sign: str) -> tuple[int, int]:
        cells = next(csv.reader([head], delimiter=sign), [])
        known = sum(plain(cell) in wanted or _role(cell)[0] is not None for cell in cells)
        return known, len(cells)

    return max(SEPARATORS, key=fit)


def _rows(text: str, separator: str, file: str, faults: Faults) -> list[tuple[int, list[str]]]:
    """Rows with the line on which each begins; rows without any content are left out."""
    # Strict: a quote that nobody closed would take all rows below it into one cell, without a word.
    reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
    rows: list[tuple[int, list[str]]] = []
    line = 1
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        faults.add(
            file,
            line,
            "",
            f"a row that can't be read ({error})",
            "a row of CSV",
            UNCLOSED,
        )
        return []
    if not rows:
        faults.add(file, 1, "", "no rows", "a header and one question a row")
    return rows


def _role(name: str) -> tuple[str | None, int]:
    """What a column's name means, and its number."""
    if len(name) > LONGEST_NAME:
        return None, 0
    if (role := _ROLE_OF.get(plain(name))) is not None:
        return role, 0
    if (found := _NUMBERED.match(plain(name))) and (role := _ROLE_OF.get(found[1])) in SEVERAL:
        return role, int(found[2])
    return None, 0


def _columns(head: list[str], line: int, file: str, given: Mapping[str, str], faults: Faults) -> list[_Column] | None:
    by_name: dict[str, list[int]] = defaultdict(list)
    for number, name in enumerate(head):
        by_name[plain(name)].append(number)
    columns: list[_Column] = []
    before = len(faults.errors)
    for role, name in given.items():
        found = by_name.get(plain(name), [])
        if len(found) != 1:
            hint = suggestion(name, [cell for cell in head if cell.strip()])
            faults.add(file, line, role, f"{len(found)} columns called {name!r}", "one", hint)
            continue
        columns.append(_Column(found[0], head[found[0]].strip(), role, 0))
    taken = {column.index for column in columns}
    for number, name in enumerate(head):
        role_found, count = _role(name)
        if number in taken or role_found is None or role_found in given:
            continue
        columns.append(_Column(number, name.strip(), role_found, count))
    for place, count in Counter((column.role, column.number) for column in columns).items():
        if count > 1:
            named = ", ".join(repr(column.name) for column in columns if (column.role, column.number) == place)
            faults.add(
                file,
                line,
                place[0],
                f"{count} columns that may be it ({named})",
                "one",
                f"say which: --column {place[0]}=NAME",
            )
    if not any(column.role == "question" for column in columns):
        shown = several([repr(name.strip()) for name in head if name.strip()], 12)
        faults.add(
            file, line, "question", f"the columns {shown}", f"one called {', '.join(ROLES['question'][:3])} or pregunta",
            "say which it is: --column question=NAME",
        )  # fmt: skip
    return columns if len(faults.errors) == before else None


class Documents:
    """Which document a cell names: by id, path, file name or file name without extension; a page behind it is left out."""

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = sorted(ids)
        self._by: dict[str, set[str]] = defaultdict(set)
        for doc_id in self.ids:
            path = PurePosixPath(doc_id)
            for depth in range(len(path.parts)):
                self._by[self._key("/".join(path.parts[depth:]))].add(doc_id)
            self._by[self._key(path.stem)].add(doc_id)
            self._by[self._key(str(path.with_suffix("")))].add(doc_id)
        self._exact = {self._key(doc_id): doc_id for doc_id in self.ids}

    @staticmethod
    def _key(name: str) -> str:
        return (
            unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
            .strip()
            .replace("\\", "/")
            .removeprefix("./")
        )

    def find(self, name: str) -> list[str]:
        """Documents that a name may stand for: none, one, or several."""
        if len(name) > LONGEST_PATH:  # no path of any system; looking for a page behind it would take for ever
            return []
        for form in dict.fromkeys((name, _PAGE.sub("", name))):
            key = self._key(form).strip("\"' ")
            if key in self._exact:
                return [self._exact[key]]
            parts = key.split("/")
            for depth in range(len(parts)):  # an absolute path or a URL of another machine ends in a path of ours
                if found := self._by.get("/".join(parts[depth:])):
                    return sorted(found)
        return []

    def all_in(self, cell: str) -> tuple[list[str], str | None, list[str]]:
        """(documents, first name that is none or several, what that name may stand for) of a cell that may list some."""
        whole = self.find(cell)
        if len(whole) == 1:
            return whole, None, []
        parts = [part.strip() for part in re.split(r"[;|\n]|,(?=\s)", cell) if part.strip()]
        if len(parts) < 2:
            return [], cell.strip(), whole
        found: list[str] = []
        for part in parts:
            if len(part) <= LONGEST_PATH and _ONLY_PAGES.fullmatch(part):
                continue
            named = self.find(part)
            if len(named) != 1:
                return [], part, named
            found += named
        return list(dict.fromkeys(found)), None, []


class _Reader:
    """Rows into questions. Rows of one id, or of one text where there is no id column, are one question."""

    def __init__(self, file: str, width: int, columns: list[_Column], documents: Documents, faults: Faults) -> None:
        self.file, self.width, self.columns, self.documents, self.faults = file, width, columns, documents, faults
        self.questions: dict[str, Question] = {}
        self._names = {(column.role, column.number): column.name for column in columns}
        self._with_ids = any(column.role == "id" for column in columns)

    def row(self, line: int, cells: list[str]) -> None:
        """Take one row in, or note what is wrong with it."""
        if len(cells) > self.width and any(cell.strip() for cell in cells[self.width :]):
            self.faults.add(
                self.file, line, "", f"{len(cells)} cells", f"{self.width}, as the header",
                "put a cell that holds the separator between double quotes",
            )  # fmt: skip
            return
        found = {(c.role, c.number): cells[c.index].strip() if c.index < len(cells) else "" for c in self.columns}
        question = self._question(line, found)
        if question is None:
            return
        self._facts(question, line, found)
        by_number = self._documents(line, found)
        listed = [doc for docs in by_number.values() for doc in docs]
        question.documents += [doc for doc in dict.fromkeys(listed) if doc not in question.documents]
        for (role, number), text in found.items():
            if role == "answer" and text and text not in question.answers:
                question.answers.append(text)
            elif role == "quote" and text:
                self._quote(question, line, number, text, by_number)

    def _question(self, line: int, found: Mapping[tuple[str, int], str]) -> Question | None:
        text = found[("question", 0)]
        if not text:
            self._fault(line, "question", "an empty cell", "a question", "fill it in, or remove the row")
            return None
        if len(text) > LONGEST_QUERY:
            self._fault(line, "question", f"{len(text):,} characters", f"at most {LONGEST_QUERY:,}")
            return None
        given = re.sub(r"\s+", " ", unicodedata.normalize("NFC", found.get(("id", 0), "")))
        if self._with_ids and not given:
            self._fault(line, "id", "an empty cell", "an id on every row", "fill it in, or remove the column")
            return None
        key = given or " ".join(text.casefold().split())
        known = self.questions.get(key)
        if known is None:
            query_id = given or f"q{len(self.questions) + 1:03}"
            known = self.questions[key] = Question(query_id, text, line)
        elif " ".join(known.text.split()) != " ".join(text.split()) and given:
            self._fault(
                line,
                "id",
                f"the id of line {known.line}, with another question",
                "one question an id",
                "give it an id of its own",
            )
            return None
        return known

    def _facts(self, question: Question, line: int, found: Mapping[tuple[str, int], str]) -> None:
        for role in ("language", "intent"):
            if value := found.get((role, 0)):
                setattr(question, role, re.sub(r"\s+", " ", value))
        if question.language and not re.fullmatch(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*", question.language):
            self._fault(
                line, "language", f"a cell of {len(question.language)} characters", "a code such as en or es-MX"
            )
        question.tags += [
            tag.strip()
            for tag in re.split(r"[,;|]", found.get(("tags", 0), ""))
            if tag.strip() and tag.strip() not in question.tags
        ]
        if value := found.get(("split", 0)):
            if value.lower() not in get_args(Split):
                self._fault(
                    line, "split", repr(value[:40]), ", ".join(get_args(Split)), suggestion(value, get_args(Split))
                )
            question.split = value.lower()
        if value := found.get(("answerable", 0)):
            word = plain(value)
            if word not in YES | NO:
                self._fault(line, "answerable", repr(value[:40]), "yes or no (sí o no)")
            question.answerable = word not in NO

    def _documents(self, line: int, found: Mapping[tuple[str, int], str]) -> dict[int, list[str]]:
        by_number: dict[int, list[str]] = {}
        for (role, number), cell in found.items():
            if role != "document" or not cell:
                continue
            docs, wrong, candidates = self.documents.all_in(cell)
            if wrong is not None and candidates:
                self._fault(
                    line, "document", f"{wrong[:200]!r}, which may be {len(candidates)} documents ({several(candidates)})",
                    "one", "write its path below the folder", number,
                )  # fmt: skip
            elif wrong is not None:
                hint = self.faults.suggest(self.file, wrong[:200], self.documents.ids)
                self._fault(
                    line, "document", f"{wrong[:200]!r}, which is no document", "a file of the folder", hint, number
                )
            by_number[number] = docs
        return by_number

    def _quote(self, question: Question, line: int, number: int, text: str, by_number: Mapping[int, list[str]]) -> None:
        if len(text) > LONGEST_QUOTE:
            self._fault(
                line,
                "quote",
                f"{len(text):,} characters",
                f"at most {LONGEST_QUOTE:,}",
                "quote only what answers",
                number,
            )
            return
        documents = tuple(by_number.get(number) or by_number.get(0) or question.documents)
        if all(quote.text != text or quote.documents != documents for quote in question.quotes):
            question.quotes.append(Quote(text, documents, line))

    def _fault(self, line: int, role: str, found: str, expected: str, hint: str = "", number: int = 0) -> None:
        self.faults.add(self.file, line, self._names.get((role, number), role), found, expected, hint)
