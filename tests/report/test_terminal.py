"""What is printed never gives orders to the terminal, and hides nothing."""

import pytest

from dagengine.system.terminal_text import one_line, plain


def tags(place: str) -> str:
    """The tag characters that end a flag."""
    return "".join(chr(0xE0000 + ord(letter)) for letter in place) + "\U000e007f"


LEGITIMATE = [
    "plain text, with\ttabs\nand lines",
    "Größe naïve Ελληνικά Русский",
    "שלום עולם",
    "مرحبا، ٣٤؟ ۝١",  # noqa: RUF001
    "می\u200cخواهم",  # noqa: RUF001 - Persian: ZWNJ
    "क्\u200dष क्\u200cष",  # Devanagari: ZWJ, ZWNJ
    "ශ්\u200dරී ලංකා",  # Sinhala: ZWJ
    "ភាសា\u200bខ្មែរ",  # Khmer: a space without width
    "日本語\u3000テスト 中文 한국어",
    "葛\U000e0100城市",  # an ideographic variation
    "👨\u200d👩\u200d👧\u200d👦 ❤\ufe0f\u200d🔥 🏳\ufe0f\u200d🌈",
    "👩🏽\u200d🚀 1\ufe0f⃣ ☎\ufe0f ©\ufe0f 🇩🇪",
    *(f"🏴{tags(place)} flag" for place in ("gbeng", "gbsct", "gbwls")),
    "no\u00a0break, narrow\u202fspace, ≠ ∑ ½ \ue0a0",
    "[bold red]no markup[/]",
]
HIDDEN = {
    "\x1b[2J": r"\x1b[2J",
    "\x1b]0;title\x07": r"\x1b]0;title\x07",
    "a\rb\x08\x00\x7f": r"a\rb\x08\x00\x7f",
    "\x9b31m\x85": r"\x9b31m\x85",
    "\u202etxt.exe\u202c\u2066\u200e\u061c": r"\u202etxt.exe\u202c\u2066\u200e\u061c",
    "pay\u200bpal \u200cx\u200d \ufeff\u2060\xad": r"pay\u200bpal \u200cx\u200d \ufeff\u2060\xad",
    "x\U000e0041\U000e0001": r"x\U000e0041\U000e0001",
    "🏴\U000e0061\U000e0062\U000e007f": r"🏴\U000e0061\U000e0062\U000e007f",
    "🙂\ufe00\ufe01\U000e0105": r"🙂\ufe00\ufe01\U000e0105",
    "a\ufe0fb\U000e0100": r"a\ufe0fb\U000e0100",
    "क\u200d\u200d": r"क\u200d\u200d",
    "\ud800 \udfff": r"\ud800 \udfff",
    "\u2028\u2029\u3164\u115f\uffa0\u034f": r"\u2028\u2029\u3164\u115f\uffa0\u034f",
}


@pytest.mark.parametrize("text", LEGITIMATE)
def test_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert plain(text) == text


@pytest.mark.parametrize("text", HIDDEN)
def test_what_hides_or_commands_is_shown_as_an_escape(text: str) -> None:
    assert plain(text) == HIDDEN[text]
    assert plain(f"before {text}") == f"before {HIDDEN[text]}"


def test_one_line_is_cut_and_has_no_breaks() -> None:
    assert one_line("a\n\n b\x1b", 20) == r"a b\x1b"
    assert one_line("word " * 1000, 20) == ("word " * 4)[:19] + "…"
    assert len(one_line("\x1b" * 10**6, 100)) == 100
