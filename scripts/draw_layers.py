"""Draw the map of the package for CONTRIBUTING.md: how a round flows, and which module may import which.

    python scripts/draw_layers.py

The layers are those of the import contract in pyproject.toml. A new module needs a line in `PURPOSES`.
"""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "layers.svg"

FLOW = (
    "data",
    "partition",
    "training\n(+ attack)",
    "Updates",
    "defense",
    "Verdict",
    "new model",
    "record",
    "report",
)
"""What happens in a round, from left to right."""

PURPOSES = {
    "cli": "commands",
    "testing": "check suites for defenses and attacks",
    "rehearsal": "which defense holds in a federation",
    "api": "run, sweep, simulate for scripts",
    "sweeps": "grids of runs",
    "integrations": "Flower, NVFlare",
    "report": "tables, figures, the page",
    "sim": "the simulated federation",
    "guard": "in front of a real one",
    "server": "one round: updates in, new model out",
    "attacks": "one file per attack",
    "defenses": "one file per method",
    "data": "sets, partitions, triggers",
    "models": "the paper's networks",
    "trackers": "TensorBoard and others",
    "records": "every file format",
    "updates": "rows and Gram matrices",
    "sources": "rows from what a caller passes",
    "differences": "rows of models in memory",
    "decision": "what changes a model",
    "layout": "columns of a row",
    "products": "lengths and inner products",
    "shares": "shares of an average",
    "arrays": "tensors from outside",
    "buffers": "running statistics",
    "serialization": "state as tensors and JSON",
    "setting_docs": "types and meanings of settings",
    "settings": "strict settings",
    "threads": "thread counts",
    "registry": "names to classes",
    "rng": "named random streams",
    "errors": "the exception tree",
}

CAPTION = "The package: a module imports only from the rows below it"

WIDTH, MARGIN, GAP = 980, 20, 10
FLOW_HEIGHT, ROW_HEIGHT = 46, 38
STYLE = """<style>
text { font: 13px sans-serif; fill: #1f2933; text-anchor: middle }
.title { font-weight: bold; text-anchor: start }
.module { font-weight: bold }
.box { fill: #e8eef7; stroke: #7b8ba5 }
.flow { fill: #fdf3dc; stroke: #b8964a }
.arrow { stroke: #7b8ba5; stroke-width: 1.5; marker-end: url(#head) }
.ground { fill: #ffffff }
</style>
<defs><marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">
<path d="M0,0 L6,3 L0,6 z" fill="#7b8ba5"/></marker></defs>"""


def read_layers() -> list[list[str]]:
    """Return the modules of every layer, the highest layer first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["containers"] == ["snowball"])
    return [layer.split(" | ") for layer in layers]


def draw_box(x: float, y: float, width: float, height: float, kind: str, lines: list[str], name: str = "") -> str:
    """Return a box with centred lines of text; the first one is bold if it is a module's name."""
    shown = [f'<tspan class="module">{name}</tspan>  {lines[0]}'] if name else lines
    first = y + height / 2 + 5 - 8 * (len(shown) - 1)
    texts = [
        f'<text x="{x + width / 2:.0f}" y="{first + 16 * row:.0f}">{line}</text>' for row, line in enumerate(shown)
    ]
    return f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="4"/>' + "".join(
        texts
    )


def draw_flow(y: float) -> list[str]:
    """Return the boxes of a round and the arrows between them."""
    step = (WIDTH - 2 * MARGIN + 2 * GAP) / len(FLOW)
    parts = []
    for index, stage in enumerate(FLOW):
        x = MARGIN + index * step
        parts.append(draw_box(x, y, step - 2 * GAP, FLOW_HEIGHT, "flow", stage.split("\n")))
        if index:
            middle = y + FLOW_HEIGHT / 2
            parts.append(
                f'<line class="arrow" x1="{x - 2 * GAP + 2:.0f}" y1="{middle}" x2="{x - 2:.0f}" y2="{middle}"/>'
            )
    return parts


def draw_modules(y: float) -> list[str]:
    """Return the boxes of the modules, one row per layer."""
    parts = []
    for row, modules in enumerate(read_layers()):
        width = (WIDTH - 2 * MARGIN - GAP * (len(modules) - 1)) / len(modules)
        for index, module in enumerate(modules):
            x = MARGIN + index * (width + GAP)
            parts.append(draw_box(x, y + row * ROW_HEIGHT, width, ROW_HEIGHT - 8, "box", [PURPOSES[module]], module))
    return parts


def main() -> None:
    """Write the picture."""
    top, layers = 40, 40 + FLOW_HEIGHT + 50
    height = layers + ROW_HEIGHT * len(read_layers()) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        STYLE,
        f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="{MARGIN}" y="{top - 14}">A round</text>',
        *draw_flow(top),
        f'<text class="title" x="{MARGIN}" y="{layers - 14}">{CAPTION}</text>',
        *draw_modules(layers),
        "</svg>",
    ]
    PICTURE.write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
