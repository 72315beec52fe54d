"""Servers that read prompts in parts, and the texts and tokenizers to try them with."""

from __future__ import annotations

import base64
import json
import random
import re
from collections.abc import Callable, Sequence

from servers.openai_server import Json, OpenAIServer, Reply, completion_of, valid_reply

Tokenize = Callable[[str], int]
Cut = Callable[[int], int]
"""From the tokens of a prompt to those that are read."""
TEMPLATE = 24  # tokens of the chat template around messages

_GERMAN = (
    "Die Verordnung über die Bundesgartenschau wurde gestern im Ausschuss besprochen.",
    "Mehrere Abgeordnete äußerten erhebliche Bedenken gegen die Finanzierung der Maßnahmen.",
    "Trotzdem wurde der Entwurf mit knapper Mehrheit angenommen, wie die Kanzlei mitteilte.",
    "Bürgerinitiativen kündigten Widerspruch an und verlangen ein unabhängiges Gutachten.",
)
_ENGLISH = (
    "The committee discussed the rules of the garden show yesterday, without a result.",
    "Some members had doubts about how all of it is going to be paid for in the end.",
    "It passed with a small majority, and the people of the town want to go to court.",
)
_CHINESE = (
    "昨天委员会讨论了关于园艺博览会的规定。",
    "多名议员对资金来源表示严重担忧。",
    "该草案仍以微弱多数获得通过,市民团体宣布将提出异议。",
)
_CODE = (
    "def settle(self, price: float) -> None:\n    self._spent += price or 0.0\n",
    "for (int i = 0; i < items.size(); ++i) {\n        total += items[i].weight;\n}\n",
    "    if not found:\n        raise KeyError(f'no {name!r} in {sorted(self._known)}')\n",
)


def text(kind: str, length: int, seed: int = 0) -> str:
    """A text of a kind with about so many characters."""
    chance = random.Random(f"{kind} {length} {seed}")
    sentences = {"german": _GERMAN, "english": _ENGLISH, "chinese": _CHINESE, "code": _CODE}
    if kind == "base64":
        return base64.b64encode(chance.randbytes(length * 3 // 4)).decode()
    if kind == "emoji":
        return "".join(chance.choice("😀🎉🚀🙈🌍🍀") for _ in range(length))
    if kind == "blanks":
        return "".join(
            f"{chance.randrange(10)}{' ' * chance.randrange(200)}\n"
            for _ in range(1 + length // 100)
        )
    if kind == "mixed":
        return text("english", length // 2, seed) + "\n" + text("base64", length // 2, seed)
    made = ""
    while len(made) < length:
        made += chance.choice(sentences[kind]) + " "
    return made


KINDS = ("english", "german", "chinese", "code", "base64", "mixed", "blanks", "emoji")

_PIECES = re.compile(r"[A-Za-zÀ-ÿ]+|\d|\s+|[^\w\s]|\w")


def dense(words: float, other: float) -> Tokenize:
    """A tokenizer with `words` characters per token of a word, `other` per token of the rest."""

    def count(content: str) -> int:
        tokens = 0
        for piece in _PIECES.findall(content):
            if piece.isspace():
                tokens += len(piece) > 1
            elif piece.isascii() and piece.isalpha():
                # Words of small letters are in the vocabulary, others are not.
                tokens += -(-len(piece) // round(words if piece[1:].islower() else 2))
            else:
                tokens += max(1, round(len(piece) / other))
        return tokens

    return count


TOKENIZERS: dict[str, Tokenize] = {
    "efficient": dense(9, 3),
    "small": dense(5, 0.5),
    "bytes": lambda content: len(content.encode()),
    "by four": lambda content: -(-len(content) // 4),
    "words": lambda content: len(content.split()),
}


def ollama(window: int) -> Cut:
    """What is longer than the window is cut to a half of it."""
    return lambda tokens: tokens if tokens <= window else window // 2 + 2


def to(most: int) -> Cut:
    """Never more than so many tokens."""
    return lambda tokens: min(tokens, most)


def shifted(window: int) -> Cut:
    """Blocks of half a window are dropped until the rest fits."""

    def cut(tokens: int) -> int:
        while tokens > window:
            tokens -= window // 2
        return tokens

    return cut


class CuttingServer(OpenAIServer):
    """Counts with a tokenizer, reads what `cut` leaves, and reports that.

    `cuts` has the words of every prompt that was cut, but for those that only ask for the count;
    `calls` counts all of them.
    """

    def __init__(self, tokenize: Tokenize, cut: Cut = lambda tokens: tokens) -> None:
        super().__init__(self._read)
        self._tokenize, self._cut = tokenize, cut
        self.cuts: list[str] = []
        self.calls = 0

    def _read(self, body: Json) -> Reply:
        self.calls += 1
        contents: Sequence[str] = [message["content"] for message in body["messages"]]
        tokens = TEMPLATE + sum(map(self._tokenize, contents))
        read = self._cut(tokens)
        if read < tokens and body.get("max_tokens") != 1:
            self.cuts.append(contents[-1])
        reply = valid_reply(body)
        completion = completion_of(body, reply)
        completion["usage"] = self.usage(read)
        return Reply(reply.content, body=json.dumps(completion))

    def usage(self, read: int) -> Json:
        """What is reported."""
        return {"prompt_tokens": read, "completion_tokens": 5, "total_tokens": read + 5}
