"""What is wrong with a model file is said before a process starts; what is right gives sizes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from servers.gguf_files import write_header

from dagengine.errors import InputError
from dagengine.execution.local_executor import LocalExecutor
from dagengine.judges import GGUFJudge, as_judge
from dagengine.judges.local import gguf as server
from dagengine.judges.local.gguf import size_for
from dagengine.judges.local.model_file import read_model_file
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.question import judge_name
from dagengine.test_case import LLMTestCase

GIB = 1 << 30


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"tokenizer.chat_template": None}, "no chat template.*instruct or chat model"),
        ({"general.architecture": "bert", "bert.pooling_type": 1}, "embedding model"),
        ({"llama.attention.causal": False}, "embedding model"),
        ({"general.type": "adapter"}, "an adapter"),
        ({"general.type": "mmproj"}, "the image encoder"),
        ({"split.no": 1, "split.count": 2}, "name the first one"),
    ],
)
def test_a_file_that_cannot_answer_is_refused_in_words(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    path = write_header(tmp_path / "model.gguf", changes)
    with pytest.raises(InputError, match=complaint) as caught:
        as_judge(f"gguf:{path}")
    assert str(path) in str(caught.value)


def test_a_file_without_weights_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a vocabulary but no weights"):
        GGUFJudge(write_header(tmp_path / "model.gguf", tensors=0))


def test_a_path_without_a_model_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model file nowhere.* is not there"):
        as_judge("gguf:nowhere.gguf")
    with pytest.raises(InputError, match="is a folder"):
        as_judge(f"gguf:{tmp_path}")
    other = tmp_path / "model.bin"
    other.write_bytes(b"PK\x03\x04")
    with pytest.raises(InputError, match="not a GGUF file"):
        as_judge(f"gguf:{other}")


def test_a_header_that_ends_early_anywhere_is_refused_in_words(tmp_path: Path) -> None:
    whole = write_header(tmp_path / "whole.gguf").read_bytes()
    short = tmp_path / "short.gguf"
    for length in range(4, len(whole), 3):
        short.write_bytes(whole[:length])
        with pytest.raises(InputError, match="download it again"):
            read_model_file(short)


@pytest.mark.parametrize("version", [b"\x01\x00\x00\x00", b"\x00\x00\x00\x03"])
def test_a_header_of_another_form_is_refused(tmp_path: Path, version: bytes) -> None:
    path = write_header(tmp_path / "model.gguf")
    path.write_bytes(b"GGUF" + version + path.read_bytes()[8:])
    with pytest.raises(InputError, match="unknown version"):
        read_model_file(path)


def test_a_list_of_an_absurd_length_is_refused(tmp_path: Path) -> None:
    path = write_header(tmp_path / "model.gguf")
    count = (3).to_bytes(8, "little")
    path.write_bytes(
        path.read_bytes().replace(
            b"\x09\0\0\0\x08\0\0\0" + count, b"\x09\0\0\0\x08\0\0\0" + b"\xff" * 8
        )
    )
    with pytest.raises(InputError, match="download it again"):
        read_model_file(path)


def test_the_identity_is_that_of_the_content_wherever_the_file_is(tmp_path: Path) -> None:
    path = write_header(tmp_path / "model.gguf")
    first = GGUFJudge(path)
    (tmp_path / "elsewhere").mkdir()
    moved = shutil.copy(path, tmp_path / "elsewhere" / "renamed.gguf")
    assert GGUFJudge(moved).durable_identity == first.durable_identity == first.identity
    assert str(tmp_path) not in first.identity
    assert "model.gguf" not in first.identity
    assert judge_name(first.identity) == "gguf Tiny"
    other = write_header(tmp_path / "other.gguf", {"tokenizer.chat_template": "{{ other }}"})
    assert GGUFJudge(other).identity != first.identity
    assert GGUFJudge(path, parameters={"top_k": 1}).identity != first.identity


def test_a_change_of_weights_alone_is_another_model(tmp_path: Path) -> None:
    path = write_header(tmp_path / "model.gguf")
    header = path.read_bytes()
    path.write_bytes(header + bytes(3_000_000))
    before = read_model_file(path).digest
    path.write_bytes(header + bytes([1]) * 3_000_000)
    assert read_model_file(path).digest != before


def test_a_model_in_several_files_is_all_of_them(tmp_path: Path) -> None:
    parts = [tmp_path / f"model-0000{number}-of-00002.gguf" for number in (1, 2)]
    first = write_header(parts[0], {"split.no": 0, "split.count": 2}, tensors=0)
    with pytest.raises(InputError, match=r"model-00002-of-00002.* cannot be read"):
        GGUFJudge(first)
    parts[1].write_bytes(b"one")
    before = GGUFJudge(first).identity
    parts[1].write_bytes(b"two")
    assert GGUFJudge(first).identity != before


def test_an_address_beside_a_file_is_refused() -> None:
    with pytest.raises(InputError, match="leave out base_url"):
        as_judge("gguf:model.gguf", base_url="http://localhost:8080/v1")


@pytest.mark.parametrize("setting", ["window", "places", "threads"])
def test_a_size_below_one_is_refused(tmp_path: Path, setting: str) -> None:
    size: Any = {setting: 0}
    with pytest.raises(InputError, match=f"{setting} must be at least 1"):
        GGUFJudge(write_header(tmp_path / "model.gguf"), **size)


def room_for(judge: GGUFJudge, *texts: str) -> int:
    """The window of a judge that is to judge such outputs."""
    node = BinaryJudgementNode("Right?", then={True: 10, False: 0}, evaluation_params=["input"])
    engine = LocalExecutor([DAGMetric("right", DAG(node))], {"model": judge})
    engine.cases([LLMTestCase(input=text, actual_output="x" * 1_000_000) for text in texts])
    return judge.window


def test_the_window_has_room_for_the_longest_prompt_of_a_run(tmp_path: Path) -> None:
    path = write_header(tmp_path / "model.gguf", {"llama.context_length": 100_000})
    assert room_for(GGUFJudge(path), "short") == 8192
    assert room_for(GGUFJudge(path), "short", "long" * 15_000) == 22_528
    assert room_for(GGUFJudge(path), "äöü" * 10_000) == 22_528  # two bytes each
    assert room_for(GGUFJudge(path), "too long" * 1_000_000) == 100_000
    assert room_for(GGUFJudge(path, window=512), "long" * 15_000) == 512
    judge = GGUFJudge(path)
    assert [room_for(judge, "long" * 15_000), room_for(judge, "short")] == [22_528, 22_528]


# 32 layers, 8 pairs of heads of 128: 128 KiB a token.
LARGE = {
    "llama.block_count": 32,
    "llama.embedding_length": 4096,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": [8, 8, 4],
    "llama.context_length": 131_072,
}


@pytest.mark.parametrize(
    ("memory", "changes", "size"),
    [
        (64 * GIB, LARGE, (8192, 4, None)),
        (8 * GIB, LARGE, (8192, 2, None)),
        (3 * GIB, LARGE, (6144, 1, None)),
        (GIB // 2, LARGE, (2048, 1, None)),
        (8 * GIB, {}, (4096, 4, None)),  # the model was trained for no more
    ],
)
def test_window_and_places_follow_model_and_memory(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    memory: int,
    changes: dict[str, Any],
    size: tuple[int, int, None],
) -> None:
    monkeypatch.setattr(server, "_memory", lambda: memory)
    file = read_model_file(write_header(tmp_path / "model.gguf", changes))
    assert size_for(file) == size
    assert size_for(file, 1000, 3, 5) == (1000, 3, 5)


@pytest.mark.parametrize(
    ("processors", "servers", "threads"),
    [(1, 1, 1), (2, 1, 2), (4, 1, 4), (16, 1, 8), (2, 2, 1), (16, 3, 2), (2, 5, 1), (4, 0, 4)],
)
def test_servers_share_the_processors_whatever_the_load_is(
    processors: int, servers: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_processors", lambda: processors)
    monkeypatch.setattr(server, "_servers", dict.fromkeys(range(servers)))
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0))
    assert server.own_threads() == threads


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {}, 8),
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/a/b", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        ("0::/outside", {"cpu.max": "50000 100000"}, 1),
        ("4:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "400000\n",
                              "cpu/x/cpu.cfs_period_us": "100000\n"}, 4),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("5:memory:/x\n3:cpuset:/", {"cpu.max": "100000 100000"}, 8),
    ],
)  # fmt: skip
def test_processors_are_those_of_the_affinity_and_of_the_quotas_of_groups(
    groups: str, files: dict[str, str], expected: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    (tmp_path / "groups").write_text(groups, encoding="utf-8")
    for name, text in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(text, encoding="utf-8")
    assert server._processors(tmp_path / "groups", tmp_path / "root") == expected
    assert server._processors(tmp_path / "missing", tmp_path) == 8
