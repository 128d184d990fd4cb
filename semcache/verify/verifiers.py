"""Second opinions for the grey zone: a cross-encoder, or a model as judge. Slow, and may do I/O.

Knows: how to ask, how long to wait, and how to read the answer. Leaves to others: when a second
opinion is wanted. Both fail closed: an error, a late or an unreadable answer is no opinion (None).
"""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from semcache.errors import ConfigurationError, MissingDependencyError

_log = logging.getLogger(__name__)

QUESTION: Final = (
    "Two users asked an assistant the two questions below. May the stored answer to the first be given to the second"
    " without loss? Numbers, dates, names, places, units, negations and the direction of relations must agree.\n\n"
    "First question:\n{stored}\n\nStored answer:\n{response}\n\nSecond question:\n{query}\n\n"
    "Reply with one number between 0 (surely not) and 100 (surely) and nothing else."
)
_NUMBER: Final = re.compile(r"^\D{0,40}?(\d{1,3}(?:\.\d+)?)")


class _CrossEncoder(Protocol):
    def predict(self, sentences: Any, **kwargs: Any) -> Any: ...


class CrossEncoderVerifier:
    """Scores the two prompts together with a cross-encoder of sentence-transformers.

    Args:
        model: Name or folder of the model, or a loaded cross-encoder (anything with `predict`).
        to_probability: Turns the raw score into a probability in [0, 1]; the logistic function unless given.

    Raises:
        MissingDependencyError: sentence-transformers isn't installed (at the first use).
    """

    def __init__(
        self, model: str | _CrossEncoder, *, to_probability: Callable[[float], float] | None = None
    ) -> None:
        self._model = model
        self._to_probability = to_probability
        self._lock = threading.Lock()

    def verify(self, query: str, stored: str, response: str, *, deadline_s: float) -> float | None:
        """Return the probability that the prompts ask the same; see `protocols.Verifier.verify`."""
        return _within(deadline_s, lambda: self._score(query, stored))

    def _score(self, query: str, stored: str) -> float:
        with self._lock:
            if isinstance(self._model, str):
                self._model = _load(self._model)
            score = float(self._model.predict([(stored, query)], show_progress_bar=False)[0])
        if self._to_probability is not None:
            return self._to_probability(score)
        # models with one label apply the logistic function themselves; a raw logit leaves [0, 1]
        return score if 0.0 <= score <= 1.0 else 1.0 / (1.0 + math.exp(-max(-700.0, min(700.0, score))))


def _load(name: str) -> _CrossEncoder:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError as error:
        raise MissingDependencyError("CrossEncoderVerifier", extra="st") from error
    model: _CrossEncoder = CrossEncoder(name)
    return model


class LLMJudgeVerifier:
    """Asks a model over any OpenAI-compatible client.

    Args:
        client: An object with `chat.completions.create(...)`, e.g. `openai.OpenAI()`.
        model: The judge's name.
        question: Template with ``{query}``, ``{stored}`` and ``{response}``; the reply must start with a
            number from 0 to 100.
        max_response_chars: The stored answer is shown to the judge up to this length.
    """

    def __init__(
        self, client: Any, model: str, *, question: str = QUESTION, max_response_chars: int = 4000
    ) -> None:
        for name in ("{query}", "{stored}"):
            if name not in question:
                raise ConfigurationError(f"the judge's question lacks {name}, expected a template with it")
        self._client = client
        self._model = model
        self._question = question
        self._max_response_chars = max_response_chars

    def verify(self, query: str, stored: str, response: str, *, deadline_s: float) -> float | None:
        """Return the judge's probability; see `protocols.Verifier.verify`."""
        return _within(deadline_s, lambda: self._ask(query, stored, response, deadline_s))

    def _ask(self, query: str, stored: str, response: str, deadline_s: float) -> float:
        parts = {"{query}": query, "{stored}": stored, "{response}": response[: self._max_response_chars]}
        content = re.sub(r"\{(?:query|stored|response)\}", lambda found: parts[found[0]], self._question)
        reply = self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": content}],
            temperature=0,
            max_tokens=8,
            timeout=deadline_s,
        )
        text = reply.choices[0].message.content or ""
        found = _NUMBER.match(text.strip())
        if found is None:
            raise ValueError(f"the judge replied {text[:40]!r}, expected a number from 0 to 100")
        return float(found[1]) / 100.0


def _within(deadline_s: float, work: Callable[[], float]) -> float | None:
    """Run `work` in a thread; return its probability, or None if it is late, fails or isn't one.

    A missing dependency is the caller's mistake and is raised.
    """
    if not deadline_s > 0:
        return None
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semcache-verifier")
    done = pool.submit(work)
    pool.shutdown(wait=False)  # the thread ends with its work
    try:
        error = done.exception(timeout=deadline_s)
    except TimeoutError:
        _log.debug("no opinion: the verifier took longer than %s s", deadline_s)
        return None
    if isinstance(error, MissingDependencyError | KeyboardInterrupt | SystemExit):
        raise error
    if error is not None:
        _log.warning("no opinion: the verifier failed with %s", type(error).__name__)
        return None
    probability = done.result()
    return probability if 0.0 <= probability <= 1.0 else None
