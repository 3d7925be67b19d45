"""How threads wait for each other: decided before torch is imported, unless the user did."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seqloom.core.openmp import VARIABLES

is_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it is not seen what else is running")

REPORT = """
import json, os
from seqloom.core.openmp import VARIABLES, WAIT_POLICY
environment = {name: os.environ[name] for name in VARIABLES if name in os.environ}
print(json.dumps([WAIT_POLICY.reason, dict(WAIT_POLICY.settings), environment]))
"""


def run(program: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in (*VARIABLES, "OMP_NUM_THREADS")}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment | settings, text=True, capture_output=True, check=True
    )


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Other programs that need all of a core each."""
    burning = "print(flush=True)\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", burning], stdout=subprocess.PIPE) for _ in range(processes)]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()


@is_linux
def test_threads_sleep_while_they_wait_on_a_busy_machine() -> None:
    passive = {"OMP_WAIT_POLICY": "PASSIVE"}
    with load(os.cpu_count() or 1):
        assert json.loads(run(f"import seqloom{REPORT}").stdout) == ["busy machine", passive, passive]


def test_threads_spin_shortly_where_there_is_a_core_for_each() -> None:
    """On a machine with more cores than anybody uses."""
    reason, settings, environment = json.loads(
        run(f"import os; os.cpu_count = lambda: 999; import seqloom{REPORT}").stdout
    )
    assert (reason, settings) == ("quiet machine", {"GOMP_SPINCOUNT": "10000"})
    assert environment == settings


@pytest.mark.parametrize("name", VARIABLES)
def test_a_waiting_policy_of_the_user_is_left_alone(name: str) -> None:
    given = {name: {"OMP_WAIT_POLICY": "ACTIVE"}.get(name, "20")}
    assert json.loads(run(f"import seqloom{REPORT}", **given).stdout) == ["environment", given, given]


def test_nothing_is_set_once_torch_is_imported() -> None:
    program = f"import sys, types; sys.modules['torch'] = types.ModuleType('torch'); import seqloom{REPORT}"
    assert json.loads(run(program).stdout) == ["torch was imported before seqloom", {}, {}]


@is_linux
def test_the_runtime_of_torch_reads_the_policy() -> None:
    """Without it, libgomp spins 300,000 times."""
    shown = run("import seqloom.core.stepping", OMP_DISPLAY_ENV="VERBOSE").stderr
    assert "GOMP_SPINCOUNT = '0'" in shown or "GOMP_SPINCOUNT = '10000'" in shown
