"""What a node gives, or asks at first, found without asking anybody."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from dagengine.graph.node import BaseNode
from dagengine.graph.values import Given, NodeValue
from dagengine.question import Answer, Question

T = TypeVar("T", bound=BaseModel)


class _Questions(Exception):
    """Carries the first questions of a node out of it."""

    def __init__(self, questions: list[Question[Any]]) -> None:
        self.questions = questions
        super().__init__()


class _Catch:
    """Stands where a running node expects its judge, and keeps what it is asked."""

    def __init__(self, decides: bool, most: int | None) -> None:
        self.decides, self._most = decides, most

    async def __call__(self, question: Question[T]) -> Answer[T]:
        self._stop([question])

    async def each(self, questions: Iterable[Question[T]]) -> list[Answer[T]]:
        made = list(islice(questions, self._most))
        return self._stop(made) if made else []

    def _stop(self, questions: list[Question[Any]]) -> NoReturn:
        raise _Questions(questions)


def first_step(
    node: BaseNode, given: Given, *, decides: bool = False, most: int | None = None
) -> NodeValue | list[Question[Any]] | Exception | None:
    """The value of a node, its first questions, or the error of its code.

    None when it waits for something else. `decides` says what kind of judge it has; of many
    questions at once only the first `most` are made.
    """
    # A coroutine needs no event loop until it waits. So the node's own code is run up to its first
    # question, which leaves it as an exception: nobody is asked, and nothing is simulated.
    #
    #     send(None) ──▶ returns          StopIteration: its value
    #                ──▶ asks its judge   _Questions: what it asks at first
    #                ──▶ waits otherwise  None: a sleep or a socket would need the loop
    #
    # `close` runs what the node has in its `finally`, and keeps Python from complaining that it was
    # never awaited.
    work = node.work(given, _Catch(decides, most))
    try:
        work.send(None)
    except StopIteration as done:
        return done.value if isinstance(done.value, NodeValue) else None
    except _Questions as caught:
        return caught.questions
    except Exception as error:  # noqa: BLE001 - user code may raise anything
        # A node that asks is also tried with stand-ins for what is not known yet (`estimate`).
        # Its error may be about these, and tells nothing about the run.
        return None if node.asks else error
    finally:
        work.close()
    return None
