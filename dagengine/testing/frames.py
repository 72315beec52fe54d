"""Whether an exception raised now would reach the end of a test: then it may be raised later, too.

A verdict may be deferred only where nobody could catch it. Between the call and the test function,
no frame may have a handler for the instruction it is at. Such frames have a `try` or a `with`
(`pytest.raises` is one), or are the event loop of a library. The compiler has written that down:
every code object has a table of the instructions that a handler covers.
(https://github.com/python/cpython/blob/main/InternalDocs/exception_handling.md)
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FrameType, TracebackType

# The last instruction of a coroutine from Python 3.12 on: it turns StopIteration into a
# RuntimeError, covers the whole body, and lets everything else pass.
_PASSES_ON = dis.opmap.get("CALL_INTRINSIC_1"), 3


def frames_between(caller: FrameType, test: CodeType | None) -> list[FrameType] | None:
    """The frames from the test function (first) to `caller`, where nothing catches in between.

    None when a handler covers one of them, or when `caller` is not called by the test function
    `test`: a fixture, a thread, a doctest.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = caller
    while frame is not None and test is not None:
        code = frame.f_code
        for start, end, target in _handlers(code.co_exceptiontable):
            covers = start <= frame.f_lasti < end
            if covers and tuple(code.co_code[target : target + 2]) != _PASSES_ON:
                return None
        frames.append(frame)
        if code is test:
            return frames[::-1]
        frame = frame.f_back
    return None


def traceback_of(frames: list[FrameType]) -> TracebackType | None:
    """The traceback that an exception raised in the last of the frames would have."""
    trace: TracebackType | None = None
    for frame in reversed(frames):
        trace = TracebackType(trace, frame, frame.f_lasti, frame.f_lineno)
    return trace


def _handlers(table: bytes) -> Iterator[tuple[int, int, int]]:
    """First and last instruction covered, and where the handler begins, in bytes of the code."""
    # An entry is four numbers, in units of two bytes; the last is the depth of the stack with a
    # flag.
    numbers = _numbers(table)
    for start in numbers:
        length, target, _depth = next(numbers), next(numbers), next(numbers)
        yield 2 * start, 2 * (start + length), 2 * target


def _numbers(table: bytes) -> Iterator[int]:
    """Numbers of six bits a byte; all but the last byte of one have the next bit set."""
    number = 0
    for byte in table:
        number = number << 6 | byte & 63
        if not byte & 64:
            yield number
            number = 0
