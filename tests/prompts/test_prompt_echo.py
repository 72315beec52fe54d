"""Models that repeat the prompt in front of their answer."""

import pytest

from dagengine.prompts.prompt_echo import without_echo

PROMPT = "Judge this.\n\n<<<BEGIN a>>>\nIt is , well ,  blue.\n<<<END a>>>"


@pytest.mark.parametrize(
    "echo",
    [
        PROMPT,
        f"<s> {PROMPT}",
        f"<s>{PROMPT}",
        f"<|begin_of_text|>{PROMPT}",
        f"[CLS] {PROMPT}",
        f"\n {PROMPT}",
        PROMPT.replace(" ,", ","),
        PROMPT.replace("\n", " "),
    ],
)
def test_an_echoed_prompt_is_cut_off(echo: str) -> None:
    assert without_echo(PROMPT, f"{echo}\nThe answer. </s>") == "\nThe answer. </s>"
    assert without_echo(PROMPT, f"{echo}The answer.") == "The answer."
    assert without_echo(PROMPT, echo) == ""


@pytest.mark.parametrize(
    "text", ["", "blue", PROMPT[:-1], f"As you said: {PROMPT}", PROMPT.replace("blue", "red")]
)
def test_a_text_that_does_not_begin_with_the_prompt_stays_as_it_is(text: str) -> None:
    assert without_echo(PROMPT, text) == text
    assert without_echo("", text) == text
