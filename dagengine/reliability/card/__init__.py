"""The judge card: values, the verdict, one module per section, words, page, table."""

from dagengine.reliability.card.build import make_card
from dagengine.reliability.card.card_files import card_page, read_card, write_card
from dagengine.reliability.card.card_text import print_card
from dagengine.unknown import answer_absent

__all__ = ["card_page", "make_card", "print_card", "read_card", "write_card"]

answer_absent(__name__)
