"""About how many tokens a text has: held against counts of real tokenizers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers.cutting_server import KINDS, TOKENIZERS, text

from dagengine.prompts.lengths.token_counts import least_tokens, size_of
from dagengine.question import Message

GERMAN = (
    "Die Verordnung über die Bundesgartenschau wurde gestern im Ausschuss besprochen, wobei "
    "mehrere Abgeordnete erhebliche Bedenken gegen die Finanzierung äußerten. Trotzdem wurde der "
    "Entwurf mit knapper Mehrheit angenommen, und die Bürgerinitiativen kündigten Widerspruch an. "
) * 8
CHINESE = (
    "昨天委员会讨论了关于园艺博览会的规定,多名议员对资金来源表示严重担忧。尽管如此,该草案仍以微弱多数获得"
    "通过,市民团体宣布将提出异议。"
) * 20
RUSSIAN = (
    "Вчера комитет обсудил постановление о садовой выставке, и несколько депутатов выразили "  # noqa: RUF001
    "серьёзные сомнения по поводу финансирования. "
) * 20
# What o200k (GPT-4o), cl100k (GPT-4) and SmolLM2's tokenizer count for these texts.
COUNTED = {
    GERMAN: (457, 657, 849),
    CHINESE: (1000, 1600, 2460),
    RUSSIAN: (601, 1101, 1800),
    "=" * 4000: (62, 63, 63),
}


def prompt(content: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": content},)


@pytest.mark.parametrize(("content", "counts"), COUNTED.items(), ids=["de", "zh", "ru", "="])
def test_an_efficient_tokenizer_counts_about_so_many_and_others_more(
    content: str, counts: tuple[int, int, int]
) -> None:
    size = size_of(prompt(content)).tokens
    assert 0.9 * size < counts[0] < 1.5 * size
    assert 0.9 * size < counts[1] <= counts[2] < 5 * size
    assert least_tokens(prompt(content)) < counts[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokenizer", ["efficient", "small", "bytes"])
def test_no_tokenizer_counts_fewer_than_the_bound(kind: str, tokenizer: str) -> None:
    for length in (10, 300, 5_000):
        content = text(kind, length)
        assert least_tokens(prompt(content)) <= TOKENIZERS[tokenizer](content)


def test_blanks_and_runs_may_be_a_single_token() -> None:
    for content in (" " * 9_000, "\n" * 9_000, "ab" * 9_000, "-" * 9_000):
        assert least_tokens(prompt(content)) <= 1
    assert size_of(prompt(" " * 9_000)).tokens == 0


@given(st.text(), st.text())
def test_sizes_add_up_over_messages(one: str, other: str) -> None:
    both = size_of((*prompt(one), *prompt(other)))
    assert both.tokens == pytest.approx(size_of(prompt(one)).tokens + size_of(prompt(other)).tokens)
    assert both.characters == len(one) + len(other)
    assert 0 <= least_tokens(prompt(one)) <= max(1, len(one))
