"""The order of questions that wait: by case, then first come, first served."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dagengine.gateway.call_priorities import Queue, Urgency

PLACES = st.integers(0, 9)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), PLACES),
        st.tuples(st.just("lend"), PLACES, st.integers(0, 30)),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("take")),
    ),
    max_size=60,
)


def waiting(model: dict[int, Urgency], number: int) -> int:
    return sorted(model)[number % len(model)]


@given(ACTS)
def test_what_is_taken_is_always_the_most_urgent_of_what_waits(acts: list[tuple[Any, ...]]) -> None:
    queue, model = Queue[int](), dict[int, Urgency]()
    for thing, (act, *numbers) in enumerate(acts):
        if act == "add":
            urgency = Urgency(numbers[0])
            urgency.turn = thing
            queue.add(thing, urgency)
            model[thing] = urgency
        elif act == "lend" and model:
            model[waiting(model, numbers[1])].lend(numbers[0])
        elif act == "remove" and model:
            gone = waiting(model, numbers[0])
            queue.remove(gone)
            del model[gone]
        elif act == "take" and model:
            best = min(model, key=lambda one: (model[one].rank, model[one].turn))
            assert queue.take() == best
            del model[best]
        assert len(queue.things) == len(model)
    left = [queue.take() for _ in range(len(queue.things))]
    assert left == sorted(model, key=lambda one: (model[one].rank, model[one].turn))
    assert queue.first() is None


@given(st.lists(PLACES, min_size=1), PLACES)
def test_who_lends_their_place_only_ever_makes_it_more_urgent(lent: list[int], own: int) -> None:
    urgency = Urgency(own)
    for place in lent:
        urgency.lend(place)
    assert urgency.rank == min(own, *lent)
