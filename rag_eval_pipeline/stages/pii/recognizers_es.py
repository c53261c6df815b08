"""Spanish identifiers: what they look like, their check letters and control digits, and the words that announce them.

Shapes that mean nothing without a word (a record number is just digits) are found behind that word only; shapes with an arithmetic
check stand on their own where the check leaves little to chance. Not here: how a rule is run (`patterns`), dates (`dates`).

Sources: DNI/NIE, Orden INT/2058/2008 (letter = number mod 23); CIF, Orden EHA/451/2008 and Decreto 2423/1975 (weighted digits);
IBAN, ISO 13616 (mod 97); licence plates, Real Decreto 2822/1998, annex XVIII; social security number, control = number mod 97.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rag_eval_pipeline.stages.pii.patterns import Rule, words

LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
"""Check letter of a DNI or NIE by its number modulo 23."""
ORGANISATIONS = "ABCDEFGHJNPQRSUVW"
"""First letters of a CIF."""
CONTROLS = "JABCDEFGHI"
"""Control letter of a CIF by its control digit."""
PROVINCES = (
    "A|AB|AL|AV|B|BA|BI|BU|C|CA|CC|CE|CO|CR|CS|CU|GC|GE|GI|GR|GU|H|HU|IB|J|L|LE|LO|LU|M|MA|ML|MU|NA|O|OR|OU|P|PM|PO|S|SA|SE|SG|"
    "SO|SS|T|TE|TF|TO|V|VA|VI|Z|ZA"
)
"""Province codes of licence plates before 2000."""


def check_letter(number: int) -> str:
    """The letter of a DNI."""
    return LETTERS[number % 23]


def is_nif(value: str) -> bool:
    """A DNI with its letter: up to 8 digits; dots, spaces and hyphens are allowed."""
    bare = _bare(value)
    return bare[:-1].isdecimal() and 7 <= len(bare[:-1]) <= 8 and bare[-1] == check_letter(int(bare[:-1]))


def is_nie(value: str) -> bool:
    """A NIE with its letter: X, Y or Z counts as the digit 0, 1 or 2 before seven digits."""
    bare = _bare(value)
    digits = str("XYZ".find(bare[:1])) + bare[1:-1]
    return len(bare) == 9 and digits.isdecimal() and bare[-1] == check_letter(int(digits))


def cif_control(digits: str) -> int:
    """Control digit of a CIF's seven digits: every second from the first is doubled and its digits added."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[::2])
    return -(sum(doubled) + sum(map(int, digits[1::2]))) % 10


def is_cif(value: str) -> bool:
    """A CIF with its control: a digit for A, B, E and H, a letter for N, P, Q, R, S and W, either one for the rest."""
    bare = _bare(value)
    first, digits, control = bare[:1], bare[1:-1], bare[-1:]
    if first not in ORGANISATIONS or len(digits) != 7 or not digits.isdecimal():
        return False
    expected = cif_control(digits)
    allowed = set() if first in "NPQRSW" else {str(expected)}
    return control in (allowed if first in "ABEH" else allowed | {CONTROLS[expected]})


def is_iban(value: str) -> bool:
    """Any IBAN by ISO 13616: the rearranged number modulo 97 is 1."""
    bare = _bare(value)
    if not (15 <= len(bare) <= 34 and bare.isalnum() and bare.isascii()):
        return False
    return int("".join(str(int(character, 36)) for character in bare[4:] + bare[:4])) % 97 == 1


def is_social_security(value: str) -> bool:
    """12 digits whose last two are the first ten modulo 97; where the number is below 10⁷ it follows the province unpadded."""
    bare = _bare(value)
    if len(bare) != 12 or not bare.isdecimal():
        return False
    province, number, control = bare[:2], int(bare[2:10]), int(bare[10:])
    joined = int(province) * 10**7 + number if number < 10**7 else int(bare[:10])
    return joined % 97 == control


