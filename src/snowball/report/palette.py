"""The colours of every page and static figure: one per defense, and those of infected and benign updates."""

import hashlib
from dataclasses import dataclass

INFECTED, BENIGN, BETWEEN = "infected", "benign", "between"

TONES = {
    INFECTED: ("#d55e00", "#f07f2e"),
    BENIGN: ("#0072b2", "#56b4e9"),
    BETWEEN: ("#e69f00", "#e9b54a"),
    "plain": ("#6b7280", "#9aa3ae"),
    "green": ("#009e73", "#2fc79a"),
    "charcoal": ("#2b2f36", "#e9ebee"),
    "grey": ("#7d838c", "#9aa1aa"),
    "purple": ("#8e44ad", "#c792ea"),
    "ochre": ("#b27b00", "#e9b54a"),
    "indigo": ("#4a57c8", "#97a3ff"),
    "magenta": ("#c2388a", "#ff8cc6"),
    "brown": ("#7a4a21", "#c99a6b"),
    "olive": ("#6f7f12", "#b9c84a"),
    "sky": ("#3490c4", "#7cc6ef"),
}
"""The colours by name, on white and on black. Okabe and Ito's vermillion and blue are kept for infected and benign."""

HEAT = {"low": ("#fff3e4", "#2b2119"), "middle": ("#f3a75c", "#9c4f17"), "high": ("#8a2d04", "#ffb27d")}
"""The colours of a heat map, from zero up."""


@dataclass(frozen=True)
class Look:
    """The look of a defense: a key of `TONES`, and the dashes of its line."""

    tone: str
    dash: str


LOOKS = {
    "snowball": Look("green", "solid"),
    "fedavg": Look("charcoal", "dash"),
    "ideal": Look("grey", "dot"),
    "snowball-plus": Look("magenta", "dash"),
    "snowball-minus": Look("olive", "dot"),
    "krum": Look("purple", "dash"),
    "dnc": Look("ochre", "dash"),
    "flame": Look("indigo", "dash"),
    "flip": Look("brown", "dash"),
    "rlr": Look("olive", "dash"),
    "crfl": Look("sky", "dash"),
    "fldetector": Look("magenta", "dot"),
    "voting-random": Look("purple", "dot"),
    "voting-center": Look("ochre", "dot"),
    "multi-krum": Look("indigo", "dot"),
    "median": Look("brown", "dot"),
    "trimmed-mean": Look("sky", "dot"),
    "bulyan": Look("purple", "dashdot"),
    "rfa": Look("ochre", "dashdot"),
    "fltrust": Look("indigo", "dashdot"),
    "foolsgold": Look("magenta", "dashdot"),
    "norm-clip": Look("brown", "dashdot"),
    "weak-dp": Look("olive", "dashdot"),
    "deepsight": Look("sky", "dashdot"),
    "alignins": Look("ochre", "longdash"),
    "multi-metrics": Look("indigo", "longdash"),
    "signguard": Look("magenta", "longdash"),
    "centered-clipping": Look("brown", "longdash"),
    "caf": Look("olive", "longdash"),
    "freqfed": Look("charcoal", "dashdot"),
    "mesas": Look("grey", "dashdot"),
    "lfighter": Look("charcoal", "longdash"),
    "rflbat": Look("grey", "longdash"),
    "roseagg": Look("charcoal", "dot"),
    "fedsurrogate": Look("sky", "longdash"),
    "flare": Look("grey", "dash"),
    "intersection": Look("purple", "longdash"),
}
"""The look of each defense of the package. Only Snowball is green, and only its line is solid."""

OTHER_TONES = ("purple", "ochre", "indigo", "magenta", "brown", "olive", "sky")
OTHER_DASH = "longdashdot"


def choose_look(name: str) -> Look:
    """Return the look of a defense; one from elsewhere has a colour that depends on its name alone.

    A name may go on with other settings after a comma, such as `krum, 0.3`.
    """
    if look := LOOKS.get(name) or LOOKS.get(name.partition(", ")[0]):
        return look
    digest = hashlib.sha256(name.encode(errors="backslashreplace")).digest()
    return Look(OTHER_TONES[digest[0] % len(OTHER_TONES)], OTHER_DASH)


def write_palette_css() -> str:
    """Write the colours as CSS variables, `--infected` and so on, for light and dark pages."""
    light, dark = ("".join(f"--{name}:{pair[side]};" for name, pair in _list_variables().items()) for side in (0, 1))
    return f':root{{{light}}}\n@media screen{{:root[data-theme="dark"]{{{dark}}}}}\n'


def _list_variables() -> dict[str, tuple[str, str]]:
    return TONES | {f"heat-{name}": pair for name, pair in HEAT.items()}
