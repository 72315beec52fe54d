"""What may be shown and written down of addresses, options and messages: everything but secrets.

Results, tables, pictures, spans and stores outlive a run and travel; keys must not be in them.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from traceback import format_exception
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

HIDDEN: Final = "…"
_SECRET: Final = re.compile(
    r"api[_-]?key|secret|passw|passphrase|credential|authorization|bearer|cookie|signature|token$"
    r"|(?:access|private|subscription|signing|account|client|master)[_-]?key|^(?:key|auth|sig|code)$",
    re.IGNORECASE,
)
_HEADERS: Final = re.compile(r"headers$", re.IGNORECASE)
_SECRET_HEADER: Final = re.compile(r"key|token|auth|secret|cookie|sig|pass|cred", re.IGNORECASE)
# Headers that a client writes by itself, and those that tell one request from another: no answer
# depends on them. https://www.w3.org/TR/trace-context/, https://github.com/openzipkin/b3-propagation
_OF_REQUEST: Final = re.compile(
    r"^(?:(?:accept(?:-encoding)?|b3|baggage|connection|content-(?:type|length)|host|user-agent)$|"
    r"x-(?:b3|datadog|stainless)-)|trac(?:e|ing)|(?:correlation|request|session|span)[-_]?id",
    re.IGNORECASE,
)
# What of an address' query may be shown; anything else may be a key.
_OPEN: Final = frozenset({"api-version", "api_version", "version", "deployment", "model"})
_ADDRESS: Final = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,20}://)(?:[^\s/?#'\"<>]*@)?"
    r"(?P<place>[^\s?#'\"<>]*)(?P<query>\?[^\s#'\"<>)]*)?",
    re.IGNORECASE,
)
_PAIR: Final = re.compile(
    r"([?&][\w.-]{0,40}(?:key|token|secret|sig|auth|passw|code)[\w.-]{0,40}=)[^&\s'\")<>]+",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}")
# Keys of providers, known by how they begin; one without a digit is a name, as sk-learn is.
_TOKEN: Final = re.compile(r"(?<![\w-])(sk-|gsk_|xai-|hf_|AIza)(?=[\w-]*\d)[\w-]{16,}", re.ASCII)
_BEGINS: Final = re.compile(r"(?:sk-|gsk_|xai-|hf_|AIza)[\w-]{16,}", re.ASCII)
# Shorter ones are part of ordinary words.
_SHORTEST: Final = 4
_KEY: Final = 8  # of a key in the environment


def is_secret(name: str) -> bool:
    """Return whether an option or a variable of this name holds a secret."""
    return _SECRET.search(name) is not None


def is_key(text: str) -> bool:
    """Return whether a text has the form of a provider's key."""
    return _BEGINS.fullmatch(text) is not None


