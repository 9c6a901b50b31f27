import sys

import pytest

from snowball.errors import MissingExtra


def test_without_nvflare_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("nvflare", "snowball.integrations"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "nvflare", None)
    with pytest.raises(MissingExtra, match=r"pip install 'nvflare>=2\.9'"):
        import snowball.integrations.nvflare  # noqa: F401
