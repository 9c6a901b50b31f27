import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet.py"


def test_a_network_with_batch_normalisation_learns_in_worker_processes() -> None:
    done = subprocess.run([sys.executable, EXAMPLE, "1"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    line = re.fullmatch(r"round 1: main accuracy (0\.\d{3}), backdoor accuracy 0\.\d{3}\n", done.stdout)
    assert line, done.stdout
    assert float(line[1]) > 0.2
