"""The peak: single-precision matrix products, of 2048 × 2048 unless told otherwise.

`run N` does N of them and answers with flops.
"""

import argparse
import time

import torch
from serving import Line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--size", type=int, default=2048)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    line = Line()
    left, right = torch.randn(given.size, given.size), torch.randn(given.size, given.size)
    product = torch.mm(left, right)
    line.say({"version": torch.__version__})
    for _, times in line.commands():
        begin = time.perf_counter()
        for _ in range(times):
            torch.mm(left, right, out=product)
        line.say({"flops": times * 2 * given.size**3, "seconds": time.perf_counter() - begin})


if __name__ == "__main__":
    main()
