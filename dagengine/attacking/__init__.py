"""Attacks on a judge: which node falls, to what, and what a defence costs."""

from dagengine.attacking.attack_card import AttackCard, Cell, Defence, Fall
from dagengine.attacking.attack_texts import Family, read_attacks
from dagengine.attacking.campaign import a_attack, attack
from dagengine.attacking.defences import defended
from dagengine.unknown import answer_absent

__all__ = [
    "AttackCard",
    "Cell",
    "Defence",
    "Fall",
    "Family",
    "a_attack",
    "attack",
    "defended",
    "read_attacks",
]

answer_absent(__name__)
