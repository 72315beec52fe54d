"""Every recipe of docs/judges.md, as it is printed, against a server where its address leads."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from folders.places import ROOT
from servers.openai_server import OpenAIServer, Reply, valid_reply
from typer.testing import CliRunner

from dagengine import evaluate
from dagengine.cli.commands import app
from dagengine.metrics import DAGMetric
from dagengine.metrics.dag import DAG, BinaryJudgementNode
from dagengine.test_case import LLMTestCase

PAGE = (ROOT / "docs" / "judges.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^\| ([^|]+) \| `dagengine (judge set [^`]+)` \|$", PAGE, re.MULTILINE))
KEYS = {
    "Azure OpenAI": "AZURE_OPENAI_API_KEY",
    "Mistral": "MISTRAL_API_KEY",
    "Bedrock": "AWS_BEARER_TOKEN_BEDROCK",
    "Vertex AI": "VERTEX_TOKEN",
}
CASE = LLMTestCase(input="Who?", actual_output="Ada.")


class Anywhere(OpenAIServer):
    """Answers chat completions at any path, and remembers the paths."""

    def __init__(self, respond: Callable[[dict[str, Any]], Reply], tls: ssl.SSLContext) -> None:
        super().__init__(respond, tls=tls)
        self.paths: list[str] = []

    def add_routes(self, app: web.Application) -> None:
        app.router.add_post("/{path:.*}", self._anywhere)

    async def _anywhere(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        return await self._chat(request)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for the hosts of all recipes, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "certificate.pem", folder / "key.pem"
    names = ",".join(f"DNS:{urlsplit(address_of(name)).hostname}" for name in RECIPES)
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=recipes", "-addext", f"subjectAltName={names}"),
            *("-keyout", str(made[1]), "-out", str(made[0])),
        ],
        check=True,
        capture_output=True,
    )
    return made


def address_of(name: str) -> str:
    words = shlex.split(RECIPES[name])
    return words[words.index("--base-url") + 1]


@pytest.fixture
def servers(
    certificate: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """A plain server and one with a certificate; every name leads to one of them."""
    made, key = certificate
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made, key)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("DAGENGINE_JUDGE", "DAGENGINE_BASE_URL", "DAGENGINE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    plain: Any = None
    with Anywhere(valid_reply, plain) as http, Anywhere(valid_reply, tls) as https:
        ports = {"http": urlsplit(http.base_url).port, "https": urlsplit(https.base_url).port}

        def found(host: object, port: object, *_: object, **__: object) -> Sequence[Any]:
            scheme = "https" if port in (443, "443", ports["https"]) else "http"
            place = ("127.0.0.1", ports[scheme])
            return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", place)]

        monkeypatch.setattr(socket, "getaddrinfo", found)
        yield {"http": http, "https": https}


def test_the_page_has_a_recipe_for_every_server() -> None:
    assert [*RECIPES] == [
        *("Ollama", "LM Studio", "vLLM", "llama.cpp"),
        *("Azure OpenAI", "Mistral", "Bedrock", "Vertex AI"),
    ]


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_as_printed_asks_its_server(
    name: str, servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = shlex.split(RECIPES[name])
    if name in KEYS:
        assert words[words.index("--key-from") + 1] == KEYS[name]
        monkeypatch.setenv(KEYS[name], "secret of the test")
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    judgement = BinaryJudgementNode("Good?", then={True: 10, False: 0}, evaluation_params=["input"])
    result = evaluate([CASE], [DAGMetric("Good", DAG(judgement))], show=False)
    assert result.scores("Good") == [1.0], result.rows[0].metrics[0].failure

    address = urlsplit(address_of(name))
    server = servers[address.scheme]
    assert server.paths == [f"{address.path.rstrip('/')}/chat/completions"]
    (headers,), (body,) = server.headers, server.requests
    assert headers["Host"].partition(":")[0] == address.hostname
    assert headers.get("Authorization") == (
        "Bearer secret of the test" if name in KEYS else "Bearer not-needed"
    )
    assert body["model"] == words[2]
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert body["temperature"] == 0
    assert body["response_format"]["type"] == "json_schema"
    assert "secret of the test" not in json.dumps(body)


@pytest.mark.parametrize("name", KEYS)
def test_without_its_key_a_recipe_says_which_variable_is_missing(
    name: str, servers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEYS[name], raising=False)
    assert CliRunner().invoke(app, shlex.split(RECIPES[name])).exit_code == 0
    shown = CliRunner().invoke(app, ["judge", "show"])
    assert f"its key is read from {KEYS[name]}, which is NOT set" in shown.output
    assert not servers["https"].paths
