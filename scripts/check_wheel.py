"""Check that a wheel holds the whole package and nothing else.

    python scripts/check_wheel.py snowball_fl-0.1.0-py3-none-any.whl

Every file of src/snowball must be inside: code, py.typed, the sample, the trained weights, presets, grids and the
report's assets. Tests, benchmarks and files that no longer exist must not. The license must be inside. The description
may not link to files of a checkout.
"""

import re
import sys
from pathlib import Path
from zipfile import ZipFile

SOURCE = Path(__file__).parent.parent / "src"

RELATIVE_LINK = re.compile(r"\]\((?!https://)([^)]+)\)")


def list_source_files(source: Path) -> set[str]:
    """List the package's files as a wheel names them."""
    files = (path for path in (source / "snowball").rglob("*") if path.is_file())
    return {path.relative_to(source).as_posix() for path in files if "__pycache__" not in path.parts}


def find_faults(wheel: Path, source: Path = SOURCE) -> list[str]:
    """Return what is wrong with a wheel, one sentence each."""
    with ZipFile(wheel) as archive:
        described = {name for name in archive.namelist() if ".dist-info/" in name}
        files = {name for name in archive.namelist() if not name.endswith("/")} - described
        metadata = "".join(archive.read(name).decode() for name in described if name.endswith("/METADATA"))
    expected = list_source_files(source)
    return [
        *(f"{name} is missing" for name in sorted(expected - files)),
        *(f"{name} is not part of the package" for name in sorted(files - expected)),
        *(["the license is missing"] if not any(name.endswith("/licenses/LICENSE") for name in described) else []),
        *(f"the description links to {link}, which a wheel does not have" for link in RELATIVE_LINK.findall(metadata)),
    ]


if __name__ == "__main__":
    sys.exit("\n".join(find_faults(Path(sys.argv[1]))) or 0)
