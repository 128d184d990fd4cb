"""Thresholds and weights per encoder: values, and the JSON that ships them. The only I/O is reading package data.

Knows: how features become a probability, and which numbers belong to which encoder. Leaves to
others: computing the features (`features`) and deciding (`matcher`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from semcache.errors import ConfigurationError

FAMILIES: Final = ("en", "zh", "cjk", "other")
FEATURES: Final = (
    "similarity", "missing", "substituted", "added", "soft", "negation", "question", "typed", "order", "length", "anchors", "tokens", "rivals",
    "request", "asked", "asked_rivals", "room", "asked_room",
)  # fmt: skip
"""Names of the weights, in the order of `features.features`."""

VERSION: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyCalibration:
    """Numbers for one family of languages.

    Attributes:
        threshold: Least cosine similarity of a hit, in [-1, 1].
        probability: Least match probability of a hit, in [0, 1].
        bias: Intercept of the logistic model.
        weights: Its weights, one per name in `FEATURES`.
        spread: How far apart the encoder's cosines lie, beside all-MiniLM-L6-v2's, in (0, 1]: what counts as nearly as near
            (`features.crowding`) is scaled by it. Some encoders have all their cosines above 0.7.
    """

    threshold: float
    probability: float
    bias: float
    weights: tuple[float, ...]
    spread: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("threshold", -1.0), ("probability", 0.0)):
            value = getattr(self, name)
            if not least <= value <= 1.0:
                raise ConfigurationError(
                    f"calibration {name} is {value!r}, expected a number in [{least:g}, 1]"
                )
        if not 0.0 < self.spread <= 1.0:
            raise ConfigurationError(f"calibration spread is {self.spread!r}, expected a number in (0, 1]")
        if len(self.weights) != len(FEATURES) or not all(map(math.isfinite, (self.bias, *self.weights))):
            raise ConfigurationError(
                f"calibration has {len(self.weights)} weights, expected {len(FEATURES)} finite ones: {', '.join(FEATURES)}"
            )

    def probability_of(self, features: Sequence[float]) -> float:
        """Return the match probability of a pair, in [0, 1]."""
        total = self.bias
        for weight, value in zip(self.weights, features, strict=True):
            total += weight * value
        return 1.0 / (1.0 + math.exp(-total)) if total > -700 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Numbers for one encoder.

    Attributes:
        fingerprint: The encoder's fingerprint, or the beginning that its releases share.
        families: By family of languages: ``en``, ``zh``, ``cjk`` (Japanese and Korean), ``other``.
        calibrated: False for the strict default of an encoder that nobody has tuned.
        note: Where the numbers come from.
    """

    fingerprint: str
    families: Mapping[str, FamilyCalibration]
    calibrated: bool = True
    note: str = ""
    version: int = VERSION

    def __post_init__(self) -> None:
        missing = [name for name in FAMILIES if name not in self.families]
        if missing:
            raise ConfigurationError(f"calibration lacks the families {', '.join(missing)}")
        _check_version(self.version)

    def to_json(self) -> str:
        """Write it as JSON."""
        families = {
            name: {
                "threshold": f.threshold,
                "probability": f.probability,
                "bias": f.bias,
                "spread": f.spread,
                "weights": dict(zip(FEATURES, f.weights, strict=True)),
            }
            for name, f in self.families.items()
        }
        body: dict[str, Any] = {
            "version": self.version,
            "fingerprint": self.fingerprint,
            "calibrated": self.calibrated,
            "note": self.note,
            "families": families,
        }
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Calibration:
        """Read what `to_json` wrote.

        Raises:
            ConfigurationError: It isn't JSON, or names or ranges are wrong.
        """
        try:
            body = json.loads(text)
            _check_version(int(body["version"]))  # before the weights, whose names depend on it
            families = {
                name: FamilyCalibration(
                    threshold=float(f["threshold"]),
                    probability=float(f["probability"]),
                    bias=float(f["bias"]),
                    weights=tuple(float(f["weights"][feature]) for feature in FEATURES),
                    spread=float(f["spread"]),
                )
                for name, f in body["families"].items()
            }
            return cls(
                fingerprint=str(body["fingerprint"]),
                families=families,
                calibrated=bool(body.get("calibrated", True)),
                note=str(body.get("note", "")),
                version=int(body["version"]),
            )
        except (KeyError, TypeError, AttributeError, json.JSONDecodeError) as error:
            raise ConfigurationError(
                f"not a calibration: {type(error).__name__} {error}; expected the JSON that `semcache tune` writes"
            ) from error


def _check_version(version: int) -> None:
    if version != VERSION:
        raise ConfigurationError(
            f"calibration has version {version}, expected {VERSION}; run `semcache tune` again"
        )


def strict(fingerprint: str) -> Calibration:
    """Return the default of an encoder that nobody has tuned: nearly equal texts only."""
    family = FamilyCalibration(
        threshold=0.95,
        probability=0.5,
        bias=6.0,
        weights=(0.0, -12.0, -4.0, -2.0, -1.0, -2.0, -2.0, -2.0, -2.0, *[0.0] * 9),
    )
    return Calibration(
        fingerprint=fingerprint,
        families=dict.fromkeys(FAMILIES, family),
        calibrated=False,
        note=(
            f"The encoder {fingerprint!r} has no calibration: only prompts with a cosine of 0.95 or more that differ"
            " little are served. Run `semcache tune` with it."
        ),
    )


_PREFIXED: Final = re.compile(r"-l2-[0-9a-f]{8}$")  # how a fingerprint ends where texts get a prefix


@cache
def _shipped() -> tuple[Calibration, ...]:
    folder = files("semcache.data") / "calibration"
    found = [
        Calibration.from_json(f.read_text(encoding="utf-8"))
        for f in folder.iterdir()
        if f.name.endswith(".json")
    ]
    return tuple(sorted(found, key=lambda c: -len(c.fingerprint)))


_ROUTED: Final = re.compile(r"bare-en-(.+?)(?:-zh-(.+?))?-other-(.+)")  # of `encoders.RoutedEncoder`


def calibration_for(fingerprint: str) -> Calibration:
    """Return the shipped calibration of an encoder, else a strict default that says it is one.

    A release of the same encoder shares it; another encoder whose name begins alike doesn't, nor the same
    one with a prefix before each text, which moves all cosines. Where languages go to encoders of their own, each
    family has the numbers of its encoder.
    """
    routed = _ROUTED.fullmatch(fingerprint)
    if routed is not None:
        english, chinese, other = (calibration_for(name or routed[3]) for name in routed.groups())
        return Calibration(
            fingerprint=fingerprint,
            families={**other.families, "en": english.families["en"], "zh": chinese.families["zh"]},
            calibrated=english.calibrated and chinese.calibrated and other.calibrated,
            note="; ".join(dict.fromkeys(c.note for c in (english, chinese, other) if c.note)),
        )
    for calibration in _shipped():
        rest = fingerprint.removeprefix(calibration.fingerprint)
        same = rest != fingerprint and (not rest or rest.startswith("-"))
        if same and not _PREFIXED.search(rest):
            return calibration
    return strict(fingerprint)
