"""Look up the packages of an SBOM in a database of vulnerabilities, with pip-audit.

    python scripts/scan.py build/sbom.json

It fails if something is known against one of them, or if one is unknown to the service. If the service cannot be
reached, it says so and does not fail. pip-audit alone cannot tell: an index without the service answers "not found",
which it counts as clean. So a version that is known to be vulnerable is looked up, too.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

KNOWN_VULNERABLE = ("pyyaml", "5.3")
"""A version with published vulnerabilities, of a package that Snowball does not need: CVE-2020-14343."""

UNREACHABLE = re.compile(
    r"requests\.exceptions\.|pip_audit\._service\.interface\.\w+Error"
    r"|ERROR:pip_audit\._cli:(Could not connect|.* is not redirecting)"
)
"""What pip-audit writes if the service cannot be reached, or answers with something else than JSON."""


def normalise(name: str) -> str:
    """Return a package's name as an index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(sbom: Path) -> dict[str, str]:
    """Read names and versions; a local version such as 2.13.0+cpu is looked up as the version that it is a build of."""
    components = json.loads(sbom.read_text(encoding="utf-8"))["components"]
    return {normalise(each["name"]): each["version"].partition("+")[0] for each in components}


def look_up(pins: dict[str, str]) -> tuple[str, str]:
    """Run pip-audit over pins and the version that is known to be vulnerable; return its output and errors."""
    lines = [f"{name}=={version}\n" for name, version in [*pins.items(), KNOWN_VULNERABLE]]
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--no-deps", "--disable-pip"]
        options = ["--format", "json", "--progress-spinner", "off", "--timeout", "10"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
    return done.stdout, done.stderr


def judge(pins: dict[str, str], output: str, errors: str) -> tuple[list[str], bool]:
    """Return what to say about pip-audit's answer, and whether that is a failure."""
    try:
        answers = {normalise(answer["name"]): answer for answer in json.loads(output)["dependencies"]}
    except ValueError:
        if UNREACHABLE.search(errors):
            return ["nothing was scanned: the vulnerability service cannot be reached"], False
        return [f"pip-audit failed: {errors.strip()}"], True
    if found := [line for name in pins for line in describe_flaws(answers.get(name, {}))]:
        return found, True
    if not describe_flaws(answers.get(KNOWN_VULNERABLE[0], {})):
        return ["nothing was scanned: the index has no vulnerability service"], False
    if missed := [name for name in pins if "vulns" not in answers.get(name, {})]:
        return [f"{name} {pins[name]} is unknown to the vulnerability service" for name in missed], True
    return [f"no vulnerability is known in {len(pins)} packages"], False


def describe_flaws(answer: dict[str, Any]) -> list[str]:
    """Describe the vulnerabilities of a package, one line each."""
    flaws = [(flaw["id"], ", ".join(flaw["fix_versions"]) or "no version") for flaw in answer.get("vulns", [])]
    return [f"{answer['name']} {answer['version']} has {name}, fixed in {fixes}" for name, fixes in flaws]


if __name__ == "__main__":
    pins = read_pins(Path(sys.argv[1]))
    lines, failed = judge(pins, *look_up(pins))
    if failed:
        sys.exit("\n".join(lines))
    sys.stdout.write("\n".join(lines) + "\n")
