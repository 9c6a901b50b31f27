"""Grids whose runs take seconds."""

FINE = '[grid.axes]\n"defense.name" = ["fedavg", "krum"]\n'
IMPOSSIBLE = '[grid.axes]\n"defense.clusters" = [4]\n"defense.name" = ["snowball"]\n'
REFUSED = "4 clusters need over 4 updates, got 4"
"""What is said of a run of IMPOSSIBLE."""


def block(axes: str = FINE, rounds: int = 2) -> str:
    """A block of a grid."""
    return f"""[[grid]]
preset = "demo"
[grid.set]
rounds = {rounds}
cohort = 4
"data.clients" = 5
"data.examples" = 100
"data.minimum" = 5
"training.epochs" = 1
"attack.malicious" = 0.25
{axes}"""
