"""scripts/scan.py tells a vulnerability from a service that cannot be reached."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts" / "scan.py"
SCAN = runpy.run_path(str(SCRIPT))
PINS = {"torch": "2.13.0", "typing-extensions": "4.16.0"}
FLAW = {"id": "CVE-1", "fix_versions": ["2.14.0", "2.15"], "aliases": [], "description": "bad"}
KNOWN = {"name": "pyyaml", "version": "5.3", "vulns": [FLAW]}
CLEAN = [{"name": name, "version": version, "vulns": []} for name, version in PINS.items()]
SKIPPED = [{"name": name, "skip_reason": "Dependency not found"} for name in [*PINS, "pyyaml"]]
UNRESOLVED = (
    "Traceback (most recent call last):\n  ...\n"
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='h', port=443): Max retries exceeded"
)


def write_answer(*answers: dict[str, Any]) -> str:
    return json.dumps({"dependencies": answers, "fixes": []})


@pytest.mark.parametrize(
    ("output", "errors", "line", "failed"),
    [
        (write_answer(*CLEAN, KNOWN), "", "no vulnerability is known in 2 packages", False),
        (write_answer(*SKIPPED), "No known vulnerabilities found", "the index has no vulnerability service", False),
        (write_answer(*CLEAN, {**KNOWN, "vulns": []}), "", "the index has no vulnerability service", False),
        (write_answer(*CLEAN, SKIPPED[-1]), "", "the index has no vulnerability service", False),
        ("", UNRESOLVED, "the vulnerability service cannot be reached", False),
        ("", "  ...\npip_audit._service.interface.ServiceError", "cannot be reached", False),
        ("", "ERROR:pip_audit._cli:Could not connect to the feed", "cannot be reached", False),
        ("", "ERROR:pip_audit._cli:The index is not redirecting properly", "cannot be reached", False),
        ("", "error: unrecognized arguments: --oops", "pip-audit failed: error: unrecognized", True),
        ("", "No module named pip_audit", "pip-audit failed: No module named pip_audit", True),
        (write_answer(CLEAN[0], SKIPPED[1], KNOWN), "", "typing-extensions 4.16.0 is unknown to", True),
        (write_answer(CLEAN[0], KNOWN), "", "typing-extensions 4.16.0 is unknown to", True),
    ],
)
def test_an_answer_is_judged(output: str, errors: str, line: str, failed: bool) -> None:
    lines, found = SCAN["judge"](PINS, output, errors)
    assert len(lines) == 1
    assert line in lines[0]
    assert found is failed


@pytest.mark.parametrize("known", [KNOWN, SKIPPED[-1]])
def test_a_vulnerability_fails_whatever_else_is_answered(known: dict[str, Any]) -> None:
    flawed = {"name": "typing_extensions", "version": "4.16.0", "vulns": [FLAW, {**FLAW, "fix_versions": []}]}
    assert SCAN["judge"](PINS, write_answer(SKIPPED[0], flawed, known), "") == (
        [
            "typing_extensions 4.16.0 has CVE-1, fixed in 2.14.0, 2.15",
            "typing_extensions 4.16.0 has CVE-1, fixed in no version",
        ],
        True,
    )


def test_the_script_runs_pip_audit_over_the_sbom(tmp_path: Path) -> None:
    components = [{"name": "torch", "version": "2.13.0+cpu"}, {"name": "typing_extensions", "version": "4.16.0"}]
    (tmp_path / "sbom.json").write_text(json.dumps({"components": components}))
    fake = (
        "import json, sys\n"
        "pins = [line.strip().split('==') for line in open(sys.argv[sys.argv.index('--requirement') + 1])]\n"
        f"found = [{{'name': name, 'version': version, 'vulns': [{FLAW}]}} for name, version in pins]\n"
        "sys.exit(print(json.dumps({'dependencies': found})) or 1)\n"
    )
    (tmp_path / "pip_audit.py").write_text(fake)
    command = [sys.executable, str(SCRIPT), str(tmp_path / "sbom.json")]
    done = subprocess.run(command, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 1
    assert done.stderr == (
        "torch 2.13.0 has CVE-1, fixed in 2.14.0, 2.15\ntyping-extensions 4.16.0 has CVE-1, fixed in 2.14.0, 2.15\n"
    )
