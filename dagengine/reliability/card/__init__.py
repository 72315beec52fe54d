"""The judge card: values, one module per question, comparisons, words, page, table."""

from dagengine.reliability.card.build import make_card
from dagengine.reliability.card.files import read_card, write_card
from dagengine.reliability.card.page import card_page
from dagengine.reliability.card.table import print_card

__all__ = ["card_page", "make_card", "print_card", "read_card", "write_card"]
