"""The bounds of the settings of a search."""

import pytest

from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError
from seqloom.search.settings import SearchConfig


@pytest.mark.parametrize(
    ("name", "most", "beyond", "shown"),
    [
        ("beam", "1000", "1001", "1,000"),
        ("alpha", "10", "10.5", "10"),
        ("length_factor", "100", "1.0e+300", "100"),
        ("length_constant", "10000", "10001", "10,000"),
        ("tokens_per_batch", "10000000", "10000001", "10,000,000"),
    ],
)
def test_a_setting_beyond_its_bound_is_refused_with_the_bound(name: str, most: str, beyond: str, shown: str) -> None:
    resolve(SearchConfig, overrides=[f"{name}={most}"])
    with pytest.raises(ConfigError, match=f"{name}: .* is too large; give at most {shown}$"):
        resolve(SearchConfig, overrides=[f"{name}={beyond}"])