def public_address(url: str) -> str:
    """An endpoint without a user, a password, a query or a slash at its end."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it is none; the first call says so
        return public_text(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=host, query="", fragment="").geturl().rstrip("/")


def lasting_pairs(pairs: Mapping[str, Any], secrets: Sequence[str] = ()) -> dict[str, Any]:
    """The pairs of headers or of a query that may change answers, without those with secrets."""
    lasting: dict[str, Any] = {}
    for name, value in pairs.items():
        apart = any(pattern.search(name) for pattern in (_SECRET, _SECRET_HEADER, _OF_REQUEST))
        plain = isinstance(value, str | int | float | list | tuple)
        if plain and not apart and hidden_in(public_value(value), secrets) == value:
            lasting[name] = value
    return lasting


def queries_in(value: Any) -> dict[str, Any]:
    """The queries of the addresses in plain data; not of those that are secret by their name."""
    queries: dict[str, Any] = {}
    for text, hidden in _texts(value):
        if not hidden:
            queries |= chain.from_iterable(map(_query, _ADDRESS.finditer(text)))
    return queries


def public_value(value: Any) -> Any:
    """Plain data without what is secret by its name, and without secrets in addresses."""
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, Mapping):
        return {key: public_value(item) for key, item, hidden in _items(value) if not hidden}
    if type(value) in (list, tuple):
        return type(value)(map(public_value, value))
    return value


def secrets_in(value: Any) -> list[str]:
    """The texts in plain data that are secret by their names, and those in addresses."""
    secrets = list[str]()
    for text, hidden in _texts(value):
        if hidden:
            secrets.append(text)
        elif "://" in text:
            secrets += secrets_of_address(text)
    return secrets


def _texts(value: Any, hidden: bool = False) -> Iterator[tuple[str, bool]]:
    """The texts in plain data, and whether each is secret by a name above it."""
    if isinstance(value, Mapping):
        for _, item, secret in _items(value):
            yield from _texts(item, hidden or secret)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, hidden)
    elif isinstance(value, str):
        yield value, hidden


def _items(fields: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, bool]]:
    """Names and values, and whether a value is secret by its name; headers are flattened."""
    for key, value in fields.items():
        name = str(key)
        if _HEADERS.search(name) and isinstance(value, Mapping):
            public = {k: v for k, v in value.items() if not _SECRET_HEADER.search(str(k))}
            yield key, public, False
            for k, v in value.items():
                if k not in public:
                    yield k, v, True
        else:
            yield key, value, is_secret(name)


def public_text(text: str, secrets: Iterable[str] = ()) -> str:
    """A text without these secrets, and without what is one by its form.

    That is what addresses and headers in it contain, and keys of the usual forms (`sk-…`).
    """
    for secret in sorted(set(secrets), key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            text = text.replace(secret, HIDDEN)
    if "://" in text:
        text = _ADDRESS.sub(_public_match, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", _PAIR.sub(rf"\1{HIDDEN}", text))
    return _TOKEN.sub(rf"\1{HIDDEN}", text)


class PublicLog(logging.Filter):
    """Takes the secrets in addresses out of what a library logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Make the message of a record public; every record stays."""
        record.msg, record.args = public_text(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = public_text("".join(format_exception(*record.exc_info)).rstrip())
            record.exc_info = None
        return True


_PUBLIC_LOG: Final = PublicLog()


def keep_log_public(*names: str) -> None:
    """Let the loggers of these names write no secret of an address; said twice, it holds once."""
    for name in names:
        logging.getLogger(name).addFilter(_PUBLIC_LOG)


def forms_of(secret: str) -> set[str]:
    """Forms of a secret in JSON, and in JSON within JSON."""
    forms = {secret}
    for _ in range(2):
        for form, plain in product(tuple(forms), (True, False)):
            forms.add(json.dumps(form, ensure_ascii=plain)[1:-1])
    return forms


def quotable(secrets: Iterable[str]) -> tuple[str, ...]:
    """Secrets in all their forms that may be hidden in what a judge says, the longest first.

    Words and short texts are not: servers that need no key are given `none` or `password`.
    """
    keys = {secret for secret in secrets if len(secret) >= _KEY and not secret.isalpha()}
    return tuple(
        sorted({form for secret in keys for form in forms_of(secret)}, key=len, reverse=True)
    )


def hidden_in(value: Any, secrets: Iterable[str]) -> Any:
    """Plain data without these secrets, in keys or in values."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, Mapping):
        return {hidden_in(k, secrets): hidden_in(v, secrets) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [hidden_in(item, secrets) for item in value]
    return value


def clip_text(text: str, most: int = 1_000) -> str:
    """A text, or its beginning and how long it is."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def _query(address: re.Match[str]) -> list[tuple[str, str]]:
    return parse_qsl((address["query"] or "")[1:], keep_blank_values=True)


def _public_match(address: re.Match[str]) -> str:
    query = urlencode([(name, value) for name, value in _query(address) if name in _OPEN])
    return f"{address['scheme']}{address['place']}{'?' if query else ''}{query}"


def secrets_of_address(url: str) -> list[str]:
    """The user, the password and the values of the query, as they stand and as they are meant."""
    authority, _, query = url.partition("://")[2].partition("?")
    user = authority.rpartition("@")[0]
    values = [value for name, value in parse_qsl(query) if name not in _OPEN]
    raw = [user, *user.split(":", 1), *values]
    return [*filter(None, raw), *(unquote(text) for text in raw if text)]


def secrets_of_environment() -> list[str]:
    """The values of all variables that are secret by their names, as they are now."""
    # Another thread may remove a variable meanwhile, as pytest does.
    values = [os.environ.get(name, "") for name in list(os.environ) if is_secret(name)]
    return [value for value in values if len(value) >= _KEY]
