"""The settings of a rehearsal: a federation as its operator describes it, in a TOML file or by options."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from snowball.errors import SettingError
from snowball.registry import suggest_or_list
from snowball.settings import Section, Settings, describe_fault, parse_toml, read_toml_text, refuse_huge_integers
from snowball.sim.presets import to_plain

STAND_IN_DATA, STAND_IN_MODEL = "mnist-sample", "cnn-quarter"
"""What is trained unless the operator names something else; both ship with the package."""

MIN_SITES = 4
"""With fewer sites, no defense here can tell who is hostile."""

MAX_SITES = 10_000
"""More would take hours, and no shipped data suffices for them."""

MAX_PER_ROUND = 50
"""Sites per round by default if there are more."""

HOSTILE_SHARE = 5
"""One of so many sites is hostile by default, and one at least."""


class FederationSettings(Section):
    """A federation, and what to rehearse with it.

    Attributes:
        sites: number of sites; may be left out if there are sizes.
        sizes: examples of each site; equal by default.
        per_round: sites that take part in a round; all by default, 50 if there are more.
        rounds: number of rounds.
        hostile: number of hostile sites; a fifth by default.
        hostile_sites: their numbers, counted from 1 in the order of the sizes; those of middle size by default.
        alpha: how alike the labels of the sites are: 0.1 for hardly, 1 for moderately, 100 for nearly the same.
        examples: training examples to use in all; by default as many as a stand-in needs, or all of other data.
        data: the data set, or module:attribute of the operator's own.
        model: the model, or module:Class of the operator's own.
        training: settings of local training, such as epochs and lr.
        attacks: attacks to rehearse, each a name, or a table with a name and settings.
        defenses: defenses to rehearse, in the same form; by default those that fit the number of sites.
        seeds: one run per seed; the worst of them counts.
    """

    sites: int | None = None
    sizes: list[int] | None = None
    per_round: int | None = None
    rounds: int = Field(default=20, ge=1)
    hostile: int | None = None
    hostile_sites: list[int] | None = None
    alpha: float = Field(default=1.0, gt=0)
    examples: int | None = Field(default=None, ge=1)
    data: str = STAND_IN_DATA
    model: str = STAND_IN_MODEL
    training: Settings = Field(default_factory=dict)
    attacks: list[str | Settings] = Field(default=["cba", "model-replacement", "ipm", "adaptive"], min_length=1)
    defenses: list[str | Settings] | None = Field(default=None, min_length=1)
    seeds: list[int] = Field(default=[1], min_length=1)


class Sites(NamedTuple):
    """The sites of a federation, the hostile ones first.

    Attributes:
        numbers: the operator's number of each site, from 1.
        sizes: relative sizes.
        hostile: how many are hostile.
        per_round: how many take part in a round.
    """

    numbers: tuple[int, ...]
    sizes: tuple[int, ...]
    hostile: int
    per_round: int

    @property
    def hostile_share(self) -> float:
        """The share of all examples that the hostile sites hold."""
        return sum(self.sizes[: self.hostile]) / sum(self.sizes)


def read_federation(source: str | Path | None, changes: Mapping[str, Any]) -> FederationSettings:
    """Read the settings of a TOML file, if there is one, with some of them changed."""
    given = {} if source is None else read_settings(Path(source))
    given |= {name: convert_to_list(value) for name, value in changes.items()}
    for name in given:
        if name not in FederationSettings.model_fields:
            known = suggest_or_list(name, FederationSettings.model_fields)
            raise SettingError(f"{name} is not a setting of a rehearsal{known}")
    refuse_huge_integers(given, "a rehearsal")
    try:
        return FederationSettings.model_validate(given)
    except ValidationError as error:
        raise SettingError(describe_fault(error)) from error


def read_settings(file: Path) -> Settings:
    """Read a TOML file."""
    return parse_toml(read_toml_text(file, file), file)


def convert_to_list(value: Any) -> Any:
    """Return tuples, ranges and NumPy arrays as lists, and everything else as it is."""
    plain = to_plain(value)
    return [to_plain(entry) for entry in plain] if isinstance(plain, tuple | range | list) else plain


def arrange_sites(settings: FederationSettings, natural: int | None = None) -> Sites:
    """Check who takes part and who is hostile; `natural` is the number of clients that own data comes with."""
    count = count_sites(settings, natural)
    if count < MIN_SITES:
        raise SettingError(f"sites = {count}: no defense can tell fewer than {MIN_SITES} sites apart")
    if count > MAX_SITES:
        raise SettingError(f"sites = {count} is more than {MAX_SITES}: rehearse a part of them")
    per_round = min(count, MAX_PER_ROUND) if settings.per_round is None else settings.per_round
    if not MIN_SITES <= per_round <= count:
        raise SettingError(f"per_round = {per_round} must lie between {MIN_SITES} and sites = {count}")
    hostile = list_hostile(settings, count, natural)
    order = [*hostile, *(number for number in range(1, count + 1) if number not in set(hostile))]
    sizes = [1] * count if settings.sizes is None else settings.sizes
    return Sites(tuple(order), tuple(sizes[number - 1] for number in order), len(hostile), per_round)


def count_sites(settings: FederationSettings, natural: int | None) -> int:
    """Return the number of sites, and refuse sizes that do not fit it."""
    if natural is not None and (settings.sizes or settings.sites not in (None, natural)):
        raise SettingError(f"the data comes with {natural} clients: leave sites and sizes out")
    sizes = settings.sizes
    for size in sizes or ():
        if size < 1:
            raise SettingError(f"sizes must be numbers of examples from 1, got {size}")
    sites = settings.sites if natural is None else natural
    if sites is None and sizes is None:
        raise SettingError("how many sites are there? Give sites, such as 8, or the sizes of all sites")
    if sites is not None and sizes is not None and len(sizes) != sites:
        raise SettingError(f"sizes has {len(sizes)} numbers, expected one for each of sites = {sites}")
    return len(sizes or ()) if sites is None else sites


def list_hostile(settings: FederationSettings, count: int, natural: int | None) -> list[int]:
    """Return the numbers of the hostile sites: those that are named, or else those of middle size."""
    named = settings.hostile_sites
    if named is not None:
        refuse_named(named, count, settings.hostile, natural)
    default = max(1, count // HOSTILE_SHARE) if named is None else len(named)
    hostile = default if settings.hostile is None else settings.hostile
    if hostile < 1:
        raise SettingError(f"hostile = {hostile} must be 1 or more; a federation without attackers is always rehearsed")
    if 2 * hostile >= count:
        most = (count - 1) // 2
        raise SettingError(
            f"hostile = {hostile} of {count} sites: nothing holds against half or more; give up to {most}"
        )
    return choose_middle(settings.sizes or [1] * count, hostile) if named is None else named


def refuse_named(named: Sequence[int], count: int, hostile: int | None, natural: int | None) -> None:
    """Refuse numbers of hostile sites that do not name as many different sites as are hostile."""
    if natural is not None:
        raise SettingError("hostile_sites needs sizes: the clients that data comes with are drawn by lot")
    if len(set(named)) != len(named) or not all(1 <= number <= count for number in named):
        raise SettingError(f"hostile_sites must be different numbers from 1 to {count}, got {named}")
    if hostile not in (None, len(named)):
        raise SettingError(f"hostile = {hostile}, but hostile_sites names {len(named)}: give one of them")


def choose_middle(sizes: Sequence[int], hostile: int) -> list[int]:
    """Return the numbers of as many sites of middle size."""
    by_size = sorted(range(1, len(sizes) + 1), key=lambda number: sizes[number - 1])
    start = (len(sizes) - hostile) // 2
    return sorted(by_size[start : start + hostile])
