"""Any OpenAI-compatible ``/embeddings`` endpoint as an encoder; needs the extra ``openai``.

Knows batches, bounded retries, one deadline for a call, and how answers are put in order. Leaves
transport, proxies and credentials to the client. Nothing is sent before the first `encode` (or `dim`,
where it wasn't given).

What the model reads and what it knows can't be seen from outside, and servers cut long texts without
a word; so a text counts as over the window by its size in bytes, and as known unless it is blank.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from semcache.encoders.texts import check_count, checked_texts, fingerprint, has_meaning, unit_rows
from semcache.errors import ConfigurationError, EncoderError, MissingDependencyError
from semcache.protocols import TextLimits
from semcache.types import Embeddings

if TYPE_CHECKING:
    from openai import OpenAI

    Client: TypeAlias = OpenAI | str | Callable[[], OpenAI]

_ATTEMPTS = 3  # for one batch
_FIRST_PAUSE = 0.1  # seconds; doubled for each further attempt
_WORTH_A_RETRY = {408, 409, 429, 500, 502, 503, 504, 529}  # status codes


class OpenAIEncoder:
    """A model behind an OpenAI-compatible endpoint.

    Args:
        client: An `openai.OpenAI` (or Azure) client, a function that makes one, or a base URL such as
            ``http://localhost:8080/v1``. In a forked child a function is called again, and a client
            is copied with a new connection pool of the SDK's default kind; so give a function if
            yours has an `http_client` of its own and the process forks.
        model: Name of the model.
        dim: Length that is asked for (``dimensions``), for models that can shorten; None means the
            model's own, which is learnt from the first answer.
        prefix: Put before each text, e.g. ``query: ``.
        deadline: Seconds for one call of `encode`, retries included. A server that sends its answer
            bit by bit can exceed it, as each wait for a bit may take what is left.
        batch_size: Most texts for one HTTP request.
        max_bytes: Size in UTF-8 above which a text, prefix included, counts as over the window. Keep
            it below what the model reads, and better below what it tells apart: other models lose a
            sentence among some 280 characters of English, see `SentenceTransformerEncoder`. The default
            suits a window of 512 tokens.
        api_key: Sent to a base URL; None sends a placeholder, as local servers want none. The
            environment's key is not used.

    Raises:
        MissingDependencyError: openai isn't installed.
        ConfigurationError: A number out of range, or an asynchronous client.
    """

    def __init__(
        self,
        client: Client,
        model: str,
        *,
        dim: int | None = None,
        prefix: str = "",
        deadline: float = 10.0,
        batch_size: int = 128,
        max_bytes: int = 1500,
        api_key: str | None = None,
    ) -> None:
        if importlib.util.find_spec("openai") is None:
            raise MissingDependencyError("OpenAIEncoder", extra="openai")
        for name, value in (
            ("dim", 1 if dim is None else dim),
            ("batch_size", batch_size),
            ("max_bytes", max_bytes),
        ):
            check_count(name, value)
        if not 0 < deadline < float("inf"):
            raise ConfigurationError(f"deadline is {deadline!r}, expected a number of seconds above 0")
        if not model:
            raise ConfigurationError("model is empty, expected the name of an embedding model")
        self._source = client
        self._model = model
        self._wanted = dim
        self._prefix = prefix
        self._deadline = deadline
        self._batch_size = batch_size
        self._max_bytes = max_bytes
        self._api_key = api_key
        self._dim = dim
        self._process = os.getpid()
        self._client: Any = self._make()

    @property
    def fingerprint(self) -> str:
        """Name, endpoint, dim (``own`` for the model's own), normalisation and prefix; sends nothing.

        The endpoint stands in for the revision, which the protocol doesn't tell.
        """
        endpoint = hashlib.sha256(str(self._client.base_url).rstrip("/").encode()).hexdigest()[:8]
        prefix = hashlib.sha256(self._prefix.encode()).hexdigest()[:8] if self._prefix else ""
        dim = "own" if self._wanted is None else str(self._wanted)
        return fingerprint(self._model, endpoint, dim, "l2", prefix)

    @property
    def dim(self) -> int:
        """Length of an embedding; where `dim` wasn't given, the first use asks the endpoint."""
        if self._dim is None:
            self._ask(["dim"], time.monotonic() + self._deadline)
        assert self._dim is not None
        return self._dim

    def encode(self, texts: Sequence[str]) -> Embeddings:
        """Embed texts; see `Encoder.encode`. A text over the window is not sent but has a row of zeros."""
        end = time.monotonic() + self._deadline
        texts = checked_texts(texts)
        rows = [row for row, limits in enumerate(self.inspect(texts)) if has_meaning(limits)]
        batches = [rows[begin : begin + self._batch_size] for begin in range(0, len(rows), self._batch_size)]
        found = [self._ask([self._prefix + texts[row] for row in batch], end) for batch in batches]
        embeddings = np.zeros((len(texts), self.dim), dtype=np.float32)
        for batch, part in zip(batches, found, strict=True):
            embeddings[batch] = part
        return embeddings

    def inspect(self, texts: Sequence[str]) -> list[TextLimits]:
        """Hold each text's size against `max_bytes`; only a blank text is known to be unknown."""
        return [
            TextLimits(
                over_window=len((self._prefix + text).encode()) > self._max_bytes,
                unknown_share=0.0 if text.strip() else 1.0,
            )
            for text in checked_texts(texts)
        ]

    def _make(self) -> Any:
        import openai

        client: Any = self._source
        if isinstance(client, str):
            return openai.OpenAI(base_url=client, api_key=self._api_key or "none")
        if not hasattr(client, "embeddings") and callable(client):
            client = client()
        if isinstance(client, openai.AsyncOpenAI):
            raise ConfigurationError(f"the client is {type(client).__name__}, expected a synchronous one")
        if not hasattr(client, "embeddings"):
            raise ConfigurationError(
                f"the client is {type(client).__name__}, expected an openai.OpenAI, a function that makes "
                "one, or a base URL"
            )
        return client

    def _here(self) -> Any:
        """Return the client, in a forked child one that shares no connection with the parent's."""
        if self._process != os.getpid():
            import openai

            client = self._make()
            shared = client is self._source
            if shared:
                plain = getattr(openai, "DefaultHttpx2Client", openai.DefaultHttpxClient)
                client = client.copy(http_client=plain())
            self._client = client
            self._process = os.getpid()
        return self._client

    def _ask(self, texts: list[str], end: float) -> Embeddings:
        """Send one batch, again if that may help, until `end` on the monotonic clock."""
        import openai

        client = self._here().with_options(max_retries=0)
        asked = {} if self._wanted is None else {"dimensions": self._wanted}
        for attempt in range(1, _ATTEMPTS + 1):
            left = end - time.monotonic()
            if left <= 0:
                raise EncoderError(f"{self._model} gave no embeddings within {self._deadline} s")
            try:
                answer = client.embeddings.create(
                    input=texts, model=self._model, encoding_format="float", timeout=left, **asked
                )
                return self._rows(answer, len(texts))
            except (openai.OpenAIError, ValueError) as error:
                pause = _pause(error, attempt)
                if pause is None or time.monotonic() + pause >= end:
                    raise EncoderError(
                        f"{self._model} gave no embeddings in attempt {attempt}: {type(error).__name__}: {error}"
                    ) from error
            time.sleep(pause)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _rows(self, answer: Any, count: int) -> Embeddings:
        """Return the rows of an answer in the order of the texts.

        Raises:
            EncoderError: The answer isn't `count` embeddings of one length, numbered from 0.
        """
        data = getattr(answer, "data", None) or []
        order = {item.index: item.embedding for item in data}
        if len(data) != count or set(order) != set(range(count)):
            raise EncoderError(
                f"{self._model} answered {count} texts with {len(data)} embeddings numbered "
                f"{[item.index for item in data][:10]}, expected one for each, numbered from 0"
            )
        lengths = {len(row) for row in order.values()}
        if len(lengths) != 1 or (self._dim is not None and lengths != {self._dim}):
            raise EncoderError(
                f"{self._model} gave embeddings of length {sorted(lengths)}, expected {self._dim or 'one length'}"
            )
        try:
            rows = unit_rows([order[index] for index in range(count)])
        except (TypeError, ValueError) as error:
            raise EncoderError(f"{self._model} gave something that isn't numbers: {error}") from error
        if not np.isfinite(rows).all():
            raise EncoderError(f"{self._model} gave numbers that aren't finite")
        self._dim = lengths.pop()
        return rows


def _pause(error: Exception, attempt: int) -> float | None:
    """Return the seconds to wait before the next attempt, None if there should be none."""
    import openai

    status = getattr(error, "status_code", None)
    if attempt >= _ATTEMPTS or not (isinstance(error, openai.APIConnectionError) or status in _WORTH_A_RETRY):
        return None
    pause: float = _FIRST_PAUSE * 2 ** (attempt - 1)
    asked = str(getattr(getattr(error, "response", None), "headers", {}).get("retry-after", ""))
    return max(pause, float(asked)) if asked.isdecimal() else pause
