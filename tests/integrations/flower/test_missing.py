import sys

import pytest

from snowball.errors import MissingExtra


def test_without_flwr_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("flwr", "snowball.integrations"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(MissingExtra, match=r"pip install 'flwr\[simulation\]>=1\.41'"):
        import snowball.integrations.flower  # noqa: F401
