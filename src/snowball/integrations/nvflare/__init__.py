"""NVFlare: a guard in front of its averaging. Needs nvflare 2.9 or later.

`GuardedAggregator` goes into a recipe: `FedAvgRecipe(..., aggregator=GuardedAggregator(...))`. `GuardedFedAvg` is a
controller for the job API, which also continues when sites fail or do not answer.

NVFlare rebuilds both on the server from their constructors' parameters and the attributes of the same names. So every
parameter is listed and has a plain type: the defense is its name in `snowball.defenses.DEFENSES`, its settings are a
dict. No client can make them raise.
"""

from snowball.errors import MissingExtra

try:
    from snowball.integrations.nvflare.aggregator import GuardedAggregator
    from snowball.integrations.nvflare.controller import GuardedFedAvg
except ImportError as error:
    raise MissingExtra(
        f"NVFlare's aggregators need nvflare 2.9 or later, {error}: pip install 'nvflare>=2.9'"
    ) from error

__all__ = ["GuardedAggregator", "GuardedFedAvg"]
