"""A harmless twin of a text: the same length and form, in words that say nothing.

What an attack does must be told from what any more text does. So beside every attack its twin is
judged: each letter and digit is another one, and marks, blanks, lines and invisible characters are
where they were.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Mapping

_WORDS = (
    *("a", "o"),
    *("ox", "oh"),
    *("oak", "tea", "hat", "pea"),
    *("tree", "lamp", "rain", "boat", "wool"),
    *("table", "river", "apple", "cloud", "stone"),
    *("garden", "window", "bottle", "pebble"),
    *("kitchen", "morning", "blanket", "pumpkin"),
    *("mountain", "umbrella", "sandwich"),
    *("furniture", "butterfly"),
    *("strawberry", "lighthouse"),
    *("countryside",),
    *("refrigerator",),
)
_BY_LENGTH = {
    size: tuple(words) for size, words in itertools.groupby(_WORDS, key=len)
}  # they are in the order of their length
_LONGEST = max(_BY_LENGTH)
# Letters of harmless words in other scripts, by the first word of the names of their letters.
_SCRIPTS = {
    "CJK": "山水花木石田春秋",
    "CYRILLIC": "столокноречкалампа",
    "ARABIC": "شجرةنهركتابباب",
    "HEBREW": "שולחןחלוןנהר",
    "GREEK": "τραπέζιποτάμι",
    "DEVANAGARI": "नदमघर",
    "HANGUL": "나무강산집꽃",
    "HIRAGANA": "きやまかわはな",
    "KATAKANA": "キヤマカワハナ",
}
TAGS = 0xE0000
"""Characters from here on show nothing, and each stands for one of ASCII."""
_WORD = re.compile(r"[^\W\d_]+")
_DIGITS = str.maketrans("0123456789", "3456789012")


def twin_of(text: str) -> str:
    """The twin: equal texts have equal ones, of the same number of characters."""
    # Hidden tags are replaced like the letters that they stand for, and stay hidden: a twin that
    # showed them would be another kind of text.
    plain = "".join(map(_plain_character, text))
    letters = [index for index, sign in enumerate(plain) if unicodedata.category(sign) != "Cf"]
    # The words go round for each length, so that a long text does not say one word all the time.
    turns = {size: itertools.cycle(words) for size, words in _BY_LENGTH.items()}
    visible = "".join(map(plain.__getitem__, letters))
    harmless = _WORD.sub(lambda word: _in_form(word[0], turns), visible).translate(_DIGITS)
    twin = list(text)
    for index, character in zip(letters, harmless, strict=True):
        twin[index] = chr(TAGS + ord(character)) if plain[index] != text[index] else character
    return "".join(twin)


def _plain_character(character: str) -> str:
    """The character that a tag stands for; any other is itself."""
    code = ord(character) - TAGS
    return chr(code) if 0x20 <= code < 0x7F else character


def _in_form(word: str, turns: Mapping[int, Iterator[str]]) -> str:
    """Another word of the same length, script and case."""
    script = unicodedata.name(word[0], "").partition(" ")[0]
    if script in _SCRIPTS:
        letters = itertools.cycle(_SCRIPTS[script])
        return "".join(itertools.islice(letters, len(word)))
    twin, missing = "", len(word)
    while missing:
        size = min(missing, _LONGEST)
        twin, missing = twin + next(turns[size]), missing - size
    if word.isupper():
        return twin.upper()
    return twin.capitalize() if word[0].isupper() else twin
