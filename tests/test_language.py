import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusbuild.language import STOPWORDS, detect

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
