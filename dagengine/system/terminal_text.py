"""Foreign text on a terminal: every character that hides or gives orders is made visible.

Data, names, paths and the words of a judge may contain characters that a terminal obeys: escape
sequences move the cursor and rewrite earlier lines. Other characters reverse the order of a text or
stay invisible. What is printed goes through `plain` first. Letters, marks and emoji of every script
stay as they are, with the invisible joiners that their spelling needs.

The hidden characters are the controls C0 and C1, the bidirectional controls, and
Default_Ignorable_Code_Point of Unicode (The Unicode Standard, sections 5.21, 9.2, 23.1 to 23.9).
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Collection, Container, Mapping, Sequence
from io import TextIOWrapper
from itertools import chain, count, groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_HIDDEN = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    r"\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0"
    r"\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_EMOJI = r"\xa9\xae\u203c-\u3299\U0001f000-\U0001faff"
_SPELT = (
    # Scripts from Arabic to the Indic ones: ZWJ and ZWNJ choose the form of a letter.
    r"[\u0600-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\U00010a00-\U00011fff]"
    r"[\u200c\u200d](?![\u200c\u200d])",
    # Thai, Lao, Tibetan, Burmese, Khmer: a space without width ends a word.
    r"[\u0e00-\u109f\u1780-\u17ff]\u200b(?!\u200b)",
    rf"[{_EMOJI}]\ufe0f?\u200d(?=[{_EMOJI}])",
    # One selector chooses the look of the character before it; a row of them carries data.
    rf"[#*0-9\xa9\xae\u1000-\u109f\u2000-\U0003ffff][{_SELECTORS}](?![{_SELECTORS}])",
    r"[\u1820-\u18aa][\u180b-\u180f](?![\u180b-\u180f])",
    # The flags of England, Scotland and Wales end in tag characters.
    r"\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067"
    r"|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f",
)
_ANY_HIDDEN = re.compile(_HIDDEN)
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]{6,16}(?=>)")  # of an object, in what `repr` writes
_SPELT_OR_HIDDEN = re.compile(f"(?!{_HIDDEN})(?:{'|'.join(_SPELT)})|({_HIDDEN})")


def utf8(text: str) -> str:
    """Replace each half of a character (a lone surrogate), which no database and no file takes."""
    return text.encode(errors="replace").decode()


def standard_console() -> Console:
    """A console on standard output, where letters that its encoding lacks become escapes."""
    from rich.console import Console

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    return Console()


def plain(text: str) -> str:
    r"""The text with every hidden character as its Python escape, such as `\x1b` or `\u202e`.

    Line breaks (`\n`) and tabs stay. Nothing else is done to the text: give the result to a
    printer that reads no markup (`typer.echo`, or `rich.text.Text`). The address of an object in
    memory is left out: it differs in every process.
    """
    if " at 0x" in text:
        text = _ADDRESS.sub("", text)
    if not _ANY_HIDDEN.search(text):
        return text
    return _SPELT_OR_HIDDEN.sub(_escape, text)


def clip(text: str, most: int) -> str:
    """A text of at most so many characters; of one that is cut the last is `…`."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def one_line(text: str, width: int) -> str:
    """The text plain and on one line, cut to at most `width` characters."""
    head = text[: 4 * width]  # a long text costs no more than a short one
    line = plain(" ".join(head.split()))
    return line if len(line) <= width and len(head) == len(text) else line[: width - 1] + "…"


def wrap_lines(text: str, deeper: int = 0) -> str:
    """Fold lines at spaces to the width of the terminal; what is folded off begins `deeper` in."""
    width, lines = shutil.get_terminal_size().columns, []
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()) + deeper)
        lines += textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "\n".join(lines)


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 case`, `2,000 cases`."""
    return f"{number:,} {noun}{text_if(number != 1, 's')}"


def text_if(condition: object, text: str) -> str:
    """Return a text where a condition holds, and nothing where it does not."""
    return text if condition else ""


def few(names: Sequence[str], most: int = 5) -> str:
    """At most so many names of a list, and how many more it has: `a, b and 3 more`."""
    remainder = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + remainder


def free_name(name: str, taken: Container[str], sign: str) -> str:
    """The name, or the first that is free of `name`, `sign` and a number from 2 on."""
    numbered = (f"{name}{sign}{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def replaced_line(written: Mapping[Path, bool], continued: Collection[Path] = ()) -> str:
    """Return the sentence on files that were replaced, and not `continued`; empty for none."""
    replaced = sorted({*filter(written.get, written)}.difference(continued))
    parts: list[str] = []
    for folder, paths in groupby(replaced, attrgetter("parent")):
        parts.append(f"{few(list(map(attrgetter('name'), paths)))} in {folder}")
    return f"replaced {'; '.join(parts)}" if parts else ""


def _escape(match: re.Match[str]) -> str:
    hidden: str | None = match[1]
    return match[0] if hidden is None else hidden.encode("unicode_escape").decode("ascii")