def is_plate(value: str) -> bool:
    """Not a number with its unit."""
    return _bare(value)[-3:] not in UNITS


def is_postal_code(value: str) -> bool:
    """Five digits whose first two are a province, 01 to 52."""
    return 1 <= int(value[:2]) <= 52


UNITS = {"RPM", "MHZ", "GHZ", "KHZ", "THZ", "PPM", "PPB", "PCS", "CFM", "FPS", "DPS", "MBP", "KBP", "LBS", "HRS", "KWH", "MWH", "GWH"} | {
    "BTT", "KMH", "MPH", "SQM", "NTF", "PLN", "CHF", "GBP", "CZK", "DKK", "SKK", "NZD"}  # fmt: skip
"""Three consonants behind four digits that are a unit or a currency."""
_DROP = str.maketrans("", "", " .-/\u00a0\u2010\u2011")


def _bare(value: str) -> str:
    return value.translate(_DROP).upper()


def _shape(expression: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    return re.compile(expression, flags)


_BEFORE, _AFTER = r"(?<![\w\-])", r"(?![\w]|-\w)"
# Between the word that announces a value and the value: punctuation, "nº", at most one of each.
_TO = r"\s{0,3}(?:n\.?\s?[º°o]\.?|n[úu]m(?:ero)?\.?|#)?\s{0,3}[:=.\-/]?\s{0,3}"
_DIGITS = r"\d(?:[\d]|[ .\-/](?=\d)){2,17}"


def _behind(announced: str, value: str) -> re.Pattern[str]:
    """A value right behind the word that announces it."""
    return _shape(rf"(?<!\w)(?:{announced}){_TO}(?P<value>{value})(?!\w)")


_CATALOGUE = words(
    "pedidos?", "art[íi]culos?", "referencias?", "ref", "c[óo]digo de producto", "lote", "serie", "factura", "modelo", "order",
    "part", "item", "invoice", "serial", "sku", "ean", "batch", "lot", "model", r"n[º°]?\.?col",
)  # fmt: skip
"""Words that announce a number of goods, which is nobody's."""

STREETS = (
    r"calle|c/\.?|cl\.|avenida|avda?\.?|av\.|avinguda|paseo|p[ºo°]\.|pza?\.?|plaza|plaça|pl\.|carretera|c(?:r?tra|rta)\.?|camino|cno\.|"
    r"carrer|rúa|ronda|rda\.|travesía|trav\.|travessera|glorieta|gta\.|urb(?:anización|\.)|polígono(?: industrial)?|pol\. ind\.|"
    r"barrio|bulevar|pasaje|pje\.|alameda|rambla|vía|callejón|cuesta|kalea"
)
"""How a Spanish address begins."""
_WORD = r"[^\W\d_][\w’'\-]*\.?"
_NAME = r"(?-i:[A-ZÁÉÍÓÚÑÇ])[\w’'\-]*\.?"
_PLAIN = r"(?-i:[A-ZÁÉÍÓÚÑÇ])[\w’'\-]*"
_SMALL = r"(?:de la|de las|de los|del|de|las|la|los|el|y|e|i|a|da|do|dos|d’|d')"
_NUMBER = r"(?:(?:n[º°o]\.?\s?|n[úu]m\.?\s?)?\d{1,4}(?:-\d{1,4})?(?!\d|\s?[ºª°])(?:\s?[A-Z]\b)?|s/n|km\.?\s?\d{1,4}(?:[.,]\d{1,3})?)(?!\w)"
# Floor, door, stairs: each part behind a separator and short, so that a sentence is not swallowed.
_PART = (
    r"(?:esc(?:alera)?\.?\s?\w{1,3}|ed(?:ificio|\.)?\s?[\w.]{1,12}|piso\s\w{1,3}|planta\s\w{1,3}|portal\s\w{1,3}|puerta\s\w{1,3}|"
    r"baj[oa](?:\s[A-Z]\b|\s(?:der|dcha|izq|izda)\b)?|[áa]tico|entlo|pral|der(?:echa)?|dcha|izq(?:uierda|da)?|izda|"
    r"\d{1,3}\s?(?:[ºª°oa]\b|[ºª°])?\s?-?\s?(?:[A-Z]|der|dcha|izq|izda)?|[A-Z])(?![\w])\.?"
)
_ADDRESS = (
    rf"(?<![\w/])(?P<value>(?:{STREETS})[ ]{{0,2}}(?:{_SMALL}[ ]|\d{{1,2}}[ ]){{0,3}}"
    rf"{_NAME}(?:[ ](?:{_SMALL}[ ]){{0,2}}{_WORD}){{0,5}}[ ]?,?[ ]{{0,2}}{_NUMBER}"
    rf"(?:[ ]?[,.\-–]?[ ]{{0,2}}{_PART}){{0,4}})(?<![\s.,])"
)


def _rules() -> dict[str, list[Rule]]:
    dni = words(
        r"d\.?n\.?i\.?", r"n\.?i\.?f\.?", "documento(?: nacional)?(?: de identidad)?", "identidad", "identificación"
    )
    nie = words(r"n\.?i\.?e\.?", "extranjeros?", "documento", "identidad")
    cif = words(r"c\.?i\.?f\.?", r"n\.?i\.?f\.?", "identificación fiscal", "empresa", "sociedad")
    plate = words(
        "matr[íi]culas?",
        "veh[íi]culos?",
        "coche",
        "turismo",
        "furgoneta",
        "cami[óo]n",
        "moto(?:cicleta)?",
        "placa",
        "plate",
    )
    return {
        "ES_NIF": [
            Rule("ES_NIF", _shape(rf"{_BEFORE}(?:\d{{1,2}}\.\d{{3}}\.\d{{3}}|\d{{7,8}})[ \-.]?[A-Z]{_AFTER}"), 0.6, is_nif, dni, 1.0)
        ],
        "ES_NIE": [
            Rule("ES_NIE", _shape(rf"{_BEFORE}[XYZ][ \-.]?(?:\d\.\d{{3}}\.\d{{3}}|\d{{7}})[ \-.]?[A-Z]{_AFTER}"), 0.6, is_nie, nie, 1.0)
        ],
        "ES_CIF": [
            Rule("ES_CIF", _shape(rf"{_BEFORE}[{ORGANISATIONS}][ \-.]?(?:\d{{2}}\.\d{{3}}\.\d{{2}}|\d{{7}})[ \-.]?[\dA-J]{_AFTER}"), 0.5, is_cif, cif, 1.0, _CATALOGUE)
        ],
        "ES_PLATE": [
            Rule("ES_PLATE", _shape(rf"{_BEFORE}\d{{4}}[ \-]?[BCDFGHJKLMNPRSTVWXYZ]{{3}}{_AFTER}", 0), 0.3, is_plate, plate, 0.85, _CATALOGUE),
            Rule("ES_PLATE", _shape(rf"{_BEFORE}(?:{PROVINCES})[ \-]\d{{4}}[ \-][A-Z]{{1,2}}{_AFTER}", 0), 0.3, None, plate, 0.85, _CATALOGUE),
        ],
        "ES_SOCIAL_SECURITY": [
            Rule("ES_SOCIAL_SECURITY", _behind(
                r"n\.?a\.?s\.?s\.?|n\.?u\.?s\.?s\.?|(?:n[º°o]\.?\s|n[úu]mero\s(?:de\s)?)?(?:afiliaci[óo]n(?:\sa)?\s(?:a\s)?(?:la\s)?)?"
                r"(?:seg(?:uridad|\.)\s?soc(?:ial|\.))|ss", _DIGITS), 0.85),
            Rule("ES_SOCIAL_SECURITY", _shape(rf"{_BEFORE}\d{{2}}[ /\-]\d{{8}}[ /\-]\d{{2}}{_AFTER}"), 0.5, is_social_security),
        ],
        "ES_PATIENT_ID": [
            Rule("ES_PATIENT_ID", _behind(
                r"n\.?h\.?c\.?|c\.?i\.?p\.?a\.?(?:\s{0,2}[:.]?\s{0,2}n\.?h\.?c\.?)?|c\.?i\.?p\.?|(?:n[º°o]\.?\s?(?:de\s)?)?h(?:istoria|\.ª|ª)?\s?cl[íi]nica|"
                r"n[º°o]\.?\s(?:de\s)?historia|tarjeta sanitaria|t\.?s\.?i\.?|n[úu]mero de (?:historia|paciente)(?: cl[íi]nica)?",
                rf"(?:[A-Z]{{2,4}}[ \-]?)?{_DIGITS}"), 0.85)
        ],
        "ES_EPISODE_ID": [
            Rule("ES_EPISODE_ID", _behind(r"(?:n[º°o]\.?\s?(?:de\s)?)?(?:episodio|icu|contacto asistencial)", _DIGITS), 0.85)
        ],
        "ES_MEDICAL_LICENSE": [
            Rule("ES_MEDICAL_LICENSE", _behind(
                r"n[º°o]?\.?\s?(?:de\s)?col(?:egiad[oa]|\.)?|colegiad[oa]|n[úu]m(?:ero|\.)\s(?:de\s)?colegiad[oa]", _DIGITS), 0.85)
        ],
        "ES_POSTAL_CODE": [
            Rule("ES_POSTAL_CODE", _behind(r"c\.?\s?p\.?|c[óo]digo postal|d\.p\.|apartado postal", r"\d{5}"), 0.85),
            # Behind an address or a dash and before a capitalised place: "…, 12. 28007 Madrid".
            Rule("ES_POSTAL_CODE", _shape(r"(?<![\w.,/\-])(?<![$€£#] )(?P<value>\d{5})(?=[,.]?[ ]{1,2}(?-i:[A-ZÁÉÍÓÚÑ])[^\W\d_]{2,})"), 0.3, is_postal_code,
                 re.compile(rf"(?:(?<!\w)(?:{STREETS})[^\n]*|s/n|\d\s?[ºª°]?\s?[A-Z]?)\s?[.,\-–]?\s*$", re.IGNORECASE), 0.6, _CATALOGUE),
        ],
        "ES_ADDRESS": [
            Rule("ES_ADDRESS", _shape(_ADDRESS), 0.6),
            Rule("ES_ADDRESS", _shape(r"(?<!\w)(?:domicilio|direcci[óo]n(?: postal)?)\s?:\s{1,3}(?P<value>[^\W\d_][^\n:;@]{3,80}?\d[^\n:;@]{0,25}?)(?=[\s.]*(?:\n|$))"), 0.7),
            # "s/n" (no number) stands in addresses only.
            Rule("ES_ADDRESS", _shape(rf"(?<!\w)(?P<value>{_PLAIN}(?:[ ](?:{_SMALL}[ ]){{0,2}}{_PLAIN}){{0,3}},[ ]?s/n)(?!\w)"), 0.5),
            Rule("ES_ADDRESS", _shape(r"(?<!\w)(?P<value>apartado de correos\s(?:n[º°o]\.?\s?)?\d{1,6})"), 0.8),
        ],
        "IBAN_CODE": [
            Rule("IBAN_CODE", _shape(rf"{_BEFORE}ES\d{{2}}(?:[ \-]?\d){{20}}{_AFTER}"), 1.0, is_iban)
        ],
    }  # fmt: skip


RULES = _rules()
"""Entity → its rules. IBAN_CODE is the Spanish account's grouping, which presidio's recogniser does not know."""
ENTITIES: Sequence[str] = tuple(entity for entity in RULES if entity.startswith("ES_"))
