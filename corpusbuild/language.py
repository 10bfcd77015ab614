"""Which language a text is in, by a vote of common words."""

import re
from collections import Counter

_WORD = re.compile(r"[^\W\d_]+")  # runs of letters

STOPWORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "de": "der die das und ist nicht ein eine zu den mit sich des auf für im dem von auch es er sie wir ich war",
        "en": "the of and to a in is it that was he she for on with as his her they at be this have from but",
        "es": "el la los las de y que en un una es por con para del se no lo al su como pero muy yo está",
        "fr": "le la les de des et est un une du en que qui dans pour pas sur au ce il elle nous vous je avec",
        "it": "il la di che e un una per non sono del della con si gli le ma come anche io questo nel è ha lo",
        "nl": "de het een en van is dat op te in met niet zijn voor er maar ook als bij nog ik je wat hij ze",
        "pt": "o a os as de e que do da em um uma para com não no na por mais se ao dos das ele ela",
    }.items()
}
"""The 25 words that vote for each language. A word may vote for several."""

_VOTES: dict[str, list[str]] = {
    word: [language for language in sorted(STOPWORDS) if word in STOPWORDS[language]]
    for word in sorted(frozenset().union(*STOPWORDS.values()))
}


def detect(text: str) -> tuple[str, float]:
    """The language with the most votes and its share of all votes; ``("und", 0.0)`` below two votes. Ties go to the first by name.

    Every run of letters of the lower-cased text gives one vote to each language that has it among its stop words.

    >>> detect("The cat and the dog sat in a box.")
    ('en', 0.7142857142857143)
    """
    hits = dict.fromkeys(sorted(STOPWORDS), 0)
    for word, times in Counter(_WORD.findall(text.lower())).items():
        for language in _VOTES.get(word, ()):
            hits[language] += times
    total = sum(hits.values())
    if total < 2:
        return "und", 0.0
    best = max(hits, key=hits.__getitem__)  # the first of equals, and they stand by name
    return best, hits[best] / total
