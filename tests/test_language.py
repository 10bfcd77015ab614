import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.language import STOPWORDS, detect, identifier
from corpusbuild.quality import FilterParams

words = st.sampled_from([w for language in sorted(STOPWORDS) for w in sorted(STOPWORDS[language])] + ["xylophone", "42", "_the_"])


def test_every_language_has_25_stop_words():
    assert {language: len(words) for language, words in STOPWORDS.items()} == dict.fromkeys(["de", "en", "es", "fr", "it", "nl", "pt"], 25)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("The cat and the dog sat in a box.", ("en", 5 / 7)),  # "in" votes for nl too, "a" for pt
        ("de de", ("es", 0.25)),  # es, fr, nl and pt agree: the first by name
        ("", ("und", 0.0)),
        ("the", ("und", 0.0)),  # one vote is no majority
        ("the the", ("en", 1.0)),
        ("THE The", ("en", 1.0)),
        ("the1 the_2 the", ("en", 1.0)),  # digits and underscores end a word
        ("thé cat", ("und", 0.0)),
        ("È è", ("it", 1.0)),
    ],
)
def test_detect_examples(text, verdict):
    assert detect(text) == verdict


@settings(deadline=None, max_examples=200)
@given(st.lists(words, max_size=20))
def test_the_vote_is_counted_word_by_word(tokens):
    hits = {language: sum(t.strip("_") in STOPWORDS[language] for t in tokens) for language in STOPWORDS}
    total = sum(hits.values())
    expected = ("und", 0.0) if total < 2 else min(((k, v / total) for k, v in hits.items()), key=lambda kv: (-kv[1], kv[0]))
    assert detect(" ".join(tokens)) == expected


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_confidence_is_a_share(text):
    language, confidence = detect(text)
    assert (confidence == 0.0) == (language == "und")
    assert 0 <= confidence <= 1


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("All human beings are born free and equal in dignity and rights.", "en"),
        ("Alle Menschen sind frei und gleich an Würde und Rechten geboren.", "de"),
        ("Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια.", "el"),
        ("כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם", "he"),  # told as iw
        ("人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心", "zh"),
        ("人人生而自由,在尊嚴及權利上均各平等。人各賦有理性良知", "zh"),  # told as zh-Hant
        ("Alle er født frie og med samme menneskeverd og menneskerettigheter. De er utstyrt med fornuft og samvittighet.", "no"),
        ("", "und"),
        ("1234 5678", "und"),
    ],
)
def test_the_trained_identifier(text, lang):
    told, conf = identifier("lid")(text)
    assert told == lang
    assert (conf >= 0.9) is (lang != "und")


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(codec=None), max_size=50))  # surrogates and noncharacters too
def test_the_trained_identifier_tells_something_of_any_text(text):
    language, confidence = identifier("lid")(text)
    assert (confidence == 0.0) == (language == "und")
    assert 0 <= confidence <= 1
    assert len(language) == 2 or language == "und"


def test_what_is_no_character_does_not_stop_the_trained_identifier():
    odd = [
        *range(32),
        *range(0x7F, 0xA0),
        0xD800,
        0xDFFF,
        *range(0xFDD0, 0xFDF0),
        *(p << 16 | low for p in range(17) for low in (0xFFFE, 0xFFFF)),
    ]
    text = "All human beings are born free and equal in dignity and rights."
    assert {identifier("lid")(f"{text} {chr(c)} {text}")[0] for c in odd} == {"en"}


def test_the_vote_is_the_default():
    assert identifier("vote") is detect
    assert FilterParams().lang_model == "vote"
