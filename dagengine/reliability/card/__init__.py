"""The judge card: values, the verdict, one module per section, words, page, text."""

from dagengine.reliability.card.card_formats import card_page, print_card, read_card, write_card
from dagengine.reliability.card.card_maker import make_card
from dagengine.unknown import answer_absent

__all__ = ["card_page", "make_card", "print_card", "read_card", "write_card"]

answer_absent(__name__)
