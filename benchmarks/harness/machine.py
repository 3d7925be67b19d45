"""What a measurement was made on."""

import os
import platform
from pathlib import Path


def processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def memory() -> str:
    """Installed memory in gigabytes."""
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB"
    except (ValueError, OSError):
        return "unknown"


def machine_facts() -> dict[str, str]:
    """The machine and the interpreter, without names that belong to nobody else."""
    return {
        "processor": processor(),
        "cores": str(os.cpu_count()),
        "memory": memory(),
        "system": platform.system(),
        "Python": platform.python_version(),
    }
