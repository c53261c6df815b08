"""Whether an answer refuses, by fixed phrases (en, es). Deterministic: the same text gives the same outcome.

Here: refused, hedged, answered or empty. Not here: whether it should have refused (`measures.refusing`).
"""

from __future__ import annotations

from typing import Literal

import regex

from rag_eval_pipeline.text.clauses import clauses
from rag_eval_pipeline.text.marks import blanked

Outcome = Literal["refused", "hedged", "answered", "empty"]
OUTCOMES: tuple[Outcome, ...] = ("refused", "hedged", "answered", "empty")

_GIVEN = r"(?:provided|given|supplied|retrieved|available|above|current)\s+"
_SOURCES = r"(?:context|documents?|passages?|sources?|information|texts?|excerpts?|materials?|knowledge\s+base|search\s+results)"
_DO_NOT = r"(?:do(?:es)?\s+not|do(?:es)?n['’]t|did\s+not|didn['’]t)"
_CAN_NOT = r"(?:can\s*not|can['’]t|could\s+not|couldn['’]t|am\s+(?:not\s+able|unable)\s+to|was\s+(?:not\s+able|unable)\s+to|['’]m\s+(?:not\s+able|unable)\s+to)"
_TELL = r"(?:contain|mention|provide|include|specify|say|state|answer|indicate|address|cover|give|have)s?"
_THINGS = r"(?:information|answer|details?|mention|anything|enough|sufficient|data|specifics)"
_EN = (
    rf"\bi\s+{_DO_NOT}\s+(?:know|have\s+(?:\w+\s+){{0,3}}{_THINGS}|have\s+access|see\s+(?:\w+\s+){{0,2}}{_THINGS})\b",
    r"\bi(?:\s+am|['’]m)\s+not\s+(?:sure|certain)\b",
    r"\bi\s+have\s+no\s+(?:information|answer|data|details?|idea)\b",
    rf"\b(?:i|we)(?:\s+|(?=['’])){_CAN_NOT}\s+(?:answer|find|determine|help|assist|provide|say|tell|confirm|locate|give)\b",
    r"^\W*(?:can\s*not|can['’]t|could\s+not|couldn['’]t|unable\s+to)\s+(?:answer|be\s+answered|find|determine)\b",
    r"\b(?:question|this|it)\s+can\s*not\s+be\s+(?:answered|determined)\b",
    rf"\b(?:the\s+)?(?:{_GIVEN}){_SOURCES}\s+{_DO_NOT}\s+{_TELL}\b",
    rf"\b(?:the\s+|this\s+|these\s+)?{_SOURCES}\s+{_DO_NOT}\s+{_TELL}\s+(?:\w+\s+){{0,3}}{_THINGS}\b",
    rf"\b(?:the\s+)?context\s+{_DO_NOT}\s+{_TELL}\b",
    rf"\bnot\s+(?:mentioned|specified|stated|provided|included|contained|found|covered|available|addressed|given)\s+(?:in|by|within)\s+(?:the\s+|these\s+|this\s+|any\s+of\s+the\s+)?(?:{_GIVEN})?{_SOURCES}\b",
    r"\b(?:there\s+is\s+|there['’]s\s+)?(?:no|not\s+enough|insufficient)\s+(?:relevant\s+|specific\s+|such\s+)?(?:information|data|context)\b(?:\s+(?:is\s+|was\s+)?(?:available|provided|given|found|about|on|regarding|to|in)\b|\W*$)",
    r"\b(?:is|falls|lies)\s+(?:outside|beyond)\s+(?:of\s+)?(?:the|my)\s+scope\b|\bout\s+of\s+(?:my\s+)?scope\b",
    r"\bno\s+(?:answer|information)\s+(?:(?:was|is|could\s+be|can\s+be)\s+)?(?:found|given|available)\b",
)  # fmt: skip
_FUENTES = r"(?:contexto|documentos?|pasajes?|fuentes?|información|textos?|fragmentos?|materiales?|resultados)"
_DICEN = r"(?:contienen?|mencionan?|proporcionan?|incluyen?|especifican?|dicen?|indican?|responden?|tratan?|cubren?|ofrecen?|recogen?|aportan?)"
_ES = (
    r"\bno\s+(?:lo\s+)?sé\b",
    r"\bno\s+(?:tengo|dispongo\s+de|cuento\s+con|tenemos|disponemos\s+de)\s+(?:\w+\s+){0,3}(?:información|datos|respuesta|detalles|acceso)\b",
    r"\bno\s+(?:lo\s+)?(?:puedo|podemos|pude|he\s+podido)\s+(?:\w+\s+)?(?:responder|contestar|encontrar|determinar|ayudar|decir|confirmar|proporcionar|localizar)",
    r"\bno\s+es\s+posible\s+(?:responder|contestar|determinar)",
    rf"\b(?:el|la|los|las|estos|este|esta|estas)\s+{_FUENTES}(?:\s+(?:proporcionad[oa]s?|dad[oa]s?|facilitad[oa]s?|recuperad[oa]s?|disponibles?))\s+no\s+{_DICEN}\b",
    rf"\b(?:el|la|los|las|estos|este)\s+{_FUENTES}\s+no\s+{_DICEN}\s+(?:\w+\s+){{0,3}}(?:información|respuesta|detalles?|datos|nada)\b",
    rf"\bel\s+contexto\s+no\s+(?:lo\s+)?{_DICEN}\b",
    rf"\bno\s+se\s+(?:mencionan?|especifican?|indican?|dicen?|encuentran?|recogen?|proporcionan?)\b.{{0,60}}?\ben\s+(?:el|la|los|las|estos|este|ningun[oa]\s+de\s+los)\s+{_FUENTES}\b",
    r"\bno\s+(?:he\s+encontrado|hemos\s+encontrado|encontré|encuentro|se\s+ha\s+encontrado)\s+(?:\w+\s+){0,2}(?:información|respuesta|datos|la\s+respuesta|nada)\b",
    r"\bno\s+hay\s+(?:\w+\s+)?(?:información|datos)\b(?:\s+(?:suficientes?|disponibles?|sobre|acerca|para|en)\b|\W*$)",
    r"\binformación\s+insuficiente\b",
    r"\bfuera\s+(?:de\s+mi|del)\s+(?:alcance|ámbito)\b",
)  # fmt: skip
_COURTESY = (
    r"^\W*(?:(?:i['’]?\s*a?m\s+|i\s+apologi[sz]e|we\s+are\s+)?(?:very\s+|so\s+)?sorry\b[^.;]*|i\s+apologi[sz]e\b.*|unfortunately)\W*$",
    r"^\W*(?:please|kindly|contact|try|check|consult|ask|refer|let\s+me\s+know|feel\s+free|i\s+(?:recommend|suggest|hope)|you\s+(?:may|might|could|can|should)\s+(?:want\s+to\s+)?(?:contact|ask|check|consult|try|refer))\b",
    rf"^\W*(?:it|they|the\s+(?:{_GIVEN})?{_SOURCES})\s+(?:only|mainly|just|instead)\s+\p{{L}}+",
    r"^\W*(?:lo\s+siento|lo\s+lamento|disculp[ae]|perdón|lamentablemente|desafortunadamente)\W*$",
    r"^\W*(?:por\s+favor|consulte|consulta|contacte|contacta|póngase|ponte|pruebe|intente|pregunte|le\s+recomiendo|te\s+recomiendo|le\s+sugiero|espero)\b",
    rf"^\W*(?:(?:el|la|los|las)\s+{_FUENTES}\s+)?(?:solo|sólo|solamente|únicamente)\s+\p{{L}}+",
)  # fmt: skip
_REFUSES = regex.compile("|".join(f"(?:{pattern})" for pattern in (*_EN, *_ES)), regex.IGNORECASE)
_COURTEOUS = regex.compile("|".join(f"(?:{pattern})" for pattern in _COURTESY), regex.IGNORECASE)
_WORDS = regex.compile(r"[\p{L}\p{N}]")


def outcome(answer: str | None, language: str | None = None) -> Outcome:
    """What an answer does.

    `empty`: no letter and no digit but in citation marks; it is no refusal. `refused`: says that it can't answer, and nothing else but courtesy.
    `hedged`: says so and asserts something besides; it counts as an answer. `answered`: the rest.
    """
    text = blanked(answer or "")
    if not _WORDS.search(text):
        return "empty"
    refuses = asserts = False
    for start, end in clauses(text, language):
        part = text[start:end]
        if is_refusal(part):
            refuses = True
        elif _WORDS.search(part) and not is_courtesy(part):
            asserts = True
    if not refuses:
        return "answered"
    return "hedged" if asserts else "refused"


def is_refusal(clause: str) -> bool:
    """Whether a clause says that the question can't be answered."""
    return bool(_REFUSES.search(clause))


def is_courtesy(clause: str) -> bool:
    """Whether a clause asserts nothing: an apology, a request, an offer, or what the sources cover instead."""
    return clause.rstrip().endswith("?") or bool(_COURTEOUS.search(clause))
