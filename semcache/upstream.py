"""Asks a model behind an OpenAI-compatible endpoint, with the standard library alone.

For the command line, where no SDK is at hand. Applications bring their own client; see `openai_semcache`.
"""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from semcache.errors import ConfigurationError, UpstreamError
from semcache.types import CacheRequest, Response


class ChatUpstream:
    """Calls ``POST <base URL>/chat/completions`` with one user message, preceded by nothing.

    Args:
        base_url: For example ``http://localhost:8000/v1``.
        model: Name of the model, as the endpoint knows it.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds for a whole answer.

    Raises:
        ConfigurationError: The base URL isn't http or https.
    """

    def __init__(
        self, base_url: str, model: str, *, api_key: str | None = None, timeout: float = 120.0
    ) -> None:
        parts = urllib.parse.urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(
                f"the base URL is {base_url!r}, expected http://… or https://…, for example http://localhost:8000/v1"
            )
        self.base_url = base_url.rstrip("/")
        self.model = model
        self._api_key = api_key
        self._timeout = timeout

    def __call__(self, request: CacheRequest) -> Response:
        """Return the model's answer.

        Raises:
            UpstreamError: The endpoint can't be reached, refuses, or answers something that isn't a completion.
        """
        body = {"model": self.model, "messages": [{"role": "user", "content": request.prompt}]}
        started = time.monotonic()
        completion = self._post(json.dumps(body).encode())
        return _read(completion, 1000.0 * (time.monotonic() - started))

    def _post(self, body: bytes) -> Any:
        url = f"{self.base_url}/chat/completions"
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                said = " ".join(error.read(300).decode(errors="replace").split())
            raise UpstreamError(f"{url} answered {error.code} {error.reason}: {said}") from error
        except (OSError, http.client.HTTPException) as error:  # URLError is an OSError
            raise UpstreamError(
                f"{url} can't be reached: {getattr(error, 'reason', None) or error!r}"
            ) from error
        except ValueError as error:
            raise UpstreamError(f"{url} answered something that isn't JSON") from error


def _read(completion: Any, latency_ms: float) -> Response:
    """Read a chat completion."""
    try:
        choice = completion["choices"][0]
        message = choice["message"]
        content = message.get("content") or ""
        if not isinstance(content, str):
            raise TypeError("content isn't text")
        finish_reason = choice.get("finish_reason")
        usage = completion.get("usage")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UpstreamError(
            f"the endpoint's answer isn't a chat completion: {str(completion)[:200]}"
        ) from error
    return Response(
        content,
        finish_reason=finish_reason if isinstance(finish_reason, str) else None,
        refusal=bool(message.get("refusal")),
        tool_calls=bool(message.get("tool_calls")),
        usage=usage if isinstance(usage, dict) else None,
        latency_ms=latency_ms,
    )
